"""Host facts: real processes, and where exact figures matter a /proc made of plain files."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gputop.model import HostFacts
from gputop.procfs.proc_host_reader import ProcHostReader
from gputop.procfs.stat import TICKS_PER_SECOND, parse_stat
from gputop.procfs.user_names import UserNames
from tests.unit.children import (
    DEAD_FIRST_THREAD,
    NOBODY,
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


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def reader() -> Iterator[ProcHostReader]:
    reader = ProcHostReader()
    yield reader
    reader.close()


class FakeProc:
    """A /proc of plain files, rewritten in place as the kernel's are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        (path / "stat").write_text("cpu  100 0 100 800 0 0 0 0 0 0\nbtime 1700000000\n")

    def process(self, pid: int, ticks: int = 0, start: int = 77, comm: bytes = b"train", rss: int = 10) -> None:
        directory = self.path / str(pid)
        directory.mkdir(exist_ok=True)
        fields = [0] * 50
        fields[11], fields[17], fields[19], fields[21] = ticks, 1, start, rss
        line = b"%d (%b) S " % (pid, comm) + " ".join(map(str, fields[1:])).encode() + b"\n"
        (directory / "stat").write_bytes(line)
        (directory / "status").write_text(f"Tgid:\t{pid}\n")
        if not (directory / "cmdline").exists():
            (directory / "cmdline").write_bytes(b"python\0train.py\0")


# ------------------------------------------------------------------------------- what is read


def test_facts_agree_with_psutil(reader: ProcHostReader) -> None:
    with child() as process:
        facts = reader.read([process.pid])[process.pid]
        other = psutil.Process(process.pid)
        assert facts.key == key_of(process.pid)
        assert facts.start_time == pytest.approx(other.create_time(), abs=1)
        assert facts.parent_pid == os.getpid()
        assert facts.user == other.username() and facts.uid == os.geteuid()
        assert facts.name == other.name()
        assert facts.command is not None and facts.command.startswith(f"{sys.executable} -c import sys")
        assert facts.threads == 1 and facts.group_id == os.getpgid(process.pid)
        assert facts.session_id == os.getsid(process.pid)
        assert facts.host_memory_bytes == pytest.approx(other.memory_info().rss, rel=0.2)
        assert facts.cpu_percent is None, "one look tells nothing about use"


@pytest.mark.parametrize("comm", [b"a) R 1 1", b"((", b"x\ny", b"\x1b[2J", b"\xff\xfe", "模型".encode(), b")))"])
def test_any_comm_is_parsed_and_cannot_reach_the_terminal(reader: ProcHostReader, comm: bytes) -> None:
    with child(f"open('/proc/self/comm', 'wb').write({comm!r})") as process:
        facts = reader.read([process.pid])[process.pid]
        assert facts.parent_pid == os.getpid() and facts.threads == 1
        assert facts.name and facts.name.isprintable() and "\x1b" not in facts.name
        if comm.startswith(b"a)"):
            assert facts.name == "a) R 1 1"


def test_a_hostile_command_line_is_one_clean_line(reader: ProcHostReader) -> None:
    hostile = b"\x1b]0;owned\x07\n\xff\xe2\x80\xae[red]x"
    with child("", hostile) as process:
        command = reader.read([process.pid])[process.pid].command
        assert command is not None and command.isprintable()
        assert command.endswith("\ufffd]0;owned\ufffd \ufffd\ufffd[red]x")


def test_a_kernel_thread_and_an_empty_command_line_show_the_name_in_brackets(reader: ProcHostReader) -> None:
    with child("import ctypes; ctypes.CDLL(None).prctl(15, b'nameless')") as process:
        assert reader.read([process.pid])[process.pid].command.startswith(sys.executable)  # type: ignore[union-attr]
    if Path("/proc/2/comm").exists() and not Path("/proc/2/cmdline").read_bytes():
        facts = reader.read([2])[2]
        assert facts.command == f"[{facts.name}]" and facts.host_memory_bytes == 0


def test_a_command_line_of_megabytes_is_cut(reader: ProcHostReader) -> None:
    with child("", *["x" * 1000] * 200) as process:
        command = reader.read([process.pid])[process.pid].command
        assert command is not None and len(command) <= 4096


def test_another_program_after_exec_shows_its_own_command_line(reader: ProcHostReader) -> None:
    code = "ready(); import os; os.read(0, 1); os.execv(sys.executable, [sys.executable, '-c', 'input()', 'second'])"
    with child(code) as process:
        first = reader.read([process.pid])[process.pid]
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        wait_for(lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes().endswith(b"second\0"), "exec")
        second = reader.read([process.pid])[process.pid]
        assert second.command is not None and second.command.endswith("second")
        assert second.key == first.key


