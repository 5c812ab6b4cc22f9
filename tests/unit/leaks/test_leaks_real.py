"""What memory does when processes die, and what gputop says of it: the simulated driver
lists the pids, the processes are real."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.leaks.report import LeakReport
from gputop.model import LeakVerdict, ProcessKey, Verdict
from gputop.outputs.json_lines import as_dict
from gputop.outputs.table import render
from gputop.signals.protocol import Target
from gputop.signals.sender import ProcSignals
from gputop.signals.termination_state import TerminationState
from gputop.signals.terminations import Terminations
from tests.driver import SimulatedDriver
from tests.unit.children import DEAD_FIRST_THREAD, NOBODY, child, in_new_pid_namespace, key_of, root, state_of, wait_for
from tests.unit.leaks.leak_box import CONTEXT, MIB, USER, Box, end, running

DAY = 86_400.0


@pytest.fixture
def box(driver: SimulatedDriver) -> Iterator[Box]:
    made = Box(driver)
    yield made
    made.close()


def the_one(report: LeakReport) -> LeakVerdict:
    (verdict,) = report.verdicts
    return verdict


def words(verdict: LeakVerdict) -> str:
    return " | ".join(f"{finding.rule} {finding.evidence}" for finding in verdict.findings)


# ------------------------------------------------------------ the rows of the table


def test_a_killed_parents_memory_is_kept_by_its_child_and_freed_with_it(box: Box) -> None:
    with box.parent(1, start_new_session=True) as (parent, (heir,)):
        box.lists(parent.pid)
        assert box.look().verdicts == ()
        parent.kill()
        parent.wait()
        assert box.listed() == {parent.pid}, "the driver goes on listing the dead pid"
        assert box.used() >= CONTEXT
        dead_pids = box.look().dead_pids
        assert [dead_pid.pid for dead_pid in dead_pids] == [parent.pid] and dead_pids[0].memory_bytes == CONTEXT
        verdict = the_one(box.look(later=6))
        assert verdict.verdict is Verdict.LEAK and verdict.rules == ("R1", "R2")
        assert verdict.targets == (key_of(heir),), "the child is the one to end"
        assert verdict.process == ProcessKey(parent.pid, None)
        assert verdict.command is not None and "gpu = os.open" in verdict.command, "its last known command"
        assert f"R2 {heir} holds /dev/nvidia0 (fd" in words(verdict)
        assert f"process group {parent.pid}" in words(verdict)
        os.kill(heir, signal.SIGKILL)
        box.until(lambda snapshot: not snapshot.processes, "the memory to come back")
        assert box.used() < CONTEXT
        assert box.look().verdicts == box.look().dead_pids == ()


def test_the_workers_of_a_living_loader_are_nobodys_leak(box: Box) -> None:
    with box.parent(4, start_new_session=True) as (parent, workers):
        box.lists(parent.pid)
        report = box.look(scan=True)
        assert report.verdicts == report.dead_pids == ()
        assert report.scan is not None
        assert {holder.key.pid for holder in report.scan.holders} == {parent.pid, *workers}
        assert box.look(later=DAY).those(Verdict.LEAK, Verdict.SUSPECT, Verdict.STUCK) == ()


def test_all_four_workers_of_a_killed_loader_are_named(box: Box) -> None:
    with box.parent(4, start_new_session=True) as (parent, workers):
        box.lists(parent.pid)
        box.look()
        parent.kill()
        parent.wait()
        box.look()
        verdict = the_one(box.look(later=6))
        assert {key.pid for key in verdict.targets} == set(workers)


def test_workers_in_their_launchers_group_are_known_by_whose_children_they_were(box: Box) -> None:
    """As under torchrun: neither process group nor session carry the dead rank's pid."""
    with box.parent(2) as (parent, workers):
        box.lists(parent.pid)
        box.look()
        parent.kill()
        parent.wait()
        box.look()
        verdict = the_one(box.look(later=6))
        assert {key.pid for key in verdict.targets} == set(workers)
        assert f"child of {parent.pid} until" in words(verdict)
        assert "not proven" not in words(verdict)


