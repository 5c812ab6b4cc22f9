"""The file the settings are kept in: TOML, with the fields of :class:`~gputop.settings.Settings` as keys.

Only what a user changed is written, key by key: what the command line asked for is not saved by accident, and two
dashboards, or an older and a newer version, do not undo each other's keys. Comments, order and layout survive.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gputop import locations, units
from gputop.model import clean_text
from gputop.model.chart_metrics import CHART_METRICS
from gputop.model.columns import COLUMNS
from gputop.settings import DEFAULTS, NAMES, Settings, check

_LOCK_WAIT: Final = 2.0  # seconds; a lock that is not had by then is done without
_MAX_BYTES: Final = 1024**2  # thousands of times what all settings take


class SettingsError(Exception):
    """The settings could not be saved; ``str()`` says why, and what to do."""


def load(path: Path | None) -> tuple[Settings, tuple[str, ...]]:
    """The settings in *path* (None: there can be no file), and what is wrong with them, in words. What is
    wrong or missing has its default."""
    if path is None:
        return DEFAULTS, ()
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
            good[name] = check(name, value)
        except ValueError as error:
            problems.append(f"{where}: {name}: {error}; {_shown_default(name)} is used")
    return Settings(**good), tuple(problems)


def save(settings: Settings, path: Path | None, names: Collection[str] = NAMES, overwrite: bool = False) -> str:
    """Write the settings called *names* (those the user changed) to *path*; all else in the file stays as it is.

    The file is replaced at once or not at all; it keeps its mode (a new one has 0600), and a symbolic link stays one. A
    setting that has its default is left out. Returns what was done, in words, naming the file.

    Raises SettingsError when the file cannot be written or has no place (*path* is None), or when what is there now is
    not TOML; with *overwrite* such a file is moved aside first.
    """
    if path is None:
        raise SettingsError(f"Not saved: {locations.NoHome('XDG_CONFIG_HOME').strerror}")
    target = Path(os.path.realpath(path))
    message = f"Saved in {locations.short(path)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent):
            try:
                text = _text(path)
                stored = _parsed(path, text)
            except SettingsError as error:
                if not (overwrite and target.is_file()):
                    raise SettingsError(f"Not saved: {error}") from None
                aside = target.with_name(f"{target.name}.broken-{time.strftime('%Y%m%dT%H%M%S')}")
                os.rename(target, aside)
                message += f"; the broken file is now {aside.name}"
                text, stored = "", {}
            changes: dict[str, Any] = {}  # None: the key goes
            for name in names:
                before = stored.get(name)
                later = _split(name, before)[1]
                changed = (value := getattr(settings, name)) != getattr(DEFAULTS, name) or later
                after = _stored(name, value, later) if changed else None
                if after != before:
                    changes[name] = after
            _replace(target, _edited(text, changes))
    except OSError as error:
        raise SettingsError(f"Not saved: {locations.short(path)}: {error.strerror or error}") from None
    return message


def _read(path: Path) -> dict[str, Any]:
    """What the file holds; nothing where there is none. Raises SettingsError."""
    return _parsed(path, _text(path))


def _text(path: Path) -> str:
    """The file as it is; nothing where there is none. Raises SettingsError."""
    where = locations.short(path)
    try:
        facts = path.stat()
        mode = facts.st_mode
        if stat.S_ISCHR(mode) and os.path.realpath(path) == os.devnull:
            return ""
        if not stat.S_ISREG(mode):  # a FIFO would hang, a device might never end
            raise SettingsError(f"{where} is not a regular file")
        if facts.st_size > _MAX_BYTES:
            raise SettingsError(f"{where} is larger than {_MAX_BYTES // 1024} KiB: not a settings file")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise SettingsError(f"{where} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{where} is not UTF-8") from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    if not text:
        return {}
    import tomllib  # late: most people have no settings file

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise SettingsError(f"{locations.short(path)} is not TOML: {clean_text(str(error), 200)}") from None


def _edited(text: str, changes: Mapping[str, Any]) -> str:
    """*text* with these keys set, or taken out where None; everything else in it stays to the letter."""
    import tomlkit

    document = tomlkit.parse(text)
    for name, value in changes.items():
        if value is None:
            document.remove(name)
        else:
            document[name] = value
    return document.as_string()


def _split(name: str, value: Any) -> tuple[Any, list[str]]:
    """A stored list of columns or metrics without, and only, those that a later version must have written."""
    allowed = {"columns": COLUMNS, "chart_metrics": CHART_METRICS}.get(name)
    if allowed is None or not isinstance(value, list):
        return value, []
    later = [entry for entry in value if isinstance(entry, str) and entry not in allowed]
    return [entry for entry in value if entry not in later], later


def _stored(name: str, value: Any, later: list[str]) -> Any:
    """*value* as TOML has it."""
    if name == "refresh":
        return units.interval(value).replace(" ", "")
    if name == "alarms":
        return [
            {"for" if key == "hold" else key: text for key, text in rule._asdict().items() if text} for rule in value
        ]
    if isinstance(value, tuple):
        return [*value, *later]
    return [] if value is None else value  # thresholds; no other setting can be None and not have its default


def _shown_default(name: str) -> str:
    default = _stored(name, getattr(DEFAULTS, name), [])
    return (", ".join(map(str, default)) or "none") if isinstance(default, list) else str(default)


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


def _replace(target: Path, content: str) -> None:
    """Write *content* to a new file beside *target*, then put it in its place."""
    import tempfile

    try:
        old = target.stat()
    except FileNotFoundError:
        old = None
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise SettingsError(f"Not saved: {locations.short(target)} is not a regular file")
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # has mode 0600
    try:
        with open(descriptor, "wb") as file:
            file.write(content.encode())
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