def test_a_title_changed_without_exec_is_seen_later(tmp_path: Path) -> None:
    proc, clock = FakeProc(tmp_path / "proc"), Clock()
    proc.process(7)
    reader = ProcHostReader(proc.path, clock)
    assert reader.read([7])[7].command == "python train.py"
    (proc.path / "7/cmdline").write_bytes(b"vllm: engine 3" + b"\0" * 40 + b"  ")
    clock.now += 1
    assert reader.read([7])[7].command == "python train.py"
    clock.now += 10
    assert reader.read([7])[7].command == "vllm: engine 3"
    reader.close()


def test_a_user_without_a_name_is_a_number() -> None:
    assert UserNames().name(3_999_999_999) == "3999999999"
    assert UserNames().name(None) is None
    assert UserNames().name(0) == "root"


@root
def test_the_owner_of_an_undumpable_process_is_not_taken_for_root(reader: ProcHostReader) -> None:
    """Its files in /proc belong to root, the directory does not."""
    with child(f"import ctypes, os; os.setuid({NOBODY}); ctypes.CDLL(None).prctl(4, 0)") as process:
        assert os.stat(f"/proc/{process.pid}/stat").st_uid == 0
        assert reader.read([process.pid])[process.pid].uid == NOBODY


# ------------------------------------------------------------------------------------ CPU use


def test_cpu_use_is_right_for_a_pid_on_eight_gpus(reader: ProcHostReader) -> None:
    """nvtop shows 0 % on all but the first GPU (Syllo/nvtop#243)."""
    with child("ready()\nwhile True: pass") as process:
        before = reader.read([process.pid] * 8)[process.pid]
        wait_for(lambda: _cpu_seconds(process.pid) > (before.cpu_seconds or 0) + 0.2, "CPU use")
        facts = reader.read([process.pid] * 8)[process.pid]
        assert facts.cpu_percent is not None and facts.cpu_percent > 5
        again = reader.read([process.pid])[process.pid]
        assert again.cpu_percent is not None and again.cpu_percent > 5, "a second reader asks right after"


def _cpu_seconds(pid: int) -> float:
    return parse_stat(Path(f"/proc/{pid}/stat").read_bytes()).cpu_ticks / TICKS_PER_SECOND


def test_cpu_use_is_that_since_the_look_before(tmp_path: Path) -> None:
    proc, clock = FakeProc(tmp_path / "proc"), Clock()
    reader = ProcHostReader(proc.path, clock)

    def look(seconds: float, ticks: int) -> float | None:
        clock.now += seconds
        proc.process(7, ticks=ticks)
        return reader.read([7, 7])[7].cpu_percent

    assert look(0, 100) is None
    assert look(0.5, 150) == pytest.approx(100)
    assert look(0.5, 350) == pytest.approx(400)
    assert look(0.001, 351) == pytest.approx(400), "too short to tell"
    assert look(0.5, 350) is not None, "the kernel's counters may step back a tick"
    assert look(0.5, 351) == pytest.approx(2)
    for _ in range(20):
        assert look(1, 351) == 0
    assert look(0.5, 401) == pytest.approx(100), "a rest before does not dilute it"
    reader.close()


# ------------------------------------------------------------------------- fresh or remembered


def test_unchanged_facts_are_the_same_object(reader: ProcHostReader) -> None:
    with child() as process:
        reader.read([process.pid])
        for _ in range(100):  # until it has started: what it computes meanwhile is a change
            time.sleep(0.06)
            second = reader.read([process.pid])[process.pid]
            if second.cpu_percent == 0:
                break
        time.sleep(0.06)
        assert reader.read([process.pid])[process.pid] is second


def test_only_the_fresh_ones_are_read_and_what_is_not_asked_for_is_dropped(tmp_path: Path) -> None:
    proc, clock = FakeProc(tmp_path / "proc"), Clock()
    reader = ProcHostReader(proc.path, clock)
    for pid in (1, 2, 3):
        proc.process(pid, ticks=0)
    before = descriptors()
    first = reader.read([1, 2, 3], fresh=[])
    assert set(first) == {1, 2, 3}, "the first facts are read in any case"
    for pid in (1, 2, 3):
        proc.process(pid, ticks=50)
    clock.now += 1
    second = reader.read([1, 2, 3], fresh=[2])
    assert second[1] is first[1] and second[3] is first[3]
    assert second[2].cpu_seconds == 50 / TICKS_PER_SECOND
    reader.read([2])
    assert descriptors() == before + 1
    reader.close()
    assert descriptors() == before


# ------------------------------------------------------------------- gone, reused, odd states


