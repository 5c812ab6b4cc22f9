"""Signals to real processes: the right one gets it, or nobody; and the words say which."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path

import pytest

from gputop.model import ProcessKey
from gputop.procfs.devices import NvidiaDevices
from gputop.procfs.stat import read_stat
from gputop.signals import pidfd as pidfds
from gputop.signals.names import SIGNALS, parse_signal, signal_name
from gputop.signals.protocol import Outcome, Result, Target
from gputop.signals.sender import ProcHandle, ProcSignals
from tests.unit.children import (
    DEAD_FIRST_THREAD,
    STUCK,
    as_nobody,
    child,
    descriptors,
    in_new_pid_namespace,
    key_of,
    root,
    state_of,
    wait_for,
)

FULL = os.makedev(1, 7)  # /dev/full stands for a GPU: it can be opened anywhere, and nobody else does


class NoDriver(NvidiaDevices):
    """A host without NVIDIA's driver, wherever these tests run."""

    def present(self) -> bool:
        return False


@pytest.fixture
def signals() -> ProcSignals:
    return ProcSignals(devices=NoDriver())


@pytest.fixture(params=["python", "by number", "none", "half"])
def any_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """The ways to get at pidfds, and kernels without; True where there are some."""
    if request.param == "by number":  # as with uv's Pythons
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        monkeypatch.delattr(signal, "pidfd_send_signal", raising=False)

    def refuse(*arguments: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    if request.param == "none":  # Linux before 5.3
        monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    elif request.param == "half":  # sandboxes that implement Linux themselves
        monkeypatch.setattr(signal, "pidfd_send_signal", refuse, raising=False)
    return request.param in ("python", "by number")


def held(signals: ProcSignals, pid: int) -> ProcHandle:
    hold = signals.open(Target(key_of(pid)))
    assert isinstance(hold, ProcHandle), hold
    return hold


def refused(signals: ProcSignals, key: ProcessKey, user: str | None = None) -> Result:
    before = descriptors()
    result = signals.open(Target(key, user=user))
    assert isinstance(result, Result)
    assert descriptors() == before, "the descriptor is left open"
    return result


# ------------------------------------------------------------------------------------- sent


def test_a_signal_is_sent_and_the_exit_seen(signals: ProcSignals, any_kernel: bool) -> None:
    with child() as process:
        hold = held(signals, process.pid)
        assert hold.guarded is any_kernel
        assert not hold.exited()
        wait_for(lambda: hold.state() == "S", "its sleep")
        result = hold.send(signal.SIGTERM)
        assert result.outcome is Outcome.SENT and result.guarded is any_kernel
        assert result.message.startswith("SIGTERM sent") and ("no pidfd" in result.message) is not any_kernel
        wait_for(hold.exited, "the exit")
        again = hold.send(signal.SIGKILL)
        assert again.outcome is Outcome.ALREADY_GONE
        assert again.message == f"already exited; its parent {os.getpid()} has not reaped it yet"
        assert process.wait() == -signal.SIGTERM
        assert hold.exited() and hold.state() is None
        assert hold.send(signal.SIGKILL).outcome is Outcome.ALREADY_GONE
        hold.close()
        hold.close()


def test_the_signal_asked_for_is_the_one_that_arrives(signals: ProcSignals, any_kernel: bool) -> None:
    """nvtop's dialog sends another one than typed from 16 on: it counts rows."""
    code = "import signal\nready()\nprint(signal.sigwait(signal.valid_signals()), flush=True)"
    for number in (signal.SIGSTKFLT, signal.SIGTSTP, signal.SIGSYS, signal.SIGRTMIN + 3):
        with child(
            "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n" + code
        ) as process:
            hold = held(signals, process.pid)
            assert hold.send(number).outcome is Outcome.SENT
            assert process.stdout is not None
            assert int(process.stdout.readline()) == number
            hold.close()


def test_an_impossible_signal_fails_in_words(signals: ProcSignals, any_kernel: bool) -> None:
    with child() as process:
        hold = held(signals, process.pid)
        result = hold.send(99)
        assert (result.outcome, result.message) == (Outcome.FAILED, "Invalid argument")
        assert process.poll() is None
        hold.close()


# ----------------------------------------------------------------------- sent, but without effect


def test_sigterm_to_a_stopped_process_says_that_it_stays_pending(signals: ProcSignals) -> None:
    with child() as process:
        os.kill(process.pid, signal.SIGSTOP)
        wait_for(lambda: state_of(process.pid) == "T", "the stop")
        hold = held(signals, process.pid)
        assert hold.state() == "T"
        result = hold.send(signal.SIGTERM)
        assert result.outcome is Outcome.SENT and "stopped" in result.message and "SIGCONT" in result.message
        assert not hold.exited()
        assert hold.send(signal.SIGCONT).message == "SIGCONT sent"
        assert process.wait() == -signal.SIGTERM
        hold.close()


def test_a_signal_that_the_process_ignores_says_so(signals: ProcSignals) -> None:
    with child("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)") as process:
        hold = held(signals, process.pid)
        assert hold.send(signal.SIGTERM).message == "SIGTERM sent: the process ignores SIGTERM"
        assert hold.send(signal.SIGKILL).message == "SIGKILL sent"
        hold.close()


def test_a_stuck_process_says_so(signals: ProcSignals) -> None:
    with child(STUCK) as process:
        wait_for(lambda: state_of(process.pid) == "D", "state D")
        hold = held(signals, process.pid)
        assert "stuck in the kernel (state D)" in hold.send(signal.SIGTERM).message
        hold.close()


@root
def test_the_first_process_of_a_container_does_not_get_what_it_does_not_handle(signals: ProcSignals) -> None:
    """`docker run image python train.py`: SIGTERM from the host is thrown away by the kernel."""
    import subprocess

    outer = subprocess.Popen(["unshare", "-pf", "--kill-child", "sleep", "600"], stderr=subprocess.DEVNULL)
    try:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        wait_for(lambda: outer.poll() is not None or children.read_text().strip(), "the container")
        if outer.poll() is not None:
            pytest.skip("no PID namespace can be made here")
        pid = int(children.read_text())
        wait_for(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "exec")
        hold = held(signals, pid)
        assert "init of a container" in hold.send(signal.SIGTERM).message
        assert not hold.exited()
        assert hold.send(signal.SIGKILL).message == "SIGKILL sent"
        wait_for(hold.exited, "the exit")
        hold.close()
    finally:
        outer.kill()
        outer.wait()


def test_a_dead_first_thread_does_not_hide_that_the_process_lives(signals: ProcSignals, any_kernel: bool) -> None:
    with child(DEAD_FIRST_THREAD) as process:
        wait_for(lambda: state_of(process.pid) == "Z", "the first thread's end")
        hold = held(signals, process.pid)
        assert not hold.exited()
        assert hold.send(signal.SIGKILL).outcome is Outcome.SENT
        wait_for(hold.exited, "the exit")
        hold.close()


# --------------------------------------------------------------------------------- nothing sent


def test_a_process_that_started_at_another_time_gets_nothing(signals: ProcSignals, any_kernel: bool) -> None:
    with child() as process:
        pid, start = key_of(process.pid)
        assert start is not None
        result = refused(signals, ProcessKey(pid, start - 1))
        assert result.outcome is Outcome.PID_REUSED
        assert "was reused" in result.message and "nothing sent" in result.message
        assert process.poll() is None


REUSE = """
import json, os, signal, subprocess, sys, time
from gputop.model import ProcessKey
from gputop.signals.protocol import Result, Target
from gputop.signals import pidfd
from gputop.procfs.devices import NvidiaDevices
from gputop.procfs.stat import read_stat
from gputop.signals.sender import ProcSignals
if {unguarded}:
    def none(pid, flags=0): raise OSError(38, "Function not implemented")
    os.pidfd_open = none
class NoDriver(NvidiaDevices):
    def present(self): return False
signals = ProcSignals(devices=NoDriver())
first = subprocess.Popen(["sleep", "100"])
target = Target(ProcessKey(first.pid, read_stat(f"/proc/{{first.pid}}/stat").start_ticks))
hold = signals.open(target)
time.sleep(0.05)
first.kill(); first.wait()
gone = signals.open(target)
open("/proc/sys/kernel/ns_last_pid", "w").write(str(first.pid - 1))
second = subprocess.Popen(["sleep", "100"])
sent = hold.send(signal.SIGKILL)
again = signals.open(target)
exited = hold.exited()
time.sleep(0.1)
print(json.dumps([first.pid == second.pid, gone.outcome.name, sent.outcome.name, again.outcome.name, exited,
                  second.poll(), sent.guarded]))
second.kill()
"""


@pytest.mark.parametrize("unguarded", [False, True])
def test_after_the_pid_was_reused_the_new_process_gets_nothing(unguarded: bool) -> None:
    same_pid, gone, sent, again, exited, second, guarded = in_new_pid_namespace(REUSE.format(unguarded=unguarded))
    assert same_pid, "the test did not get the pid again"
    assert gone == "ALREADY_GONE"
    assert sent == ("PID_REUSED" if unguarded else "ALREADY_GONE")
    assert exited
    assert again == "PID_REUSED"
    assert second is None, "the second process was hit"
    assert guarded is not unguarded


def test_a_dead_process_is_already_gone(signals: ProcSignals, any_kernel: bool) -> None:
    with child() as process:
        key = key_of(process.pid)
    assert refused(signals, key).outcome is Outcome.ALREADY_GONE


def test_a_zombie_waits_for_its_parent(signals: ProcSignals, any_kernel: bool) -> None:
    with child() as process:
        key = key_of(process.pid)
        process.send_signal(signal.SIGKILL)
        wait_for(lambda: state_of(process.pid) == "Z", "the zombie")
        result = refused(signals, key)
        assert result.outcome is Outcome.ALREADY_GONE
        assert result.message == f"already exited; its parent {os.getpid()} has not reaped it yet"


def test_a_row_without_a_start_time_gets_nothing(signals: ProcSignals) -> None:
    with child() as process:
        pid = process.pid
        result = refused(signals, ProcessKey(pid, None))
        assert result.outcome is Outcome.REFUSED and "nothing sent" in result.message
        assert process.poll() is None
    assert refused(signals, ProcessKey(pid, None)).outcome is Outcome.ALREADY_GONE


def test_gputop_and_what_it_runs_under_are_refused(signals: ProcSignals) -> None:
    itself = refused(signals, key_of(os.getpid()))
    assert itself.outcome is Outcome.REFUSED and "gputop itself" in itself.message
    pid = os.getppid()
    while pid > 1:
        assert refused(signals, key_of(pid)).outcome is Outcome.REFUSED, pid
        stat = read_stat(f"/proc/{pid}/stat")
        pid = stat.parent_pid if stat is not None else 0


@pytest.mark.parametrize("pid", [-1, 0, 1, 2**22 + 1, 2**32 - 1])
def test_pid_1_and_impossible_pids_are_refused(signals: ProcSignals, pid: int) -> None:
    """kill(-1) would hit everything, kill(0) the own group."""
    assert refused(signals, ProcessKey(pid, 14)).outcome is Outcome.REFUSED


def test_threads_of_the_kernel_are_refused(signals: ProcSignals) -> None:
    stat = read_stat("/proc/2/stat")
    if stat is None or not stat.is_kernel_thread:
        pytest.skip("no kernel threads to be seen here (a container)")
    result = refused(signals, key_of(2))
    assert result.outcome is Outcome.REFUSED and "kernel" in result.message


def test_the_number_of_a_thread_is_no_target(signals: ProcSignals, any_kernel: bool) -> None:
    """kill() of a thread's number hits its whole process."""
    code = "import threading, time\nthreading.Thread(target=lambda: time.sleep(600)).start()"
    with child(code) as process:
        thread = next(int(task) for task in os.listdir(f"/proc/{process.pid}/task") if int(task) != process.pid)
        result = refused(signals, key_of(thread))
        assert result.outcome is Outcome.PID_REUSED and "thread" in result.message
        assert process.poll() is None


@root
def test_another_users_process_names_the_user(signals: ProcSignals, any_kernel: bool) -> None:
    with child() as process:
        key = key_of(process.pid)

        def try_it() -> list[str]:
            result = signals.open(Target(key, user="root"))
            assert isinstance(result, Result)
            return [result.outcome.name, result.message]

        outcome, words = as_nobody(try_it)
        assert outcome == "NOT_PERMITTED"
        assert words == "owned by root: run gputop as that user, or with sudo"
        assert process.poll() is None


@root
def test_the_owner_lost_after_the_hold_is_told_when_sending(signals: ProcSignals) -> None:
    """The process may change its user between the dialog and the key."""
    with child() as process:
        pid = process.pid
        hold = held(signals, pid)
        result = as_nobody(lambda: hold.send(signal.SIGTERM).outcome.name)
        assert result == "NOT_PERMITTED"
        assert process.poll() is None
        hold.close()


# ------------------------------------------------------------------------------- not the owner


@pytest.fixture
def with_driver() -> ProcSignals:
    return ProcSignals(devices=NvidiaDevices(is_nvidia=lambda device: device == FULL))


def test_a_process_without_the_device_is_not_the_owner(with_driver: ProcSignals, any_kernel: bool) -> None:
    with child("kept = open('/dev/null')") as process:
        result = refused(with_driver, key_of(process.pid))
        assert result.outcome is Outcome.NOT_OWNER and "nothing sent" in result.message
        assert process.poll() is None


def test_a_process_with_the_device_gets_the_signal(with_driver: ProcSignals) -> None:
    with child("kept = open('/dev/full')") as process:
        hold = held(with_driver, process.pid)
        assert hold.send(signal.SIGTERM).outcome is Outcome.SENT
        assert process.wait() == -signal.SIGTERM
        hold.close()


def test_a_dead_first_thread_is_still_the_owner(with_driver: ProcSignals) -> None:
    """/proc/PID/fd is empty then, /proc/PID/task/*/fd is not."""
    with child("kept = open('/dev/full')\n" + DEAD_FIRST_THREAD) as process:
        wait_for(lambda: state_of(process.pid) == "Z", "the first thread's end")
        held(with_driver, process.pid).close()


@root
def test_where_its_files_may_not_be_read_the_process_is_given_the_benefit() -> None:
    """An undumpable process of one's own: kill is allowed, looking into it is not."""
    devices = NvidiaDevices(is_nvidia=lambda device: device == FULL)
    code = "import ctypes, os; os.setgid(65534); os.setuid(65534); ctypes.CDLL(None).prctl(4, 0)"
    with child(code) as process:
        key = key_of(process.pid)

        def try_it() -> bool:
            return isinstance(ProcSignals(devices=devices).open(Target(key)), ProcHandle)

        assert as_nobody(try_it)


def test_the_driver_is_told_by_its_device_numbers(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").write_text("a file of that name is no driver")
    (tmp_path / "devices").write_text("Character devices:\n  1 mem\n243 nvme\n\nBlock devices:\n195 nvidia\n")
    assert not NvidiaDevices(tmp_path, tmp_path / "nvidiactl").present()
    (tmp_path / "devices").write_text("Character devices:\n  1 mem\n195 nvidia-frontend\n510 nvidia-uvm\n")
    assert NvidiaDevices(tmp_path, tmp_path / "nvidiactl").present()


@root
def test_the_control_device_alone_tells_the_driver(tmp_path: Path) -> None:
    control = tmp_path / "nvidiactl"
    try:
        os.mknod(control, 0o20600, os.makedev(195, 255))
    except PermissionError:
        pytest.skip("no device nodes can be made here")
    assert NvidiaDevices(tmp_path, control).present()


# --------------------------------------------------------------------------- pidfds and names


def test_both_ways_to_pidfds_answer_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(os, "pidfd_open"):
        pytest.skip("this Python has only one")
    with child() as process:
        answers = []
        for _ in range(2):
            pidfd = pidfds.open_pidfd(process.pid)
            pidfds.send_signal(pidfd, 0)
            with pytest.raises(OSError, match="Invalid argument"):
                pidfds.send_signal(pidfd, 99)
            answers.append((pidfds.has_exited(pidfd), os.get_inheritable(pidfd)))
            os.close(pidfd)
            with pytest.raises(ProcessLookupError):
                pidfds.open_pidfd(2**22)
            monkeypatch.delattr(os, "pidfd_open", raising=False)
            monkeypatch.delattr(signal, "pidfd_send_signal", raising=False)
        assert answers == [(False, False)] * 2


def test_holds_do_not_leak(signals: ProcSignals) -> None:
    before = descriptors()
    with child() as process:
        inside = descriptors()
        for _ in range(100):
            held(signals, process.pid).close()
        assert descriptors() == inside
    assert descriptors() == before


def test_the_signals_offered_have_their_real_numbers_and_a_meaning() -> None:
    assert [entry.name for entry in SIGNALS[:3]] == ["SIGTERM", "SIGKILL", "SIGINT"]
    assert {entry.number for entry in SIGNALS} == {int(number) for number in signal.Signals}
    for entry in SIGNALS:
        assert getattr(signal, entry.name) == entry.number
        assert entry.meaning and entry.meaning.isprintable()
        assert parse_signal(str(entry.number)) == parse_signal(entry.name) == parse_signal(entry.name[3:].lower())
        assert signal_name(entry.number) == entry.name


def test_signals_are_read_as_people_write_them() -> None:
    assert [parse_signal(text) for text in ("9", " kill ", "SigInt", "rtmin+3")] == [9, 9, 2, signal.SIGRTMIN + 3]
    assert signal_name(signal.SIGRTMIN + 3) == "SIGRTMIN+3"
    for wrong in ("", "0", "-9", "99", "32", "SIGSIGTERM", "RTMIN+99", "٩", "TERMINATE", "1e1"):
        with pytest.raises(ValueError, match="is not a signal"):
            parse_signal(wrong)


def test_taking_hold_is_quick_enough_for_a_key(with_driver: ProcSignals) -> None:
    """Prints; asserts no time."""
    with child("kept = [open('/dev/zero') for _ in range(500)] + [open('/dev/full')]") as process:
        key, start = key_of(process.pid), time.perf_counter()
        hold = with_driver.open(Target(key))
        print(f"hold of a process with 500 files: {(time.perf_counter() - start) * 1e3:.1f} ms")
        assert isinstance(hold, ProcHandle)
        hold.close()
