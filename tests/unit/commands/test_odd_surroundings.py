"""Odd accounts, full disks, closed pipes, no more threads, faults of ours: a sentence, and never a verdict's status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

NO_PASSWD_ENTRY = """
import pwd
def nobody(uid): raise KeyError(f"getpwuid(): uid not found: {uid}")
pwd.getpwuid = nobody
"""

FEW_THREADS = """
import threading
begin, left = threading._start_new_thread, [int(sys.argv.pop(1))]
def start(*arguments):
    if left[0] <= 0: raise RuntimeError("can't start new thread")
    left[0] -= 1
    return begin(*arguments)
threading._start_new_thread = start
"""

FAULT = """
import gputop.commands.shared.machine as machine
def fail(*_, **__): raise LookupError("a bug \\x1b[31m")
machine.machine_of = fail
"""

#: What gives a verdict by its exit status, and the rest.
COMMANDS = {
    "once": ("--once", "--demo"),
    "json": ("--once", "--json", "--demo"),
    "leaks": ("leaks", "--demo"),
    "why": ("why", "--demo"),
    "watch": ("watch", "--once", "--demo", "--when", "memory>1%"),
    "serve": ("serve", "--demo", "--listen", "127.0.0.1:0"),
    "doctor": ("doctor",),
}


def gputop(
    *arguments: str, before: str = "", env: dict[str, str] | None = None, **options: object
) -> subprocess.CompletedProcess[str]:
    code = f"import sys\n{before}\nfrom gputop.cli import main; sys.exit(main())"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "HOME", "PYTHON"))}
    given: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-c", code, *arguments],
        env={**inherited, "PYTHONPATH": str(ROOT), **(env or {})},
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        **given,
    )


# ------------------------------------------------------------------------------------ no home directory


@pytest.mark.parametrize(
    ("name", "home", "statuses"),
    [("once", None, {0}), ("once", "", {0}), ("json", None, {0}), ("leaks", "", {1}), ("why", None, {0}),
     ("watch", None, {1}), ("watch", "", {1}), ("doctor", None, {0, 1}), ("doctor", "", {0, 1})],
)  # fmt: skip
def test_a_uid_without_a_home_directory_is_no_traceback(
    name: str, home: str | None, statuses: set[int], tmp_path: Path
) -> None:
    """As OpenShift runs containers: any uid, not in the password database."""
    env = {} if home is None else {"HOME": home}
    done = gputop(*COMMANDS[name], before=NO_PASSWD_ENTRY, env=env, cwd=tmp_path)
    assert done.returncode in statuses and done.stderr == ""
    assert os.listdir(tmp_path) == [], "it wrote to the current directory"
    if name == "doctor":
        assert "no home directory (HOME is not set" in done.stdout and "XDG_CONFIG_HOME" in done.stdout


def test_settings_that_have_no_place_are_used_and_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    from gputop import locations, settings_file
    from gputop.settings import DEFAULTS

    monkeypatch.setattr(locations, "home", lambda: None)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    with pytest.raises(locations.NoHome):
        locations.settings_file()
    assert settings_file.load(None) == (DEFAULTS, ())
    with pytest.raises(settings_file.SettingsError, match=r"Not saved: no home directory .*: set HOME or XDG_CONFIG"):
        settings_file.save(DEFAULTS, None)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/somewhere")
    assert locations.settings_file() == Path("/somewhere/gputop/config.toml")


def test_a_log_in_a_home_directory_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    done = gputop(*COMMANDS["watch"], "--log", "~/x.csv", before=NO_PASSWD_ENTRY, cwd=tmp_path)
    assert done.returncode == 2 and "~ stands for no directory here" in done.stderr and os.listdir(tmp_path) == []


# ------------------------------------------------------------------------------------ faults, and no threads


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "doctor"])
def test_a_fault_of_ours_ends_with_nobodys_verdict(name: str, tmp_path: Path) -> None:
    before = f"from gputop.commands import once, {name if name not in ('once', 'json') else 'once'} as command\n{FAULT}"
    before += "once.machine_of = command.machine_of = fail\n"
    done = gputop(*COMMANDS[name], before=before, env={"HOME": str(tmp_path)})
    assert done.returncode == 70 and "Traceback" not in done.stderr and "\x1b" not in done.stderr
    assert "LookupError" in done.stderr and "crash.log" in done.stderr and len(done.stderr.splitlines()) == 1
    assert "Traceback" in (tmp_path / ".local/state/gputop/crash.log").read_text()


def test_a_fault_of_ours_without_a_home_directory_is_told_all_the_same() -> None:
    before = f"{NO_PASSWD_ENTRY}{FAULT}from gputop.commands import leaks\nleaks.machine_of = fail\n"
    done = gputop(*COMMANDS["leaks"], before=before)
    assert done.returncode == 70 and "LookupError" in done.stderr and "Traceback" not in done.stderr
    assert "the details could not be written: no home directory" in done.stderr


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "doctor"])
def test_no_more_threads_are_a_sentence_and_a_status_of_their_own(name: str, threads: int, tmp_path: Path) -> None:
    done = gputop(str(threads), *COMMANDS[name], before=FEW_THREADS, env={"HOME": str(tmp_path)})
    assert done.returncode == 71, done.stderr
    assert "no more threads may be started" in done.stderr and "ulimit" in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / ".local").exists(), "it is no fault to report"


# ------------------------------------------------------------------------------------ output that cannot be written

TEXTS = [("--help",), ("leaks", "--help"), ("--version",), ("--demo=help",), COMMANDS["once"], COMMANDS["leaks"]]


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", TEXTS, ids=" ".join)
def test_a_full_device_is_a_sentence(arguments: tuple[str, ...], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = gputop(*arguments, stdout=full, env={"PYTHONUNBUFFERED": unbuffered, "HOME": "/"})
    assert done.returncode == 74
    assert done.stderr == "gputop: stdout cannot be written: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", TEXTS, ids=" ".join)
def test_a_closed_pipe_is_quiet(arguments: tuple[str, ...], unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = gputop(*arguments, stdout=writer, env={"PYTHONUNBUFFERED": unbuffered, "HOME": "/"})
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", [("--bogus",), ("leaks", "--bogus"), ("--once", "--demo", "--gpus", "77")])
def test_errors_that_cannot_be_told_keep_their_status(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        assert gputop(*arguments, stderr=full).returncode == 2
