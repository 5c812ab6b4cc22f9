"""One thing that never answers: only whoever needs it waits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gputop.doctor import OK, WARN, host
from gputop.leaks.holders import probe
from gputop.leaks.holders.scanner import HolderScanner
from gputop.leaks.proc_investigator import ProcInvestigator
from gputop.model import HostFacts
from gputop.procfs import user_names
from gputop.procfs.devices import NvidiaDevices
from gputop.procfs.lookups import Lookups
from gputop.procfs.proc_host_reader import ProcHostReader
from gputop.procfs.user_names import UserNames
from tests.unit.children import child, key_of, wait_for


@pytest.fixture(autouse=True)
def psutil_goes_back_to_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", "/proc")  # details point it at their directory


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


def _real(proc: Path, pid: int) -> Path:
    """In *proc*, the pid as it is in /proc, but for files that a test puts in place of links."""
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    for name in os.listdir(f"/proc/{pid}"):
        (folder / name).symlink_to(f"/proc/{pid}/{name}")
    for name in ("stat", "meminfo", "devices"):
        if not (proc / name).exists():
            (proc / name).symlink_to(f"/proc/{name}")
    return folder


def _hangs(folder: Path, name: str) -> None:
    """Reading the file never ends: a pipe to which nobody writes."""
    (folder / name).unlink()
    os.mkfifo(folder / name)


def _let_go(folder: Path, name: str) -> None:
    for _ in range(20):
        try:
            os.close(os.open(folder / name, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return


# ------------------------------------------------------------------------- the mechanism


def test_calls_behind_one_that_hangs_are_made_all_the_same(gate: threading.Event) -> None:
    lookups = Lookups()
    calls = {0: gate.wait, **{n: lambda n=n: n for n in range(1, 64)}}
    began = time.monotonic()
    assert lookups.ask(calls, 0.3) == {n: n for n in range(1, 64)}
    assert time.monotonic() - began < 1.0
    assert lookups.waits(0) and not lookups.waits(1)


def test_a_call_that_hangs_is_made_once_waited_for_once_and_its_late_answer_is_given(gate: threading.Event) -> None:
    lookups, made = Lookups(), []

    def slow() -> str:
        made.append(1)
        gate.wait()
        return "late"

    assert lookups.one("slow", slow, "nothing yet", 0.05) == "nothing yet"
    began = time.monotonic()
    for _ in range(50):
        assert lookups.one("slow", slow, "nothing yet", 0.05) == "nothing yet"
    assert time.monotonic() - began < 0.5
    gate.set()
    wait_for(lambda: not lookups.waits("slow"))
    assert lookups.one("slow", slow, "nothing yet") == "late"
    assert made == [1]


def test_sixty_calls_that_hang_do_not_stop_the_sixty_first(gate: threading.Event) -> None:
    lookups = Lookups()
    lookups.ask({n: gate.wait for n in range(60)}, 0.01)
    found = {}
    wait_for(lambda: found.update(lookups.ask({"it": lambda: 7})) or "it" in found)
    assert found["it"] == 7


def test_threads_of_calls_that_answered_end() -> None:
    lookups = Lookups()
    lookups.ask({n: lambda: time.sleep(0.05) for n in range(8)}, 1.0)
    wait_for(lambda: lookups._threads == 1)


def test_no_more_threads_for_this_user_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert Lookups().ask({1: lambda: 1}, 0.01) == {}


# ------------------------------------------------------------------------ command lines


def test_a_command_line_that_never_answers_takes_nothing_from_the_others(tmp_path: Path) -> None:
    with child() as stuck, child() as well:
        folder = _real(tmp_path, stuck.pid)
        _real(tmp_path, well.pid)
        _hangs(folder, "cmdline")
        reader = ProcHostReader(tmp_path)
        try:
            began = time.monotonic()
            facts = reader.read([stuck.pid, well.pid])
            assert time.monotonic() - began < 0.5
            assert facts[well.pid].command and "python" in facts[well.pid].command
            assert facts[well.pid].waits_for == ()
            late = facts[stuck.pid]
            assert late.command == f"[{late.name}]"
            assert late.waits_for == (f"the command line (/proc/{stuck.pid}/cmdline)",)
            assert late.user and late.host_memory_bytes and late.start_time
            machine = reader.machine()
            assert machine.slow == late.waits_for and machine.memory_total_bytes
            began = time.monotonic()
            for _ in range(10):
                reader.read([stuck.pid, well.pid])
            assert time.monotonic() - began < 0.3
        finally:
            _let_go(folder, "cmdline")
            reader.close()


def test_a_late_command_line_is_shown_when_it_comes(tmp_path: Path) -> None:
    with child() as stuck:
        folder = _real(tmp_path, stuck.pid)
        _hangs(folder, "cmdline")
        now = [1000.0]
        reader = ProcHostReader(tmp_path, clock=lambda: now[0])
        assert reader.read([stuck.pid])[stuck.pid].waits_for
        wait_for(lambda: _written(folder / "cmdline", b"python\0late.py\0"))

        def command() -> str | None:
            now[0] += 1
            facts = reader.read([stuck.pid])[stuck.pid]
            return facts.command if not facts.waits_for else None

        wait_for(lambda: command() == "python late.py")
        assert reader.machine().slow == ()
        _let_go(folder, "cmdline")
        reader.close()


def _written(path: Path, text: bytes) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    os.write(descriptor, text)
    os.close(descriptor)
    return True


def test_a_zombie_keeps_its_command_line(tmp_path: Path) -> None:
    with child() as process:
        reader = ProcHostReader()
        command = reader.read([process.pid])[process.pid].command
        os.kill(process.pid, 9)
        wait_for(lambda: reader.read([process.pid])[process.pid].state == "Z")
        assert reader.read([process.pid])[process.pid].command == command
        reader.close()


# ----------------------------------------------------------------------- names of users


def test_a_name_service_that_takes_600_seconds_leaves_the_number(
    monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    def getpwuid(uid: int) -> None:
        gate.wait(600)
        raise KeyError(uid)

    monkeypatch.setattr(user_names.pwd, "getpwuid", getpwuid)
    with child() as process:
        reader = ProcHostReader()
        began = time.monotonic()
        facts = reader.read([process.pid])[process.pid]
        assert time.monotonic() - began < 0.5
        assert facts.user == str(os.geteuid()) and "python" in (facts.command or "")
        assert facts.waits_for == (f"the name of user {os.geteuid()}",)
        assert reader.machine().slow == facts.waits_for
        reader.close()


def test_a_name_that_takes_its_time_is_shown_when_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    real = user_names.pwd.getpwuid

    def getpwuid(uid: int) -> object:
        time.sleep(0.2)
        return real(uid)

    monkeypatch.setattr(user_names.pwd, "getpwuid", getpwuid)
    users = UserNames()
    assert users.name(0) == "0" and users.waits(0)
    wait_for(lambda: users.name(0) == "root")
    assert not users.waits(0)


def test_a_number_without_a_name_is_looked_up_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def getpwuid(uid: int) -> None:
        asked.append(uid)
        raise KeyError(uid)

    monkeypatch.setattr(user_names.pwd, "getpwuid", getpwuid)
    users = UserNames()
    assert [users.name(4711) for _ in range(3)] == ["4711"] * 3
    assert asked == [4711]
    monkeypatch.setattr(user_names, "AGAIN_SECONDS", 0.0)
    users.name(4711)
    assert asked == [4711, 4711]


NSS_SLOW = r"""
#include <nss.h>
#include <pwd.h>
#include <unistd.h>
enum nss_status _nss_slow_getpwuid_r(uid_t uid, struct passwd *pw, char *buffer, size_t size, int *error) {
    sleep(600);
    return NSS_STATUS_NOTFOUND;
}
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("cc") or not shutil.which("unshare"), reason="root, cc")
def test_an_nss_module_that_sleeps_and_a_command_line_bound_over_in_one_namespace(tmp_path: Path) -> None:
    (tmp_path / "slow.c").write_text(NSS_SLOW)
    library = tmp_path / "libnss_slow.so.2"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "slow.c"], check=True)
    (tmp_path / "nsswitch.conf").write_text("passwd: slow\n")
    os.mkfifo(tmp_path / "fifo")
    program = tmp_path / "look.py"
    program.write_text(
        textwrap.dedent("""
            import json, os, sys, time
            from gputop.procfs.proc_host_reader import ProcHostReader
            reader, pids = ProcHostReader(), [int(pid) for pid in sys.argv[1:]]
            began = time.monotonic()
            facts = reader.read(pids)
            took = time.monotonic() - began
            said = [[facts[p].user, facts[p].command, facts[p].waits_for] for p in pids]
            print(json.dumps([took, *said]), flush=True)
            os._exit(0)
        """)
    )
    with child() as stuck, child() as well:
        script = (
            f"mount --bind {tmp_path}/nsswitch.conf /etc/nsswitch.conf && "
            f"mount --bind {tmp_path}/fifo /proc/{stuck.pid}/cmdline && "
            f"exec {sys.executable} {program} {stuck.pid} {well.pid}"
        )
        environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script], env=environment, capture_output=True, text=True, timeout=60
        )
    if "mount" in done.stderr:
        pytest.skip(f"no mounts here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    took, of_stuck, of_well = json.loads(done.stdout)
    assert took < 1.0
    assert of_stuck[0] == of_well[0] == str(os.geteuid())
    assert of_stuck[1].startswith("[") and len(of_stuck[2]) == 2
    assert "python" in of_well[1] and of_well[2] == [f"the name of user {os.geteuid()}"]


# ------------------------------------------------------------------- details, owner, doctor


@pytest.mark.parametrize("name", ["environ", "cgroup", "cmdline"])
def test_details_come_without_the_file_that_hangs_and_say_which(tmp_path: Path, name: str) -> None:
    label = {"environ": "environment", "cgroup": "cgroup", "cmdline": "the command line"}[name]
    with child() as process:
        folder = _real(tmp_path, process.pid)
        _hangs(folder, name)
        reader = ProcHostReader(tmp_path)
        try:
            began = time.monotonic()
            details = reader.details(key_of(process.pid))
            assert time.monotonic() - began < 1.5
            assert details is not None and details.cwd
            assert any(f"no answer yet: {label}" in problem for problem in details.problems)
            assert not any("not permitted" in problem for problem in details.problems)
            assert (details.environment is None) == (name == "environ")
        finally:
            _let_go(folder, name)


@pytest.mark.parametrize("name", ["environ", "cgroup"])
def test_an_owner_is_told_without_the_file_that_hangs(tmp_path: Path, name: str) -> None:
    with child() as process:
        folder = _real(tmp_path, process.pid)
        _hangs(folder, name)
        reader = ProcHostReader(tmp_path)
        investigator = ProcInvestigator(reader.facts_of, tmp_path, lookups=reader.lookups)
        try:
            facts = HostFacts(key_of(process.pid), 0.0, uid=os.geteuid())
            began = time.monotonic()
            found = investigator.context(facts)
            assert time.monotonic() - began < 1.0
            assert found is not None and found.ancestors is not None
            assert found.owner.late == (f"its {'environment' if name == 'environ' else 'cgroup'}",)
        finally:
            _let_go(folder, name)


def test_a_command_line_that_hangs_keeps_its_environment_from_being_asked(tmp_path: Path) -> None:
    """Both are read under the lock that is taken."""
    with child() as process:
        folder = _real(tmp_path, process.pid)
        _hangs(folder, "cmdline")
        reader = ProcHostReader(tmp_path)
        investigator = ProcInvestigator(reader.facts_of, tmp_path, lookups=reader.lookups)
        facts = reader.read([process.pid])[process.pid]
        found = investigator.context(facts)
        assert found is not None and "memory may be locked" in found.owner.late[0]
        assert not reader.lookups.waits(("environment", facts.key))
        _let_go(folder, "cmdline")
        reader.close()


def test_doctor_says_whose_command_line_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LOOKUP_SECONDS", 0.1)
    with child() as process:
        folder = _real(tmp_path / "proc", process.pid)
        _hangs(folder, "cmdline")
        checks = list(host.slow_lookups(tmp_path))
        assert [check.status for check in checks] == [WARN, OK]
        assert str(process.pid) in checks[0].message
        _let_go(folder, "cmdline")


def test_doctor_says_that_the_name_service_hangs(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> None:
    monkeypatch.setattr(host, "LOOKUP_SECONDS", 0.1)
    monkeypatch.setattr(user_names.pwd, "getpwuid", lambda uid: gate.wait(60))
    (check,) = [check for check in host.slow_lookups() if check.topic == "user names"]
    assert check.status == WARN and "getent passwd" in check.fix


# ------------------------------------------------------------------------------- holders


def test_a_process_whose_files_hang_does_not_end_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A descriptor on a dead NFS server: looking at it never returns. The others are looked at, and it is named."""
    monkeypatch.setattr(probe, "LATE_SECONDS", 0.1)
    gate = threading.Event()
    real = probe.DescriptorScan.holds
    with child() as stuck, child("file = open('/dev/null')") as well:
        _real(tmp_path, stuck.pid)
        _real(tmp_path, well.pid)

        def holds(self: probe.DescriptorScan, root: str) -> bool:
            if root.endswith(f"/{stuck.pid}"):
                gate.wait(60)
            return real(self, root)

        monkeypatch.setattr(probe.DescriptorScan, "holds", holds)
        null = os.stat("/dev/null").st_rdev
        devices = NvidiaDevices(tmp_path, is_nvidia=lambda device: device == null)
        reader = ProcHostReader(tmp_path)
        scan = HolderScanner(reader.facts_of, tmp_path, devices).scan()
        gate.set()
        assert scan.late == (stuck.pid,) and not scan.complete and not scan.cut_short
        assert [holder.key.pid for holder in scan.holders] == [well.pid]
        assert f"no answer from pid {stuck.pid}" in scan.summary()
