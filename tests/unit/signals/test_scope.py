"""How far a signal reaches, and that it reaches nobody else: real children, groups, sessions, and reused pids."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.model import HostFacts, ProcessKey, Snapshot
from gputop.procfs.stat import read_stat
from gputop.signals import timeouts
from gputop.signals.audit_log import ActionLog
from gputop.signals.graceful_termination import GracefulTermination, TerminationStep, with_related
from gputop.signals.protocol import Target
from gputop.signals.scope import SignalScope, related_among
from gputop.signals.sender import ProcSignals
from gputop.signals.termination_state import TerminationState
from gputop.signals.terminations import Terminations
from tests.unit.children import in_new_pid_namespace, key_of, root, state_of, wait_for

#: A leader in a session of its own: a child in its group, a grandchild, a child in a group of its own, one in a session
#: of its own. Prints their pids.
FAMILY = """
import json, os, signal, subprocess, sys, time
IGNORE = len(sys.argv) > 1 and sys.argv[1] == "ignore"
def sleeper(then=None):
    pid = os.fork()
    if pid == 0:
        if IGNORE:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if then is not None:
            then()
        while True:
            time.sleep(60)
    return pid
r, w = os.pipe()
def with_child():
    os.write(w, str(sleeper()).encode())
found = {"leader": os.getpid(), "child": sleeper(with_child)}
found["grandchild"] = int(os.read(r, 20))
found["own_group"] = sleeper(lambda: (os.setpgid(0, 0), os.write(w, b"x")))
os.read(r, 1)
found["own_session"] = sleeper(lambda: (os.setsid(), os.write(w, b"x")))
os.read(r, 1)
print(json.dumps(found), flush=True)
while True:
    time.sleep(60)
"""


class Family:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", FAMILY, *arguments], stdout=subprocess.PIPE, start_new_session=True
        )
        assert self.process.stdout is not None
        self.pids: dict[str, int] = json.loads(self.process.stdout.readline())
        self.keys = {name: key_of(pid) for name, pid in self.pids.items()}

    def alive(self) -> set[str]:
        return {name for name, key in self.keys.items() if _lives(key)}

    def names(self, keys: set[ProcessKey]) -> set[str]:
        return {name for name, key in self.keys.items() if key in keys}

    def end(self) -> None:
        for key in self.keys.values():
            if _lives(key):
                os.kill(key.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def _lives(key: ProcessKey) -> bool:
    stat = read_stat(f"/proc/{key.pid}/stat")
    return stat is not None and stat.start_ticks == key.start_ticks and stat.state not in "ZX"


@pytest.fixture
def family() -> Iterator[Family]:
    made = Family()
    yield made
    made.end()


@pytest.mark.parametrize(
    ("scope", "members"),
    [
        (SignalScope.DESCENDANTS, {"child", "grandchild", "own_group", "own_session"}),
        (SignalScope.GROUP, {"child", "grandchild"}),
        (SignalScope.SESSION, {"child", "grandchild", "own_group"}),
        (SignalScope.PROCESS, set()),
    ],
)
def test_scope_takes_in_who_it_says(family: Family, scope: SignalScope, members: set[str]) -> None:
    related = ProcSignals().related([family.keys["leader"]]).of(scope)
    assert family.names({facts.key for facts in related}) == members
    assert {facts.key.pid for facts in related} == {family.pids[name] for name in members}, "nobody else's"
    assert all(facts.command and facts.user and facts.uid == os.geteuid() for facts in related)


def test_related_of_a_pid_that_is_another_ones_by_now_is_empty(family: Family) -> None:
    ticks = family.keys["leader"].start_ticks or 0
    related = ProcSignals().related([ProcessKey(family.pids["leader"], ticks - 1)])
    assert related.descendants == related.group == related.session == ()


def test_parent_that_started_after_its_child_is_no_parent() -> None:
    old = HostFacts(ProcessKey(20, 100), 0.0, parent_pid=10)
    newcomer = HostFacts(ProcessKey(10, 500), 0.0, parent_pid=1)
    assert related_among([old, newcomer], [newcomer.key]).descendants == ()


def _graceful(family: Family, scope: SignalScope, grace: float, log: ActionLog | None = None) -> GracefulTermination:
    signals = ProcSignals()
    chosen = [Target(family.keys["leader"], "me", "leader", related=True)]
    targets, facts = with_related(chosen, signals.related([family.keys["leader"]]).of(scope))
    terminations = Terminations(targets, Snapshot(time.time()), facts=facts, log=log)
    terminations.open_handles(signals)
    assert not terminations.those(TerminationState.REFUSED, TerminationState.GONE)
    return GracefulTermination(terminations, signals, scope, grace)


def _run(graceful: GracefulTermination) -> None:
    end = time.monotonic() + 30
    while graceful.step is not TerminationStep.DONE:
        assert time.monotonic() < end
        if graceful.due:
            graceful.act(Snapshot(time.time()))
        graceful.terminations.watch()
        time.sleep(0.01)


@pytest.mark.parametrize("scope", [SignalScope.DESCENDANTS, SignalScope.GROUP, SignalScope.SESSION])
def test_graceful_ends_the_whole_scope_and_nobody_else(family: Family, scope: SignalScope) -> None:
    members = {facts.key for facts in ProcSignals().related([family.keys["leader"]]).of(scope)}
    outside = family.keys.keys() - {"leader"} - family.names(members)
    graceful = _graceful(family, scope, grace=5)
    _run(graceful)
    family.process.wait(10)
    wait_for(lambda: family.alive() == set(outside), "the scope to end")
    wait_for(
        lambda: (graceful.terminations.watch(), not graceful.terminations.those(TerminationState.RUNNING))[1],
        "it to be seen",
    )
    graceful.terminations.close()


def test_who_ignores_sigterm_gets_sigkill_after_the_grace_time() -> None:
    family = Family("ignore")
    try:
        graceful = _graceful(family, SignalScope.DESCENDANTS, grace=0.5)
        graceful.act(None)
        graceful.terminations.watch()
        assert graceful.step is TerminationStep.OTHERS
        _run(graceful)
        wait_for(lambda: family.process.poll() is not None and not family.alive(), "all to end")
        numbers = {e.number for e in graceful.terminations.all if e.target.key != family.keys["leader"]}
        assert numbers == {signal.SIGKILL}
        graceful.terminations.close()
    finally:
        family.end()


def test_leader_is_asked_first_and_the_others_when_it_is_gone(family: Family) -> None:
    graceful = _graceful(family, SignalScope.DESCENDANTS, grace=5)
    graceful.act(None)
    assert [e.target.key for e in graceful.terminations.those(TerminationState.RUNNING)] == [family.keys["leader"]]
    wait_for(lambda: family.process.poll() is not None, "the leader to end")
    assert family.alive() == {"child", "grandchild", "own_group", "own_session"}, "nobody else was sent anything yet"
    _run(graceful)
    wait_for(lambda: not family.alive(), "the others to end")
    graceful.terminations.close()


def test_member_that_appears_meanwhile_is_ended_too() -> None:
    code = """
