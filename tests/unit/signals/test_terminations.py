"""What became of processes that were sent a signal, without a screen."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

import pytest

from gputop.model import GpuProcess, ProcessKey, Snapshot, replace
from gputop.signals.memory_reclaim import HeldMemory
from gputop.signals.protocol import Outcome, Result, Target
from gputop.signals.termination_state import TerminationState
from gputop.signals.terminations import Terminations
from gputop.signals.timeouts import MEMORY_BACK_SECONDS, OFFER_SIGKILL_SECONDS
from tests.unit.ui.process_data import GIB, gpu, process

GPU0, GPU1 = gpu(0).uuid, gpu(1).uuid


@dataclass
class Told:
    """A process that answers and exits as it is told."""

    target: Target
    answer: Outcome = Outcome.SENT
    words: str = "sent"
    gone: bool = False
    sent: list[int] = field(default_factory=list)
    closed: bool = False

    def send(self, number: int) -> Result:
        if self.answer is Outcome.SENT:
            self.sent.append(number)
        return Result(self.target, self.answer, self.words)

    def exited(self) -> bool:
        return self.gone

    def stuck_in(self) -> str | None:
        return None

    def close(self) -> None:
        self.closed = True


class Scene:
    """Processes, the machine's memory and a clock that goes on when told."""

    def __init__(self, *processes: GpuProcess, hidden_gib: float = 0.0) -> None:
        self.processes, self.hidden = list(processes), hidden_gib
        self.now = 1000.0
        self.handles: dict[int, Told | Result] = {}
        targets = [
            Target(key, "ml", "train", None, tuple(p.gpu_uuid for p in processes if p.key == key))
            for key in dict.fromkeys(p.key for p in processes)
        ]
        for target in targets:
            self.handles[target.key.pid] = Told(target)
        self.terminations = Terminations(targets, self.snapshot(), clock=lambda: self.now, steady=lambda: self.now)

    def snapshot(self) -> Snapshot:
        def used(index: int) -> int:
            own = sum(p.memory_bytes or 0 for p in self.processes if p.gpu_index == index)
            return int(own + self.hidden * GIB * (index == 0))

        gpus = tuple(replace(gpu(n), read_at=self.now, memory_used_bytes=used(n)) for n in (0, 1))
        return Snapshot(self.now, gpus=gpus, processes=tuple(self.processes))

    def open(self, target: Target) -> Told | Result:
        return self.handles[target.key.pid]

    def told(self, pid: int) -> Told:
        handle = self.handles[pid]
        assert isinstance(handle, Told)
        return handle

    def send(self, number: int = signal.SIGTERM) -> None:
        self.terminations.open_handles(self)
        self.terminations.send(number, None, self.snapshot())

    def exit(self, pid: int, still_used: bool = False, still_listed: bool = False) -> None:
        self.told(pid).gone = True
        for p in [p for p in self.processes if p.pid == pid]:
            if still_listed:
                self.processes[self.processes.index(p)] = replace(p, host=None, exists=False)
                continue
            self.processes.remove(p)
            if still_used:
                self.hidden += (p.memory_bytes or 0) / GIB

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        self.terminations.watch()
        self.terminations.look(self.snapshot())

    def state(self, n: int = 0) -> TerminationState:
        return self.terminations.all[n].state

    def message(self, n: int = 0) -> str:
        return self.terminations.message(self.terminations.all[n])


def test_exited_and_memory_back_is_said_with_gib_gpu_and_seconds() -> None:
    scene = Scene(process(10, 1, 37.9))
    scene.send()
    scene.now += 0.3
    scene.terminations.watch()
    assert scene.state() is TerminationState.RUNNING
    scene.exit(10)
    scene.terminations.watch()
    assert scene.state() is TerminationState.EXITED
    scene.now += 0.2
    scene.terminations.look(scene.snapshot())
    assert scene.state() is TerminationState.RELEASED
    assert scene.message() == "exited 0.3 s after SIGTERM; released 37.9G on GPU 1 in 0.5 s"
    assert not scene.terminations.pending


