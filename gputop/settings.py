"""What a user can set, and the file it is kept in.

The command line wins over the file, the file over the defaults. A :class:`Settings` is valid by construction. Only what
a user changed is written, key by key: what the command line asked for is not saved by accident, and two dashboards, or
an older and a newer version, do not undo each other's keys.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import math
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from gputop import locations, units
from gputop.model import clean_text

REFRESH_MIN: Final = 0.1
REFRESH_MAX: Final = 60.0
REFRESH_PRESETS: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)

#: Columns of the process table.
COLUMNS: Final = (
    "gpu",
    "pid",
    "user",
    "type",
    "gpu_mem",
    "gpu_mem_percent",
    "sm",
    "mem_bw",
    "enc",
    "dec",
    "cpu",
    "host_mem",
    "threads",
    "state",
    "age",
    "command",
)
#: What a history chart can show.
METRICS: Final = (
    "memory",
    "utilization",
    "sm_active",
    "memory_bandwidth",
    "power",
    "temperature",
    "pcie_rx",
    "pcie_tx",
    "clock_sm",
)
#: Seconds a history chart can span.
CHART_WINDOWS: Final = (60, 300, 600, 1800, 3600)

_LOCK_WAIT: Final = 2.0  # seconds; a lock that is not had by then is done without


class SettingsError(Exception):
    """The settings could not be saved; ``str()`` says why, and what to do."""


class Thresholds(NamedTuple):
    """Where a value turns to a warning and where to critical, in the unit of the value."""

    warning: float
    critical: float


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
    show_chart: bool = _setting(True, _switch, "history chart, where there is room")
    show_processes: bool = _setting(True, _switch, "process table")

    columns: tuple[str, ...] = _setting(
        ("gpu", "pid", "user", "gpu_mem", "sm", "cpu", "host_mem", "age", "command"),
        _some_of(*COLUMNS),
        "columns of the process table, left to right",
    )
    sort: str = _setting("gpu_mem", _one_of(*COLUMNS), "column the process table is sorted by")
    sort_reverse: bool = _setting(False, _switch, "turn the column's natural order (largest first) about")
    tree: bool = _setting(False, _switch, "processes as a tree")

    chart_metrics: tuple[str, ...] = _setting(("memory",), _some_of(*METRICS), "what the history chart shows")
    chart_window: int = _setting(600, _one_of(*CHART_WINDOWS), "seconds the history chart spans")
    chart_newest_right: bool = _setting(True, _switch, "newest values at the right end of the history chart")

    threshold_memory: Thresholds | None = _setting(
        Thresholds(80.0, 95.0), _thresholds(100), "memory used, percent: [warning, critical]; [] for none"
    )
    threshold_utilization: Thresholds | None = _setting(
        None, _thresholds(100), "utilization, percent: a busy GPU is a good GPU, so none"
    )
    threshold_temperature: Thresholds | None = _setting(
        Thresholds(75.0, 87.0), _thresholds(150), "temperature, °C, where the driver gives no threshold of its own"
    )
    threshold_power: Thresholds | None = _setting(
        Thresholds(95.0, 100.0), _thresholds(200), "power, percent of the limit"
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


NAMES: Final = tuple(setting.name for setting in dataclasses.fields(Settings))
DEFAULTS: Final = Settings()


def help_of(name: str) -> str:
    """One line on what the setting is."""
    return str(_FIELDS[name].metadata["help"])


_FIELDS: Final = {setting.name: setting for setting in dataclasses.fields(Settings)}


# --------------------------------------------------------------------------- file


def load(path: Path) -> tuple[Settings, tuple[str, ...]]:
    """The settings in *path*, and what is wrong with them, in words. What is wrong or missing has its default."""
    try:
        stored = _read(path)
    except SettingsError as error:
        return DEFAULTS, (f"{error}; the defaults are used",)
    where = locations.short(path)
    good: dict[str, Any] = {}
    problems: list[str] = []
    unknown = [name for name in stored if name not in NAMES]
    if unknown:
        names = clean_text(", ".join(unknown), 200)
        problems.append(f"{where}: {names}: no such setting; left as it is" + _did_you_mean(unknown))
    for name in NAMES:
        if name not in stored:
            continue
        value, later = _split(name, stored[name])
        if later:
            names = clean_text(", ".join(later), 200)
            problems.append(f"{where}: {name}: {names}: unknown to this version; left out")
        if later and not value:
            continue
        try:
            good[name] = _FIELDS[name].metadata["check"](value)
        except ValueError as error:
            problems.append(f"{where}: {name}: {error}; {_shown_default(name)} is used")
    return Settings(**good), tuple(problems)


def save(settings: Settings, path: Path, names: Collection[str] = NAMES, overwrite: bool = False) -> str:
    """Write the settings called *names* (those the user changed) to *path*; all else in the file stays as it is.

    The file is replaced at once or not at all; it keeps its mode (a new one has 0600), and a symbolic link stays one. A
    setting that has its default is left out. Returns what was done, in words, naming the file.

    Raises SettingsError when the file cannot be written, or when what is there now is not TOML; with *overwrite* such
    a file is moved aside first.
    """
    target = Path(os.path.realpath(path))
    words = f"Saved in {locations.short(path)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent):
            try:
                stored = _read(path)
            except SettingsError as error:
                if not (overwrite and target.is_file()):
                    raise SettingsError(f"Not saved: {error}") from None
                aside = target.with_name(f"{target.name}.broken-{time.strftime('%Y%m%dT%H%M%S')}")
                os.rename(target, aside)
                words += f"; the broken file is now {aside.name}"
                stored = {}
            for name in names:
                later = _split(name, stored.pop(name, None))[1]
                if (value := getattr(settings, name)) != getattr(DEFAULTS, name) or later:
                    stored[name] = _stored(name, value, later)
            _replace(target, stored)
    except OSError as error:
        raise SettingsError(f"Not saved: {locations.short(path)}: {error.strerror or error}") from None
    return words


def _read(path: Path) -> dict[str, Any]:
    """What the file holds; nothing where there is none. Raises SettingsError in words."""
    where = locations.short(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISCHR(mode) and os.path.realpath(path) == os.devnull:
            return {}
        if not stat.S_ISREG(mode):  # a FIFO would hang, a device might never end
            raise SettingsError(f"{where} is not a regular file")
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"{where} cannot be read: {error.strerror or error}") from None
    import tomllib  # late: most people have no settings file

    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise SettingsError(f"{where} is not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise SettingsError(f"{where} is not TOML: {clean_text(str(error), 200)}") from None


def _split(name: str, value: Any) -> tuple[Any, list[str]]:
    """A stored list of columns or metrics without, and only, those that a later version must have written."""
    allowed = {"columns": COLUMNS, "chart_metrics": METRICS}.get(name)
    if allowed is None or not isinstance(value, list):
        return value, []
    later = [entry for entry in value if isinstance(entry, str) and entry not in allowed]
    return [entry for entry in value if entry not in later], later


def _stored(name: str, value: Any, later: list[str]) -> Any:
    """*value* as TOML has it."""
    if name == "refresh":
        return f"{value * 1000:.0f}ms" if value < 1 else f"{value:g}s"
    if isinstance(value, tuple):
        return [*value, *later]
    return [] if value is None else value  # thresholds; no other setting can be None and not have its default


def _shown_default(name: str) -> str:
    default = getattr(DEFAULTS, name)
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _did_you_mean(unknown: list[str]) -> str:
    import difflib

    close = [match for name in unknown for match in difflib.get_close_matches(name, NAMES, 1)]
    return f" (is {', '.join(close)} meant?)" if close else ""


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, so that two dashboards that save at once keep each other's keys. Without it where it
    cannot be had (NFS locks no directories): then the last one wins."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + _LOCK_WAIT
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.01)
                    continue
            except OSError:
                pass  # as said above
            break
        yield
    finally:
        os.close(descriptor)


def _replace(target: Path, content: Mapping[str, Any]) -> None:
    """Write *content* to a new file beside *target*, then put it in its place."""
    import tempfile

    import tomli_w

    try:
        old = target.stat()
    except FileNotFoundError:
        old = None
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise SettingsError(f"Not saved: {locations.short(target)} is not a regular file")
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # has mode 0600
    try:
        with open(descriptor, "wb") as file:
            tomli_w.dump(content, file)
            file.flush()
            if old is not None:
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
                if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                    with contextlib.suppress(PermissionError):  # only root can keep another's file another's
                        os.fchown(descriptor, old.st_uid, old.st_gid)
            os.fsync(descriptor)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    with contextlib.suppress(OSError):  # some file systems cannot; the content is safe all the same
        directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
