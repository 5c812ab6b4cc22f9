"""What a user can set. A :class:`Settings` is valid by construction.

The command line wins over the file (:mod:`gputop.settings_file`), the file over the defaults.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gputop import units
from gputop.model import clean_text
from gputop.model.chart_metrics import CHART_METRICS, USUAL_METRICS
from gputop.model.columns import COLUMNS

REFRESH_MIN: Final = 0.1
REFRESH_MAX: Final = 60.0
REFRESH_PRESETS: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)

#: What the process table can be grouped by.
GROUPS: Final = ("none", "user", "job", "container", "gpu")
#: Seconds a history chart can span.
CHART_WINDOWS: Final = (60, 300, 600, 1800, 3600)


class Thresholds(NamedTuple):
    """Where a value turns to a warning and where to critical, in the unit of the value."""

    warning: float
    critical: float


class AlarmRule(NamedTuple):
    """One ``[[alarms]]`` table of the file; ``hold`` is its key ``for``. alarms/ reads the conditions."""

    when: str
    hold: str = ""
    clear: str = ""
    run: str = ""
    run_cleared: str = ""
    webhook: str = ""
    log: str = ""


# ------------------------------------------------------------------------- checks
# A check takes a value as Python or TOML has it and gives the value to keep, or raises ValueError in words.

Check = Callable[[Any], Any]


def check_refresh(value: Any) -> float:
    """Seconds, to the millisecond, of a number of seconds or of text with a unit."""
    seconds = units.parse_interval(value) if isinstance(value, str) else _number(value)
    if not REFRESH_MIN <= seconds <= REFRESH_MAX:
        raise ValueError(f"{units.interval(seconds)} is not between 100 ms and 60 s")
    return round(seconds, 3)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{_shown(value)} is not a number")
    return float(value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is neither true nor false")
    return value


def _switch_or_auto(value: Any) -> bool | None:
    return None if value is None or value == "auto" else _switch(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{_shown(value)} is not a name")
    return clean_text(value.strip(), 200)


def _maybe_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not text")
    return clean_text(value.strip(), 4096)


def _one_of(*allowed: Any) -> Check:
    def check(value: Any) -> Any:
        if isinstance(value, bool) or value not in allowed:
            raise ValueError(f"{_shown(value)} is none of {', '.join(map(str, allowed))}")
        return value

    return check


def _some_of(*allowed: str) -> Check:
    """At least one of *allowed*, in the order given, each once."""

    def check(value: Any) -> tuple[str, ...]:
        names = _list(value)
        unknown = [name for name in names if name not in allowed]
        if unknown:
            raise ValueError(f"{', '.join(map(_shown, unknown))}: unknown; there are {', '.join(allowed)}")
        if not names:
            raise ValueError("at least one is needed")
        return tuple(dict.fromkeys(names))

    return check


def _gpu_names(value: Any) -> tuple[str, ...]:
    names = [str(name) if isinstance(name, int) and not isinstance(name, bool) else name for name in _list(value)]
    return tuple(dict.fromkeys(_text(name) for name in names))


def _names(value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_text(name) for name in _list(value)))


def _whole(least: int, most: int) -> Check:
    def check(value: Any) -> int:
        number = _number(value)
        if number != int(number) or not least <= number <= most:
            raise ValueError(f"{_shown(value)} is not a whole number from {least} to {most}")
        return int(number)

    return check


def _alarms(value: Any) -> tuple[AlarmRule, ...]:
    rules = []
    for number, table in enumerate(_list(value), 1):
        if isinstance(table, AlarmRule):
            rules.append(table)
            continue
        if not isinstance(table, dict) or not isinstance(table.get("when"), str):
            raise ValueError(f'number {number} has no condition: when = "memory > 90%"')
        keys = {"hold" if key == "for" else key: text for key, text in table.items()}
        unknown = [key for key in table if key == "hold" or (key != "for" and key not in AlarmRule._fields)]
        if unknown:
            raise ValueError(f"number {number}: {clean_text(', '.join(unknown), 60)}: no such key")
        wrong = [key for key, text in table.items() if not isinstance(text, str)]
        if wrong:
            raise ValueError(f"number {number}: {', '.join(wrong)} is not text")
        rules.append(AlarmRule(**keys))
    return tuple(rules)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{_shown(value)} is not a list")
    return list(value)


def _thresholds(most: float) -> Check:
    def check(value: Any) -> Thresholds | None:
        """Two numbers; an empty list (or None) for no warnings."""
        if value is None or not (numbers := [_number(entry) for entry in _list(value)]):
            return None
        if len(numbers) != 2 or not 0 < numbers[0] <= numbers[1] <= most:
            raise ValueError(f"{_shown(value)} is not [warning, critical], rising and at most {most:g}")
        return Thresholds(*numbers)

    return check


def _shown(value: Any) -> str:
    return clean_text(repr(value), 60)


def _setting(default: Any, check: Check, help_: str) -> Any:
    return field(default=default, metadata={"check": check, "help": help_})


# ----------------------------------------------------------------------- settings


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings; the fields are the keys of the file. Raises ValueError in words for a wrong value."""

    refresh: float = _setting(1.0, check_refresh, "time between readings, 100 ms to 60 s (seconds)")
    gpus: tuple[str, ...] = _setting((), _gpu_names, "GPUs to show: indices, UUIDs or PCI ids; empty: all")

    temperature_unit: str = _setting("C", _one_of("C", "F"), "C or F")
    memory_unit: str = _setting("GiB", _one_of("GiB", "MiB"), "GiB (adapts) or MiB (always)")

    theme: str = _setting("gputop", _text, "colour theme")  # which ones there are, only the screen knows
    color: bool = _setting(True, _switch, "colours; NO_COLOR and --no-color win")
    ascii: bool | None = _setting(None, _switch_or_auto, "draw with ASCII only; unset: as the locale allows")
    mouse: bool = _setting(True, _switch, "mouse; without it the terminal's own selection works")

    show_host: bool = _setting(True, _switch, "host line: CPU, memory, load")
    show_gpus: bool = _setting(True, _switch, "GPU panels")
    show_sparklines: bool = _setting(True, _switch, "sparklines in the GPU panels")
    show_chart: bool = _setting(True, _switch, "history charts, where there is room")
    show_processes: bool = _setting(True, _switch, "process table")

    columns: tuple[str, ...] = _setting(
        ("gpu", "pid", "user", "gpu_mem", "sm", "cpu", "host_mem", "age", "where", "command"),
        _some_of(*COLUMNS),
        "columns of the process table, left to right",
    )
    sort: str = _setting("gpu_mem", _one_of(*COLUMNS), "column the process table is sorted by")
    sort_reverse: bool = _setting(False, _switch, "reverse the column's natural order (largest first)")
    tree: bool = _setting(False, _switch, "processes as a tree")
    group: str = _setting("none", _one_of(*GROUPS), "what processes are grouped by, with subtotals")
    exited_minutes: int = _setting(5, _whole(0, 1440), "minutes for which processes that exited stay in the table")
    kill_grace: int = _setting(10, _whole(1, 600), "seconds between SIGTERM and SIGKILL where both are chosen")

    chart_metrics: tuple[str, ...] = _setting(
        USUAL_METRICS, _some_of(*CHART_METRICS), "what the charts show, as many as there is room for"
    )
    chart_window: int = _setting(600, _one_of(*CHART_WINDOWS), "seconds the history charts span")
    chart_newest_right: bool = _setting(True, _switch, "newest values at the right end of the history charts")

    threshold_memory: Thresholds | None = _setting(
        Thresholds(90.0, 97.0), _thresholds(100), "memory used, percent: [warning, critical]; [] for none"
    )
    threshold_utilization: Thresholds | None = _setting(
        None, _thresholds(100), "utilization, percent: a busy GPU is a good GPU, so none"
    )
    threshold_temperature: Thresholds | None = _setting(
        Thresholds(75.0, 87.0), _thresholds(150), "temperature, °C, where the driver gives no threshold of its own"
    )
    threshold_power: Thresholds | None = _setting(
        None, _thresholds(200), "power, percent of the limit: a card at its cap works as it should, so none"
    )

    alarms: tuple[AlarmRule, ...] = _setting((), _alarms, "alarms: [[alarms]] tables, see Alarms")

    leak_idle_minutes: int = _setting(30, _whole(1, 10_080), "minutes without GPU use after which a process is IDLE")
    leak_stopped_minutes: int = _setting(10, _whole(1, 10_080), "minutes a stopped process may hold GPU memory")
    leak_gap_mib: int = _setting(512, _whole(64, 1 << 20), "MiB that no process accounts for before it is shown")
    leak_ignore: tuple[str, ...] = _setting(
        (), _names, "never suspected: words of command lines, or user:NAME; empty: nobody"
    )

    fleet_prometheus: str = _setting("", _maybe_text, "gputop fleet: URL of Prometheus or another engine of its API")
    fleet_token_file: str = _setting("", _maybe_text, "gputop fleet: file with the engine's bearer token")
    fleet_user: str = _setting("", _maybe_text, "gputop fleet: user of the engine")
    fleet_password_file: str = _setting("", _maybe_text, "gputop fleet: file with that user's password")
    fleet_ca_file: str = _setting("", _maybe_text, "gputop fleet: certificates of the engine's own CA (PEM)")
    fleet_cert_file: str = _setting("", _maybe_text, "gputop fleet: client certificate for the engine (PEM)")
    fleet_key_file: str = _setting("", _maybe_text, "gputop fleet: its key, where that is not in the same file (PEM)")
    fleet_headers: tuple[str, ...] = _setting(
        (), _names, 'gputop fleet: further headers for the engine, such as "X-Scope-OrgID: team"'
    )

    def __post_init__(self) -> None:
        for setting in dataclasses.fields(self):
            try:
                checked = setting.metadata["check"](getattr(self, setting.name))
            except ValueError as error:
                raise ValueError(f"{setting.name}: {error}") from None
            object.__setattr__(self, setting.name, checked)

    def changed(self, **changes: Any) -> Settings:
        """These settings with *changes*. Raises ValueError in words for a wrong value or name."""
        unknown = [name for name in changes if name not in NAMES]
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: no such setting")
        return dataclasses.replace(self, **changes)


_FIELDS: Final = {setting.name: setting for setting in dataclasses.fields(Settings)}
NAMES: Final = tuple(_FIELDS)
DEFAULTS: Final = Settings()


def check(name: str, value: Any) -> Any:
    """*value* as the setting called *name* keeps it. Raises ValueError in words."""
    return _FIELDS[name].metadata["check"](value)


def help_of(name: str) -> str:
    """One line on what the setting is."""
    return str(_FIELDS[name].metadata["help"])