def test_an_exited_process_is_gone(reader: ProcHostReader) -> None:
    with child() as process:
        pid = process.pid
        assert pid in reader.read([pid])
        assert reader.exists(pid) is True
    before = descriptors()
    assert reader.read([pid]) == {}
    assert reader.exists(pid) is False
    assert descriptors() == before - 1


def test_a_zombie_exists_and_keeps_its_command(reader: ProcHostReader) -> None:
    with child() as process:
        command = reader.read([process.pid])[process.pid].command
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: state_of(process.pid) == "Z", "the zombie")
        facts = reader.read([process.pid])[process.pid]
        assert (facts.state, facts.command) == ("Z", command)
        assert reader.exists(process.pid) is True
        stranger = ProcHostReader().read([process.pid])[process.pid]
        assert stranger.command == f"[{stranger.name}]"


def test_a_stopped_process_says_so(reader: ProcHostReader) -> None:
    with child() as process:
        os.kill(process.pid, signal.SIGSTOP)
        wait_for(lambda: state_of(process.pid) == "T", "the stop")
        assert reader.read([process.pid])[process.pid].state == "T"


def test_the_command_line_of_a_stuck_process_is_not_asked_for(reader: ProcHostReader) -> None:
    """The kernel reads it under a lock that a thread stuck in the driver may hold: gputop would hang as ps does."""
    with child(STUCK) as process:
        wait_for(lambda: state_of(process.pid) == "D", "state D")
        facts = reader.read([process.pid])[process.pid]
        assert facts.state == "D" and facts.command == f"[{facts.name}]"
        assert process.stdin is not None
        process.stdin.close()
        wait_for(lambda: state_of(process.pid) == "S", "the wakening")
        for known in reader._known.values():
            known.look_again_at = 0  # a second later
        assert reader.read([process.pid])[process.pid].command.startswith(sys.executable)  # type: ignore[union-attr]


def test_a_dead_first_thread_is_no_dead_process(reader: ProcHostReader) -> None:
    with child(DEAD_FIRST_THREAD) as process:
        wait_for(lambda: state_of(process.pid) == "Z", "the first thread's end")
        facts = reader.read([process.pid])[process.pid]
        assert facts.state == "Z" and facts.threads == 2


def test_the_number_of_a_thread_is_not_a_process(reader: ProcHostReader) -> None:
    """/proc/TID answers though it is not listed: a dead process's pid may come back as a thread of another one."""
    code = "import threading, time\nthreading.Thread(target=lambda: time.sleep(600)).start()"
    with child(code) as process:
        thread = next(int(task) for task in os.listdir(f"/proc/{process.pid}/task") if int(task) != process.pid)
        assert Path(f"/proc/{thread}/stat").exists()
        assert reader.read([thread]) == {}
        assert reader.exists(thread) is False


def test_a_reused_pid_is_another_process_with_nothing_left_of_the_first() -> None:
    answer = in_new_pid_namespace("""
import json, subprocess, sys, time
from gputop.procfs.proc_host_reader import ProcHostReader
reader = ProcHostReader()
first = subprocess.Popen(["sleep", "100"])
time.sleep(0.05)
one = reader.read([first.pid])[first.pid]
reader.read([first.pid])
first.kill(); first.wait()
gone = reader.exists(first.pid)
open("/proc/sys/kernel/ns_last_pid", "w").write(str(first.pid - 1))
second = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
time.sleep(0.05)
two = reader.read([first.pid])[first.pid]
second.kill()
print(json.dumps([first.pid == second.pid, one.key != two.key, one.command, two.command, two.cpu_percent,
                  gone, reader.machine().pids_are_host, len(reader.read([4000000]))]))
""")
    same_pid, other_key, one, two, cpu, gone, pids_are_host, absent = answer
    assert same_pid, "the test did not get the pid again"
    assert other_key
    assert one == "sleep 100" and two == f"{sys.executable} -c input()"
    assert cpu is None
    assert gone is None and pids_are_host is False, "in a namespace of its own, absent is not dead"
    assert absent == 0


@root
def test_another_users_process_is_alive_though_it_cannot_be_signalled() -> None:
    reader = ProcHostReader()
    with child() as process:
        pid = process.pid
        assert as_nobody(lambda: [reader.exists(pid), reader.read([pid])[pid].user]) == [True, "root"]
    reader.close()