def test_workers_of_a_parent_that_died_before_gputop_came_are_likely_holders(box: Box) -> None:
    with box.parent(2) as (parent, workers):
        parent.kill()
        parent.wait()
        box.lists(parent.pid)
        box.look()
        verdict = the_one(box.look(later=6))
        assert {key.pid for key in verdict.targets} == set(workers)
        assert "probably, not proven" in words(verdict) and "was already dead at" in words(verdict)


def test_a_living_processs_workers_are_not_taken_for_a_dead_pids_holders(box: Box) -> None:
    with box.parent(2, start_new_session=True) as (dead, heirs), box.parent(2) as (alive, workers):
        box.lists(dead.pid)
        box.lists(alive.pid, while_alive=True)
        box.look()
        dead.kill()
        dead.wait()
        box.look()
        verdict = the_one(box.look(later=6))
        assert {key.pid for key in verdict.targets} == set(heirs)
        assert not {alive.pid, *workers} & {hold.holder.key.pid for hold in box.look().dead_pids[0].holders}


def test_a_stopped_process_keeps_its_memory_and_sigterm_stays_pending(box: Box) -> None:
    with child(USER, box.device) as process:
        box.lists(process.pid)
        box.look()
        os.kill(process.pid, signal.SIGSTOP)
        wait_for(lambda: state_of(process.pid) == "T", "it to stop")
        os.kill(process.pid, signal.SIGTERM)
        assert box.look().verdicts == ()
        verdict = the_one(box.look(later=11 * 60))
        assert verdict.verdict is Verdict.SUSPECT and verdict.rules[0] == "R6"
        assert "SIGTERM stays pending until SIGCONT" in words(verdict)
        assert box.listed() == {process.pid}, "the signal is pending"
        os.kill(process.pid, signal.SIGKILL)
        box.until(lambda snapshot: not snapshot.processes, "the memory to come back")
        assert box.look().verdicts == ()


def test_a_killed_process_that_nobody_reaps_has_given_its_memory_back(box: Box) -> None:
    with child(USER, box.device) as process:
        box.lists(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: state_of(process.pid) == "Z", "a zombie")
        box.until(lambda snapshot: not snapshot.processes, "the memory to come back")
        assert box.look(later=DAY).verdicts == ()


def test_a_zombies_memory_is_kept_by_its_child_which_is_the_one_to_end(box: Box) -> None:
    """It opened the device, forked, and exited, and its parent never reaps it: the driver lists a pid that the host
    has, and that cannot be killed (mxnet#4242, pytorch#1223)."""
    with box.parent(1) as (parent, (heir,)):
        box.lists(parent.pid)
        assert box.look().verdicts == ()
        os.kill(parent.pid, signal.SIGKILL)
        wait_for(lambda: state_of(parent.pid) == "Z", "a zombie")
        snapshot = box.snapshot()
        assert [(process.pid, process.exists) for process in snapshot.processes] == [(parent.pid, False)]
        gpu = as_dict(snapshot)["gpus"][0]
        assert (gpu["memory_dead_bytes"], gpu["memory_living_bytes"]) == (CONTEXT, 0)
        assert f"not reaped by its parent {os.getpid()}" in render(snapshot)
        box.look()
        verdict = the_one(box.look(later=6, scan=True))
        assert verdict.verdict is Verdict.LEAK and verdict.targets == (key_of(heir),)
        assert f"it is a zombie: it has exited, and its parent {os.getpid()} has not reaped it; it died at" in words(
            verdict
        )
        assert verdict.command is not None and "gpu = os.open" in verdict.command
        os.kill(heir, signal.SIGKILL)
        box.until(lambda snapshot: not snapshot.processes, "the memory to come back")
        assert box.look().verdicts == ()