def test_snapshot_from_before_the_exit_proves_nothing() -> None:
    scene = Scene(process(10, 0, 5))
    scene.send()
    scene.exit(10)
    old = scene.snapshot()
    scene.now += 0.3
    scene.terminations.watch()
    scene.terminations.look(old)
    assert scene.state() is TerminationState.EXITED


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"still_used": True}, "has not been released"),
        ({"still_listed": True}, "still lists it: other processes hold"),
    ],
)
def test_memory_that_stays_used_is_not_called_released(how: dict[str, bool], words: str) -> None:
    scene = Scene(process(10, 0, 38))
    scene.send()
    scene.exit(10, **how)
    scene.go_on(1.0)
    assert scene.state() is TerminationState.EXITED
    scene.go_on(MEMORY_BACK_SECONDS)
    assert scene.state() is TerminationState.KEPT
    assert words in scene.message()


def test_another_process_that_grows_meanwhile_does_not_hide_the_release() -> None:
    scene = Scene(process(10, 0, 38), process(11, 0, 1))
    scene.terminations.all.pop()
    scene.send()
    scene.exit(10)
    scene.processes[0] = replace(scene.processes[0], memory_bytes=60 * GIB)
    scene.go_on(0.5)
    assert scene.state() is TerminationState.RELEASED


def test_pid_given_to_a_new_process_is_not_taken_for_the_old_one() -> None:
    scene = Scene(process(10, 0, 38))
    scene.send()
    scene.exit(10)
    scene.processes.append(process(10, 0, 20, start_ticks=999_999))
    scene.go_on(0.5)
    assert scene.state() is TerminationState.RELEASED


def test_process_on_two_gpus_waits_for_both() -> None:
    scene = Scene(process(10, 0, 8), process(10, 1, 9))
    assert scene.terminations.freed_by_gpu(scene.terminations.all) == {GPU0: 8 * GIB, GPU1: 9 * GIB}
    scene.send()
    second = scene.processes[1]
    scene.exit(10)
    scene.processes.append(replace(second, host=None))  # not torn down yet
    scene.go_on(0.5)
    assert scene.state() is TerminationState.EXITED
    scene.processes.clear()
    scene.go_on(0.5)
    assert "released 17.0G on GPU 0, GPU 1" in scene.message()


@pytest.mark.parametrize(
    ("outcome", "stage"),
    [
        (Outcome.PID_REUSED, TerminationState.REFUSED),
        (Outcome.NOT_PERMITTED, TerminationState.REFUSED),
        (Outcome.NOT_OWNER, TerminationState.REFUSED),
        (Outcome.ALREADY_GONE, TerminationState.GONE),
    ],
)
def test_refused_hold_is_never_sent_anything(outcome: Outcome, stage: TerminationState) -> None:
    scene = Scene(process(10), process(11))
    target = scene.terminations.all[0].target
    scene.handles[10] = Result(target, outcome, "why not")
    scene.send()
    assert (scene.state(0), scene.message(0)) == (stage, "why not")
    assert (scene.state(1), scene.told(11).sent) == (TerminationState.RUNNING, [signal.SIGTERM])


def test_stopped_process_is_continued_so_that_the_signal_reaches_it() -> None:
    scene = Scene(process(10, state="T"))
    scene.send()
    assert scene.told(10).sent == [signal.SIGTERM, signal.SIGCONT]
    assert "SIGTERM and SIGCONT sent (it was stopped)" in scene.message()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGUSR1, signal.SIGKILL])
def test_stopped_process_is_not_continued_by_other_signals(number: int) -> None:
    scene = Scene(process(10, state="T"))
    scene.send(number)
    assert scene.told(10).sent == [number]


def test_survivors_are_named_only_after_the_grace_time_and_not_after_sigkill() -> None:
    scene = Scene(process(10))
    scene.send()
    assert scene.terminations.survivors == []
    scene.now += OFFER_SIGKILL_SECONDS
    assert scene.terminations.survivors == scene.terminations.all
    assert scene.message() == f"sent; still running after {OFFER_SIGKILL_SECONDS:.0f} s"
    scene.terminations.send(signal.SIGKILL, scene.terminations.survivors)
    scene.now += OFFER_SIGKILL_SECONDS
    assert scene.terminations.survivors == []


def test_memory_without_figures_is_called_gone_from_the_list_only() -> None:
    scene = Scene(process(10, 0, None))
    scene.send()
    scene.exit(10)
    scene.go_on(0.5)
    assert scene.message() == "exited 0.5 s after SIGTERM; no longer on GPU 0"