import os, signal, sys, time
def spawn(*_):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(os.getpid(), flush=True)
        time.sleep(600)
signal.signal(signal.SIGTERM, spawn)
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
print(child, flush=True)
while True:
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    signals = ProcSignals()
    leader = key_of(process.pid)
    targets, facts = with_related([Target(leader, related=True)], signals.related([leader]).of(SignalScope.DESCENDANTS))
    terminations = Terminations(targets, None, facts=facts)
    terminations.open_handles(signals)
    graceful = GracefulTermination(terminations, signals, SignalScope.DESCENDANTS, grace=0.3)
    graceful.act(None)  # SIGTERM makes it fork
    newcomer = int(process.stdout.readline())
    assert newcomer not in {target.key.pid for target in targets}
    _run(graceful)
    process.wait(10)
    wait_for(lambda: state_of(newcomer) in ("", "Z") and state_of(child) in ("", "Z"), "all to end")
    assert graceful.joined == 1
    terminations.close()
    process.stdout.close()


def test_stopped_process_is_continued_so_that_sigterm_acts() -> None:
    process = subprocess.Popen(["sleep", "600"])
    os.kill(process.pid, signal.SIGSTOP)
    wait_for(lambda: state_of(process.pid) == "T", "it to stop")
    key = key_of(process.pid)
    facts = HostFacts(key, 0.0, state="T")
    terminations = Terminations([Target(key, related=True)], None, facts={key: facts})
    terminations.open_handles(ProcSignals())
    graceful = GracefulTermination(terminations, ProcSignals(), SignalScope.PROCESS, grace=20)
    graceful.act(None)
    assert process.wait(10) == -signal.SIGTERM, "it was not SIGKILL"
    terminations.close()


# ------------------------------------------------------------- reused pids

_REUSE = """
import json, os, signal, sys, time
from gputop.model import ProcessKey
from gputop.signals.protocol import Outcome, Result, Target
from gputop.signals.graceful_termination import GracefulTermination, TerminationStep
from gputop.signals.terminations import Terminations
from gputop.signals.termination_state import TerminationState
from gputop.signals.scope import SignalScope
from gputop.procfs.stat import read_stat
from gputop.signals.sender import ProcSignals

heard = {}

def start(pid=None):
    if pid is not None:
        open("/proc/sys/kernel/ns_last_pid", "w").write(str(pid - 1))
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda n, _: os.write(write_end, b"hit"))
        os.write(write_end, b"x")
        while True:
            time.sleep(60)
    os.read(read_end, 1)
    os.set_blocking(read_end, False)
    heard[child] = read_end
    return child

def reuse(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    time.sleep(0.05)  # start times are counted in hundredths of a second
    return start(pid)

def untouched(pid):
    # whether it lives and heard nothing, some time later
    time.sleep(0.3)
    try:
        os.read(heard[pid], 10)
    except BlockingIOError:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    return False

"""