@root
def test_a_process_hidden_by_hidepid_is_alive(tmp_path: Path) -> None:
    if tuple(map(int, os.uname().release.split(".")[:2])) < (5, 8):
        pytest.skip("before Linux 5.8 hidepid would change the /proc of the whole machine")
    proc = tempfile.mkdtemp()  # where nobody may look, unlike tmp_path
    mount = subprocess.run(["mount", "-t", "proc", "-o", "hidepid=2", "proc", proc], capture_output=True)
    try:
        if mount.returncode:
            pytest.skip("no proc with hidepid can be mounted here")
        with child() as process:
            pid = process.pid
            reader = ProcHostReader(Path(proc))
            alive, own = as_nobody(lambda: [reader.exists(pid), list(reader.read([pid, os.getpid()])) == [os.getpid()]])
            assert alive and own, "it exists, without facts"
            reader.close()
    finally:
        if not mount.returncode:
            subprocess.run(["umount", proc], check=True)
        os.rmdir(proc)


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 2**32 - 1, 2**40])
def test_an_impossible_pid_does_not_exist(reader: ProcHostReader, pid: int) -> None:
    assert reader.exists(pid) is False
    assert reader.read([pid]) == {}


# ------------------------------------------------------------------------------- descriptors


def test_descriptors_do_not_leak_over_1000_reads_of_changing_pids(reader: ProcHostReader) -> None:
    before = descriptors()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for turn in range(1000):
            if turn % 10 == 0:
                processes.append(subprocess.Popen(["sleep", "99"]))
            if len(processes) > 10:
                processes[0].kill()
                if turn % 20 == 0:
                    processes.pop(0).wait()
            pids = [process.pid for process in processes]
            reader.read(pids if turn % 3 else pids[turn % 5 :], None if turn % 2 else set(pids[:2]))
            assert descriptors() <= before + len(pids)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    reader.read([])
    assert descriptors() == before


def test_with_few_descriptors_allowed_all_processes_are_read(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path / "proc")
    pids = range(10, 210)
    for pid in pids:
        proc.process(pid)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = descriptors()
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        reader = ProcHostReader(proc.path)
        for _ in range(3):
            assert set(reader.read(pids)) == set(pids)
        assert descriptors() - before <= 128 // 4
        # Somebody else in this process takes all that is left.
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        proc_more = [*pids, 500]
        os.close(taken.pop())
        proc.process(500)
        taken.append(os.open("/dev/null", os.O_RDONLY))
        try:
            assert set(reader.read(proc_more)) == set(proc_more)
        finally:
            for descriptor in taken:
                os.close(descriptor)
            reader.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert descriptors() == before


def test_what_it_costs_is_told(tmp_path: Path) -> None:
    """Prints; asserts no time. See them with pytest -rP."""
    proc, clock = FakeProc(tmp_path / "proc"), Clock()
    for pid in range(1, 5001):
        proc.process(pid)
    reader = ProcHostReader(proc.path, clock)

    def cost(pids: range, fresh: range | None) -> float:
        clock.now += 1
        start = time.perf_counter()
        assert len(reader.read(pids, fresh)) == len(pids)
        return (time.perf_counter() - start) * 1e3

    for count in (64, 512, 5000):
        pids = range(1, count + 1)
        first, again, none = cost(pids, None), cost(pids, None), cost(pids, range(0))
        print(f"{count} pids: first look {first:.2f} ms, fresh {again:.2f} ms, remembered {none:.2f} ms")
    reader.close()


# ---------------------------------------------------------------------------------- machine


def test_the_host_line_agrees_with_psutil(reader: ProcHostReader) -> None:
    host = reader.machine()
    assert host.name == os.uname().nodename.split(".")[0]
    assert host.cpu_percent is None
    memory = psutil.virtual_memory()
    assert host.memory_total_bytes == memory.total
    assert host.memory_used_bytes == pytest.approx(memory.total - memory.available, abs=256 << 20)
    assert host.load is not None and len(host.load) == 3
    assert host.cpu_count == psutil.cpu_count()
    time.sleep(0.1)
    second = reader.machine().cpu_percent
    assert second is not None and 0 <= second <= 100
    assert reader.machine().cpu_percent == second, "not read again within a second"


def test_a_machine_without_a_readable_proc_has_no_figures(tmp_path: Path) -> None:
    reader = ProcHostReader(tmp_path)
    host = reader.machine()
    assert (host.cpu_percent, host.memory_total_bytes, host.memory_used_bytes) == (None, None, None)
    assert host.pids_are_host is None
    assert reader.read([os.getpid()]) == {}
    assert reader.exists(os.getpid()) is True


def test_facts_survive_json(reader: ProcHostReader) -> None:
    facts = reader.read([os.getpid()])[os.getpid()]
    assert isinstance(facts, HostFacts)
    json.dumps([facts.command, facts.start_time, facts.cpu_percent, facts.state])


def test_psutil_is_not_imported_for_the_table() -> None:
    code = "import sys, os; from gputop.procfs.proc_host_reader import ProcHostReader as R; r = R(); "
    code += "r.read([os.getpid()]); "
    subprocess.run([sys.executable, "-c", code + "r.machine(); assert 'psutil' not in sys.modules"], check=True)
