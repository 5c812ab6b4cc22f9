"""How things are to be shown: what every widget is given beside the snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gputop import units
from gputop.settings import Settings
from gputop.ui.toolkit.glyphs import Glyphs


@dataclass(frozen=True, slots=True)
class View:
    """Settings, characters and colours of the moment. A new one is made when any of them changes."""

    settings: Settings
    glyphs: Glyphs
    has_track: bool = True  # the background tells the empty part of a bar
    alarms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # conditions that hold, by the GPU's UUID

    def memory(self, bytes_: float | None) -> str:
        return units.size(bytes_, self.settings.memory_unit)

    def temperature(self, celsius: float | None) -> str:
        return units.temperature(celsius, self.settings.temperature_unit)