@root
def test_pid_reused_between_the_key_and_the_dialog_gets_nothing() -> None:
    found = in_new_pid_namespace(_REUSE + """
pid = start()
target = Target(ProcessKey(pid, read_stat(f"/proc/{pid}/stat").start_ticks), related=True)
second = reuse(pid)
terminations = Terminations([target], None)
signals = ProcSignals()
terminations.open_handles(signals)
graceful = GracefulTermination(terminations, signals, SignalScope.PROCESS, 0.1)
while graceful.step is not TerminationStep.DONE:
    if graceful.due:
        graceful.act(None)
one = terminations.all[0]
print(json.dumps([pid == second, one.state.name, terminations.message(one), untouched(second)]))
os.kill(second, signal.SIGKILL)
""")  # fmt: skip
    assert found[0], "the test's own: the pid was not reused"
    assert found[1] == "REFUSED" and "was reused" in found[2]
    assert found[3], "the new process was hit"


@root
@pytest.mark.parametrize("when", ["before SIGTERM", "before SIGKILL"])
def test_pid_reused_between_the_hold_and_the_signal_gets_nothing(when: str) -> None:
    found = in_new_pid_namespace(_REUSE + f"""
pid = start()
target = Target(ProcessKey(pid, read_stat(f"/proc/{{pid}}/stat").start_ticks), related=True)
terminations = Terminations([target], None)
signals = ProcSignals()
terminations.open_handles(signals)
graceful = GracefulTermination(terminations, signals, SignalScope.PROCESS, 0.1)
if {when == "before SIGKILL"}:
    graceful.act(None)  # it handles SIGTERM and goes on
second = reuse(pid)
while graceful.step is not TerminationStep.DONE:
    if graceful.due:
        graceful.act(None)
terminations.watch()
print(json.dumps([pid == second, terminations.all[0].state.name, untouched(second)]))
os.kill(second, signal.SIGKILL)
""")  # fmt: skip
    assert found[0], "the test's own: the pid was not reused"
    assert found[1] in ("GONE", "EXITED")
    assert found[2], "the new process was hit"


@root
def test_process_group_whose_leader_died_and_whose_number_is_reused_is_not_joined() -> None:
    """A stored group id would lead to strangers: the group is asked of a living member each time."""
    found = in_new_pid_namespace(_REUSE + """
pid = start()
os.setpgid(pid, pid)
target = Target(ProcessKey(pid, read_stat(f"/proc/{pid}/stat").start_ticks), related=True)
terminations = Terminations([target], None)
signals = ProcSignals()
terminations.open_handles(signals)
graceful = GracefulTermination(terminations, signals, SignalScope.GROUP, 0.1)
graceful.act(None)
second = reuse(pid)
os.setpgid(second, second)  # a stranger with the same group id
while graceful.step is not TerminationStep.DONE:
    if graceful.due:
        graceful.act(None)
print(json.dumps([pid == second, graceful.joined, len(terminations.all), untouched(second)]))
os.kill(second, signal.SIGKILL)
""")  # fmt: skip
    assert found[0] and found[1] == 0 and found[2] == 1
    assert found[3], "the stranger was hit"


# ---------------------------------------------------------------- the log


def test_every_signal_and_refusal_is_a_line_that_only_its_owner_reads(tmp_path: Path) -> None:
    log = ActionLog(tmp_path / "gputop" / "actions.log")
    process = subprocess.Popen(["sleep", "600"])
    targets = [Target(key_of(process.pid), "ml", "sleep 600 \x1b]0;x", related=True), Target(ProcessKey(1, 1))]
    terminations = Terminations(targets, None, log=log)
    terminations.open_handles(ProcSignals())
    terminations.send(signal.SIGTERM)
    process.wait(10)
    terminations.close()
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [(line["action"], line["pid"], line["outcome"]) for line in lines] == [
        ("hold", 1, "refused"),
        ("SIGTERM", process.pid, "sent"),
    ]
    assert lines[1]["user"] == "ml" and lines[1]["start_ticks"] and lines[1]["uid"] == os.getuid()
    assert log.path.stat().st_mode & 0o777 == 0o600
    assert "\x1b" not in log.path.read_text()


def test_log_is_not_written_through_a_symbolic_link_and_says_so(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "actions.log").symlink_to(victim)
    log = ActionLog(tmp_path / "actions.log")
    log.write("SIGTERM", pid=1)
    assert victim.read_text() == "mine"
    assert log.problem is not None and "not written" in log.problem


# ------------------------------------------------------- stuck in the kernel


def test_process_stuck_in_the_kernel_after_sigkill_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.unit.children import STUCK, child

    monkeypatch.setattr(timeouts, "STUCK_SECONDS", 0.1)
    with child(STUCK) as process:
        wait_for(lambda: state_of(process.pid) == "D", "it to be stuck")
        terminations = Terminations([Target(key_of(process.pid), related=True)], None)
        terminations.open_handles(ProcSignals())
        terminations.send(signal.SIGKILL)
        time.sleep(0.2)
        terminations.watch()
        if terminations.all[0].state is not TerminationState.RUNNING:
            pytest.skip("this kernel lets SIGKILL through a vfork")
        words = terminations.message(terminations.all[0])
        assert "stuck in the kernel (D)" in words and "SIGKILL cannot help" in words
        terminations.close()