def test_a_zombie_that_was_one_when_gputop_came_was_not_seen_to_die(box: Box) -> None:
    with box.parent(1) as (parent, (heir,)):
        os.kill(parent.pid, signal.SIGKILL)
        wait_for(lambda: state_of(parent.pid) == "Z", "a zombie")
        box.lists(parent.pid)
        box.look()
        verdict = the_one(box.look(later=6, scan=True))
        assert verdict.targets == (key_of(heir),) and "was already dead at" in words(verdict)


def test_a_process_that_its_launcher_never_reaps_is_said_to_be_a_zombie(box: Box) -> None:
    """ "✓ exited", and it stood in ps for ever."""
    with child(USER, box.device) as process:
        box.lists(process.pid)
        key = key_of(process.pid)
        ended = Terminations([Target(key, gpu_uuids=(box.snapshot().gpus[0].uuid,))], box.snapshot())
        ended.open_handles(ProcSignals())
        ended.send(signal.SIGKILL, snapshot=box.snapshot())
        wait_for(lambda: ended.watch() or ended.those(TerminationState.EXITED), "it to exit")
        wait_for(lambda: ended.look(box.snapshot()) or ended.those(TerminationState.RELEASED), "its memory")
        said = ended.message(ended.all[0])
        assert f"a zombie: its parent {os.getpid()} has not reaped it" in said and "released" in said
        ended.close()


def test_a_dead_first_thread_keeps_everything_and_is_found_by_its_siblings_files(box: Box) -> None:
    with child(USER + DEAD_FIRST_THREAD, box.device) as process:
        wait_for(lambda: state_of(process.pid) == "Z", "a dead first thread")
        box.lists(process.pid)
        report = box.look(scan=True)
        verdict = the_one(report)
        assert verdict.verdict is Verdict.STUCK and verdict.rules[0] == "R7"
        assert "its main thread has exited, but 1 thread still running" in words(verdict)
        assert report.scan is not None and [holder.key.pid for holder in report.scan.holders] == [process.pid]


def test_a_consumer_of_cuda_ipc_that_outlives_its_producer_is_no_leak(box: Box) -> None:
    with child(USER, box.device) as producer, child(USER, box.device) as consumer:
        box.lists(producer.pid, while_alive=True)
        box.lists(consumer.pid, memory=610 * MIB, while_alive=True)
        box.look()
        producer.kill()
        producer.wait()
        box.gpu.process(consumer.pid, memory=5730 * MIB, while_alive=True)
        box.until(lambda s: [p.memory_bytes for p in s.processes] == [5730 * MIB], "the consumer's entry to grow")
        report = box.look(later=DAY)
        assert report.dead_pids == () and report.those(Verdict.LEAK, Verdict.SUSPECT) == ()


def test_a_process_that_is_told_to_end_is_unlisted(box: Box) -> None:
    with child(USER, box.device) as process:
        box.lists(process.pid, memory=20 * 1024 * MIB)
        process.terminate()
        process.wait()
        box.until(lambda snapshot: not snapshot.processes, "the memory to come back")
        assert box.used() < CONTEXT and box.look().verdicts == ()


# -------------------------------------------------------------- orphans of each kind


def verdict_on(box: Box, pid: int, later: float = 0.0) -> LeakVerdict | None:
    box.lists(pid)
    box.look()
    return box.look(later=later).verdict_of(key_of(pid))


def test_an_orphan_whose_session_is_dead_is_noted_and_with_a_deleted_directory_suspected(
    box: Box, tmp_path: Path
) -> None:
    folder = tmp_path / "run7"
    folder.mkdir()
    with box.orphan(start_new_session=True, cwd=folder) as pid:
        verdict = verdict_on(box, pid)
        assert verdict is not None and verdict.verdict is Verdict.NOTE and verdict.rules == ("R4",)
        folder.rmdir()
        box.finder._known.clear()  # as after ten seconds
        verdict = box.look().verdict_of(key_of(pid))
        assert verdict is not None and verdict.verdict is Verdict.SUSPECT and verdict.rules == ("R4", "R10")
        assert "run7 was deleted" in words(verdict)


