"""What can be set about leaks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from gputop.settings import DEFAULTS, Settings
from gputop.ui.settings.options import Choice, Option


class Amount(Choice):
    """A whole number with a unit: presets, or typed. One of its own stands between the presets."""

    keys: ClassVar[tuple[tuple[str, str], ...]] = (("←→", "change"), ("Enter", "type a value"))

    def __init__(self, name: str, label: str, presets: Sequence[int], unit: str, note: str) -> None:
        super().__init__(name, label, (), note)
        self._presets, self._unit = presets, unit

    def values(self, settings: Settings) -> list[tuple[Any, str]]:
        return [(value, f"{value} {self._unit}") for value in sorted({*self._presets, getattr(settings, self.name)})]

    def typing(self, settings: Settings) -> str | None:
        return str(getattr(settings, self.name))

    def typed(self, settings: Settings, text: str) -> Settings:
        wanted = text.strip().removesuffix(self._unit).strip()
        try:
            number = float(wanted)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"{text.strip()!r} is not a number of {self._unit}")
        return settings.changed(**{self.name: number})

    def default(self) -> str:
        return f"{getattr(DEFAULTS, self.name)} {self._unit}"


class Ignored(Option):
    """Who is never suspected: typed, with commas between."""

    keys: ClassVar[tuple[tuple[str, str], ...]] = (("Enter", "type names"),)

    def __init__(self) -> None:
        super().__init__("leak_ignore", "Never suspected", "Words of command lines, or user:NAME, with commas between")

    def shown(self, settings: Settings) -> str:
        return ", ".join(settings.leak_ignore) or "nobody"

    def press(self, settings: Settings) -> Settings | None:
        return None

    def typing(self, settings: Settings) -> str | None:
        return ", ".join(settings.leak_ignore)

    def typed(self, settings: Settings, text: str) -> Settings:
        return settings.changed(leak_ignore=[name.strip() for name in text.split(",") if name.strip()])


def leak_options() -> list[Option]:
    return [
        Amount("leak_idle_minutes", "Idle after", (5, 15, 30, 60, 120, 480), "min", "Without GPU or CPU use: IDLE"),
        Amount("leak_stopped_minutes", "Stopped for", (1, 5, 10, 30, 60), "min", "And still holding memory: SUSPECT"),
        Amount(
            "leak_gap_mib", "Unattributed above", (256, 512, 1024, 4096), "MiB", "Is explained, but never below 2 %"
        ),
        Ignored(),
    ]
