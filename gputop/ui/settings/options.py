"""What the settings screen offers: each option knows how it is shown, stepped, typed and reset. No drawing in here.

Every change makes a new :class:`~gputop.settings.Settings`; one that cannot be raises ValueError in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from gputop import units
from gputop.model import Gpu
from gputop.model.chart_metrics import CHART_METRICS, ChartMetric
from gputop.model.columns import COLUMNS
from gputop.model.selection import find
from gputop.settings import DEFAULTS, REFRESH_PRESETS, Settings, Thresholds, check_refresh, help_of


class Option:
    """One line of the settings screen."""

    keys: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __init__(self, name: str, label: str, note: str = "") -> None:
        self.name, self.label = name, label
        note = note or help_of(name)
        self.note = note[0].upper() + note[1:]

    def shown(self, settings: Settings) -> str:
        """The value in words."""
        return str(getattr(settings, self.name))

    def checked(self, settings: Settings) -> bool | None:
        """Whether a box before the label is ticked; None: there is none."""
        return None

    def choices(self, settings: Settings) -> tuple[str, ...]:
        """All values in words, where they can be listed."""
        return ()

    def step(self, settings: Settings, by: int) -> Settings:
        """Left (-1) and Right (+1)."""
        return settings

    def press(self, settings: Settings) -> Settings | None:
        """Space, and Enter where nothing can be typed. None: a value is to be typed."""
        return self.step(settings, 1)

    def pick(self, settings: Settings, n: int) -> Settings:
        """The mouse on the *n*-th of the choices."""
        return settings

    def typing(self, settings: Settings) -> str | None:
        """What typing a value begins with; None where none can be typed."""
        return None

    def typed(self, settings: Settings, text: str) -> Settings:
        return settings

    def default(self) -> str:
        """The default in words."""
        return self.shown(DEFAULTS)

    def is_default(self, settings: Settings) -> bool:
        return bool(getattr(settings, self.name) == getattr(DEFAULTS, self.name))

    def reset(self, settings: Settings) -> Settings:
        return settings.changed(**{self.name: getattr(DEFAULTS, self.name)})


class Choice(Option):
    """One of a few values."""

    keys: ClassVar[tuple[tuple[str, str], ...]] = (("←→", "change"),)

    def __init__(self, name: str, label: str, values: Sequence[tuple[Any, str]], note: str = "") -> None:
        super().__init__(name, label, note)
        self._values = list(values)

    def values(self, settings: Settings) -> list[tuple[Any, str]]:
        return self._values

    def position(self, settings: Settings) -> int:
        """Which of the values it is; -1 where it is another."""
        now = getattr(settings, self.name)
        return next((n for n, (value, _) in enumerate(self.values(settings)) if value == now), -1)

    def shown(self, settings: Settings) -> str:
        n = self.position(settings)
        return self.values(settings)[n][1] if n >= 0 else str(getattr(settings, self.name))

    def choices(self, settings: Settings) -> tuple[str, ...]:
        return tuple(words for _, words in self.values(settings))

    def step(self, settings: Settings, by: int) -> Settings:
        return self.pick(settings, max(0, self.position(settings) + by))

    def press(self, settings: Settings) -> Settings | None:
        return self.pick(settings, (self.position(settings) + 1) % len(self.values(settings)))

    def pick(self, settings: Settings, n: int) -> Settings:
        values = self.values(settings)
        return settings.changed(**{self.name: values[min(n, len(values) - 1)][0]})


class Switch(Option):
    """On or off."""

    keys: ClassVar[tuple[tuple[str, str], ...]] = (("Space", "on/off"), ("←→", "off, on"))

    def shown(self, settings: Settings) -> str:
        return "on" if getattr(settings, self.name) else "off"

    def checked(self, settings: Settings) -> bool | None:
        return bool(getattr(settings, self.name))

    def step(self, settings: Settings, by: int) -> Settings:
        return settings.changed(**{self.name: by > 0})

    def press(self, settings: Settings) -> Settings | None:
        return settings.changed(**{self.name: not getattr(settings, self.name)})


class Refresh(Choice):
    """The interval: presets, or typed with its unit. One of its own stands between the presets."""

    keys: ClassVar[tuple[tuple[str, str], ...]] = (("←→", "change"), ("Enter", "type a value"))

    def __init__(self) -> None:
        super().__init__("refresh", "Every", (), "Between readings. Typed: 2s, 500ms; 250 alone is 250ms")

    def values(self, settings: Settings) -> list[tuple[Any, str]]:
        return [(value, units.interval(value)) for value in sorted({*REFRESH_PRESETS, settings.refresh})]

    def typing(self, settings: Settings) -> str | None:
        return units.interval(settings.refresh)

    def typed(self, settings: Settings, text: str) -> Settings:
        bare = text.strip()
        if bare.isascii() and bare.isdecimal():
            if int(bare) < 100:
                raise ValueError(
                    f"{bare}: the unit is required below 100, as in 2s; from 100 on a bare number is milliseconds"
                )
            text = f"{bare}ms"
        return settings.changed(refresh=check_refresh(text))

    def default(self) -> str:
        return units.interval(DEFAULTS.refresh)


class MetricOption(Option):
    """One of the quantities of the chart."""

    keys: ClassVar[tuple[tuple[str, str], ...]] = (("Space", "on/off"),)

    def __init__(self, metric: ChartMetric) -> None:
        super().__init__("chart_metrics", metric.label[0].upper() + metric.label[1:], "What the history chart shows")
        self._metric = metric.id

    def checked(self, settings: Settings) -> bool | None:
        return self._metric in settings.chart_metrics

    def step(self, settings: Settings, by: int) -> Settings:
        return self._set(settings, by > 0)

    def press(self, settings: Settings) -> Settings | None:
        return self._set(settings, not self.checked(settings))

    def _set(self, settings: Settings, on: bool) -> Settings:
        chosen = {*settings.chart_metrics} | {self._metric} if on else {*settings.chart_metrics} - {self._metric}
        if not chosen:
            raise ValueError("a chart shows something; switch the chart itself off under Panels")
        return settings.changed(chart_metrics=tuple(metric for metric in CHART_METRICS if metric in chosen))

    def default(self) -> str:
        return "on" if self.checked(DEFAULTS) else "off"


class ColumnOrder:
    """The columns in the order of the screen: those not shown keep their places while it is open."""

    def __init__(self, settings: Settings) -> None:
        self.ids: list[str] = []
        self.follow(settings)

    def follow(self, settings: Settings) -> None:
        """Take over the columns of *settings*, when they were changed otherwise (reset)."""
        if tuple(id_ for id_ in self.ids if id_ in settings.columns) != settings.columns:
            self.ids = [*settings.columns, *(id_ for id_ in COLUMNS if id_ not in settings.columns)]

    def move(self, id_: str, by: int) -> None:
        at = self.ids.index(id_)
        to = max(0, min(len(self.ids) - 1, at + by))
        self.ids.insert(to, self.ids.pop(at))


class TableColumn(Option):
    """A column of the process table: shown or not, and its place."""

    keys: ClassVar[tuple[tuple[str, str], ...]] = (("Space", "show/hide"), ("←→", "move the column"))

    def __init__(self, id_: str, order: ColumnOrder) -> None:
        column = COLUMNS[id_]
        super().__init__("columns", column.heading, column.help)
        self.id, self._order = id_, order

    def shown(self, settings: Settings) -> str:
        return COLUMNS[self.id].help

    def checked(self, settings: Settings) -> bool | None:
        return self.id in settings.columns

    def step(self, settings: Settings, by: int) -> Settings:
        self._order.move(self.id, by)
        return self._set(settings, {*settings.columns})

    def press(self, settings: Settings) -> Settings | None:
        return self._set(settings, {*settings.columns} ^ {self.id})

    def _set(self, settings: Settings, chosen: set[str]) -> Settings:
        if not chosen:
            raise ValueError("at least one column is needed; switch the table itself off under Panels")
        return settings.changed(columns=tuple(id_ for id_ in self._order.ids if id_ in chosen))

    def default(self) -> str:
        return "shown" if self.checked(DEFAULTS) else "not shown"


class WhichGpu(Option):
    """A GPU: shown or not, kept by its UUID."""

    keys: ClassVar[tuple[tuple[str, str], ...]] = (("Space", "show/hide"),)

    def __init__(self, gpu: Gpu, gpus: Sequence[Gpu]) -> None:
        super().__init__("gpus", f"{gpu.index}", f"{gpu.uuid} at {gpu.pci_bus_id or 'an unknown bus address'}")
        self._gpu, self._all = gpu, tuple(gpus)

    def shown(self, settings: Settings) -> str:
        return f"{self._gpu.name}  {self._gpu.uuid}"

    def checked(self, settings: Settings) -> bool | None:
        return not settings.gpus or self._gpu.uuid in self._chosen(settings)

    def step(self, settings: Settings, by: int) -> Settings:
        return self._set(settings, by > 0)

    def press(self, settings: Settings) -> Settings | None:
        return self._set(settings, not self.checked(settings))

    def _chosen(self, settings: Settings) -> set[str]:
        if not settings.gpus:
            return {gpu.uuid for gpu in self._all}
        return {gpu.uuid for name in settings.gpus if (gpu := find(self._all, name)) is not None}

    def _set(self, settings: Settings, on: bool) -> Settings:
        chosen = self._chosen(settings)
        chosen = chosen | {self._gpu.uuid} if on else chosen - {self._gpu.uuid}
        if not chosen:
            raise ValueError("at least one GPU is shown")
        elsewhere = tuple(name for name in settings.gpus if find(self._all, name) is None)
        uuids = tuple(gpu.uuid for gpu in self._all if gpu.uuid in chosen)
        everything = len(uuids) == len(self._all) and not elsewhere
        return settings.changed(gpus=() if everything else uuids + elsewhere)

    def default(self) -> str:
        return "all are shown"


class Level(Option):
    """Where a value turns to a warning, or to critical; both are off together."""

    keys: ClassVar[tuple[tuple[str, str], ...]] = (("←→", "change"), ("Enter", "type a value, or off"))

    def __init__(self, name: str, which: int, label: str, note: str = "") -> None:
        super().__init__(name, label, note)
        self._which = which
        self._celsius = name == "threshold_temperature"

    def _value(self, settings: Settings) -> float | None:
        pair: Thresholds | None = getattr(settings, self.name)
        return None if pair is None else pair[self._which]

    def shown(self, settings: Settings) -> str:
        value = self._value(settings)
        if value is None:
            return "off"
        return units.temperature(value, settings.temperature_unit) if self._celsius else f"{value:g} %"

    def step(self, settings: Settings, by: int) -> Settings:
        value = self._value(settings)
        if value is None:
            usual = getattr(DEFAULTS, self.name) or Thresholds(80.0, 95.0)
            return settings.changed(**{self.name: usual}) if by > 0 else settings
        return self._with(settings, round(value) + by)

    def typing(self, settings: Settings) -> str | None:
        return self.shown(settings)

    def typed(self, settings: Settings, text: str) -> Settings:
        wanted = text.strip().rstrip("%").strip().upper()
        if wanted in ("OFF", "NONE", "—", "-"):
            return settings.changed(**{self.name: None})
        unit = settings.temperature_unit
        if self._celsius and wanted[-1:] in ("C", "F"):
            unit, wanted = wanted[-1], wanted[:-1].rstrip("° ")
        try:
            value = float(wanted)
        except ValueError:
            example = "80 °C" if self._celsius else "80 %"
            raise ValueError(f"{text.strip()!r} is not a number such as {example}, nor off") from None
        return self._with(settings, round((value - 32) / 1.8, 1) if self._celsius and unit == "F" else value)

    def _with(self, settings: Settings, value: float) -> Settings:
        if value <= 0:
            return settings.changed(**{self.name: None})
        warning, critical = getattr(settings, self.name) or (value, value)
        pair = Thresholds(value, critical) if self._which == 0 else Thresholds(warning, value)
        if pair.warning > pair.critical:
            raise ValueError("the warning cannot come after the critical value")
        return settings.changed(**{self.name: pair})


class ResetAll(Option):
    """All settings back to their defaults; asks first."""

    keys: ClassVar[tuple[tuple[str, str], ...]] = (("Enter", "reset"),)

    def __init__(self) -> None:
        super().__init__("refresh", "Reset all settings to their defaults", "You are asked once more")

    def shown(self, settings: Settings) -> str:
        return ""

    def is_default(self, settings: Settings) -> bool:
        return True

    def reset(self, settings: Settings) -> Settings:
        return settings