def test_an_orphan_that_nohup_protects_is_meant_to_be_one(box: Box, tmp_path: Path) -> None:
    folder = tmp_path / "run7"
    folder.mkdir()
    how = "signal.signal(signal.SIGHUP, signal.SIG_IGN); os.rmdir(os.getcwd())"
    with box.orphan(how=how, start_new_session=True, cwd=folder) as pid:
        verdict = verdict_on(box, pid)
        assert verdict is not None and verdict.verdict is Verdict.NOTE
        assert "detached on purpose (nohup)" in words(verdict)


def test_a_daemon_in_a_session_of_its_own_is_not_reproached(box: Box, tmp_path: Path) -> None:
    folder = tmp_path / "run7"
    folder.mkdir()
    with box.orphan(how="os.rmdir(os.getcwd())", after="os.setsid()", start_new_session=True, cwd=folder) as pid:
        assert verdict_on(box, pid) is None


def test_a_worker_that_was_seen_to_lose_its_parent_is_a_leak(box: Box) -> None:
    """It has a context of its own: the driver lists the parent and the worker."""
    inside = "import ctypes; ctypes.CDLL(None).prctl(15, b'pt_data_worker')"
    with box.parent(1, inside=inside, start_new_session=True) as (parent, (worker,)):
        box.lists(parent.pid, while_alive=True)
        box.lists(worker, while_alive=True)
        box.look()
        box.look(later=DAY)
        parent.kill()
        parent.wait()
        box.until(lambda snapshot: [process.pid for process in snapshot.processes] == [worker], "the parent to be gone")
        box.look()
        verdict = the_one(box.look())
        assert verdict.verdict is Verdict.LEAK and verdict.rules[0] == "R3"
        assert f"its parent {parent.pid} (" in words(verdict) and verdict.targets == (key_of(worker),)


def test_a_worker_that_lost_its_parent_right_after_its_start_was_started_that_way(box: Box) -> None:
    with box.parent(1, start_new_session=True) as (parent, (worker,)):
        box.lists(parent.pid, while_alive=True)
        box.lists(worker, while_alive=True)
        box.look()
        parent.kill()
        parent.wait()
        box.until(lambda snapshot: [process.pid for process in snapshot.processes] == [worker], "the parent to be gone")
        box.look()
        assert box.look().those(Verdict.LEAK) == ()


def test_an_orphan_whose_terminal_was_closed_is_suspected(box: Box) -> None:
    """A shell's background job that survives the window: the pty's master is closed, its name says (deleted)."""
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGHUP, lambda *_: None)\n"
        f"gpu = os.open({box.device!r}, os.O_RDWR | os.O_NOCTTY)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    time.sleep(600)\n"
        "print(pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    shell, master = pty.fork()
    if shell == 0:
        os.execv(sys.executable, [sys.executable, "-c", code])
    with open(master, "rb", buffering=0) as terminal:
        said = b""
        while not said.strip().isdigit() or b"\n" not in said:
            said += terminal.read(64)
    pid = int(said)
    try:
        os.kill(shell, signal.SIGKILL)
        os.waitpid(shell, 0)
        verdict = verdict_on(box, pid)
        assert verdict is not None and verdict.verdict is Verdict.SUSPECT, verdict
        assert verdict.rules == ("R4", "R5")
        assert "its terminal /dev/pts/" in words(verdict) and "is gone" in words(verdict)
    finally:
        end(pid)