def test_lost_gpu_never_proves_a_release() -> None:
    scene = Scene(process(10, 0, 5))
    scene.send()
    scene.exit(10)
    scene.now += 1
    scene.terminations.watch()
    lost = replace(scene.snapshot(), gpus=(replace(gpu(0), read_at=scene.now, error="lost"),))
    scene.terminations.look(lost)
    assert scene.state() is TerminationState.EXITED


def test_process_that_exits_while_the_dialog_is_open_is_told() -> None:
    scene = Scene(process(10))
    scene.terminations.open_handles(scene)
    scene.told(10).gone = True
    scene.terminations.watch()
    assert scene.message() == "exited on its own, nothing sent"
    scene.terminations.send(signal.SIGTERM)
    assert scene.told(10).sent == []


def test_handles_are_closed() -> None:
    scene = Scene(process(10))
    scene.terminations.open_handles(scene)
    scene.terminations.close()
    assert scene.told(10).closed


def test_pid_without_a_start_time_is_one_target() -> None:
    dead = replace(process(10, 0, 38), host=None, exists=False)
    terminations = Terminations([Target(ProcessKey(10, None))], Snapshot(1.0, gpus=(gpu(0),), processes=(dead,)))
    assert terminations.all[0].memory_bytes == 38 * GIB


def test_used_memory_is_told_by_how_much_it_fell_and_in_what_time() -> None:
    scene = Scene(process(10, 1, 38))
    scene.send()
    scene.now += 0.3
    scene.exit(10)
    scene.go_on(0.2)
    assert scene.terminations.reclaim_messages() == ["GPU 1: used memory down by 38.0G in 0.5 s, from 38.0G to 0M"]


def dead_pid_scene() -> Scene:
    """A dead pid with 38 GiB on GPU 1, which process 20 keeps though it is on no GPU itself."""
    scene = Scene(replace(process(50211, 1, 38), host=None, exists=False))
    target = Target(ProcessKey(20, 200), "cv", "worker", related=True)
    scene.handles = {20: Told(target)}
    scene.terminations = Terminations(
        [target], scene.snapshot(), clock=lambda: scene.now, steady=lambda: scene.now,
        held=[HeldMemory(50211, {GPU1: 38 * GIB})],
    )  # fmt: skip
    return scene


def test_memory_of_a_dead_pid_is_back_when_its_last_holder_has_ended() -> None:
    scene = dead_pid_scene()
    scene.send()
    assert scene.terminations.freed_by_gpu(scene.terminations.all) == {GPU1: 38 * GIB}
    scene.now += 0.3
    scene.told(20).gone = True
    scene.terminations.watch()
    assert scene.terminations.pending and "waiting for the driver" in scene.terminations.held_message(
        scene.terminations.held[0]
    )
    scene.processes.clear()
    scene.go_on(0.4)
    assert not scene.terminations.pending
    words = scene.terminations.held_message(scene.terminations.held[0])
    assert words == "38.0G of dead pid 50211 on GPU 1: released in 0.7 s"


def test_dead_pid_that_others_still_hold_is_said_and_offered() -> None:
    scene = dead_pid_scene()
    scene.send()
    scene.told(20).gone = True
    scene.terminations.watch()
    assert scene.terminations.kept == []
    scene.go_on(MEMORY_BACK_SECONDS + 1)
    assert scene.terminations.kept == [50211] and not scene.terminations.pending
    assert "still held by other processes" in scene.terminations.held_message(scene.terminations.held[0])


def test_process_that_a_supervisor_started_again_is_told() -> None:
    scene = Scene(process(10, 1, 38, command="vllm serve"))
    scene.send()
    scene.exit(10)
    scene.processes.append(process(99, 1, 2, command="vllm serve", start_time=scene.now + 0.1, parent_pid=4242))
    scene.go_on(0.5)
    assert "restarted as pid 99 by pid 4242" in scene.message()


def test_namesake_that_ran_before_is_not_taken_for_a_restart() -> None:
    scene = Scene(process(10, 1, 38, command="vllm serve"), process(11, 0, 38, command="vllm serve"))
    scene.terminations.open_handles(scene)
    scene.terminations.send(signal.SIGTERM, scene.terminations.all[:1], scene.snapshot())
    scene.exit(10)
    scene.go_on(0.5)
    assert "restarted" not in scene.message()