def test_a_process_in_a_foreign_pid_namespace_is_its_containers_and_no_leak(box: Box) -> None:
    inner = (
        f"import os, sys, time; os.open({box.device!r}, os.O_RDWR | os.O_NOCTTY); print(1, flush=True); time.sleep(600)"
    )
    unshare = ["unshare", "-pf", "--mount-proc", "--kill-child", sys.executable, "-c", inner]
    process = subprocess.Popen(unshare, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"1\n":
            pytest.skip("no PID namespace can be made here (unshare)")
        (first,) = (int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        verdict = verdict_on(box, first, later=DAY)
        assert verdict is None or verdict.verdict is Verdict.IDLE
        owner = box.look().owners[key_of(first)]
        assert owner.container is not None and owner.container.pid_inside == 1
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_inside_a_foreign_pid_namespace_nothing_is_called_a_leak(box: Box) -> None:
    """There the driver's pids are meaningless, so a pid that is not there proves nothing."""
    with box.parent(1, start_new_session=True) as (parent, _):
        box.lists(parent.pid)
        parent.kill()
        parent.wait()
        code = f"""
import json, sys, time
sys.path.insert(0, {str(Path(__file__).resolve().parents[3])!r})
from gputop.sampling.snapshot_builder import assemble
from gputop.model import replace
from gputop.procfs.devices import NvidiaDevices
from gputop.procfs.proc_host_reader import ProcHostReader
from gputop.leaks.proc_investigator import ProcInvestigator
from gputop.leaks.finder import LeakFinder
from gputop.settings import Settings
from gputop.sources.source import Reading
from gputop.model import Gpu, GpuProcess
reader = ProcHostReader()
finder = LeakFinder(ProcInvestigator(reader.facts_of, devices=NvidiaDevices(gpus={{{box.number}: 0}})))
gpu = Gpu(0, "GPU-0", "NVIDIA H200", 0.0, memory_total_bytes=140 << 30, memory_used_bytes=20 << 30,
          memory_reserved_bytes=0)
row = GpuProcess({parent.pid}, "GPU-0", "C", memory_bytes=5 << 30)
for later in (0, 6, 60):
    exists = {{{parent.pid}: reader.exists({parent.pid})}}
    snapshot = assemble(time.time() + later, [Reading(gpu, (row,))], {{}}, exists, host=reader.machine())
    report = finder.step(snapshot, Settings())
cause = report.unattributed[0].causes[0]
print(json.dumps([[v.verdict.name for v in report.verdicts], list(report.unsure), cause.name]))
"""
        verdicts, unsure, cause = in_new_pid_namespace(code)
        assert verdicts == []
        assert any("run gputop on the host" in one for one in unsure)
        assert cause == "another PID namespace"


@root
def test_another_users_processes_are_judged_by_what_anybody_may_see(box: Box) -> None:
    give_up = (
        f"os.setgroups([]); os.setresgid({NOBODY}, {NOBODY}, {NOBODY}); os.setresuid({NOBODY}, {NOBODY}, {NOBODY})"
    )
    with box.parent(2, before=give_up, start_new_session=True) as (parent, workers):
        box.lists(parent.pid)
        box.look()
        parent.kill()
        parent.wait()
        box.look()
        verdict = the_one(box.look(later=6))
        assert {key.pid for key in verdict.targets} == set(workers) and verdict.user == "nobody"


def test_a_dead_holder_is_noticed_and_the_rest_is_named(box: Box) -> None:
    with box.parent(2, start_new_session=True) as (parent, (first, second)):
        box.lists(parent.pid)
        box.look()
        parent.kill()
        parent.wait()
        box.look()
        assert len(the_one(box.look(later=6)).targets) == 2
        end(first)
        wait_for(lambda: not running(first), "it to end")
        assert the_one(box.look()).targets == (key_of(second),)


def test_an_innocent_process_that_got_a_dead_ones_pid_is_not_taken_for_the_owner(box: Box) -> None:
    """The driver lists a pid that lives, but that process has no GPU open: the one that had is dead."""
    with box.parent(2) as (parent, workers), child() as innocent:
        parent.kill()
        parent.wait()
        box.lists(innocent.pid)
        box.look()
        report = box.look(later=6)
        verdict = the_one(report)
        assert verdict.verdict is Verdict.LEAK and verdict.process == ProcessKey(innocent.pid, None)
        assert {key.pid for key in verdict.targets} == set(workers)
        assert "the process with that pid now (python" in words(verdict) and "has no GPU open" in words(verdict)
        assert report.verdict_of(key_of(innocent.pid)) is None
