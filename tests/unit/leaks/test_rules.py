"""The leak rules: innocent shapes of processes, each beside a guilty twin that differs in one fact."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.leaks.holders.holder import HeldDevice, Holder, HolderScan
from gputop.leaks.report import DeadPid, HolderEvidence
from gputop.leaks.rules import Case
from gputop.leaks.verdicts import judge, judge_dead_pid, nothing_to_ask, worst_first
from gputop.model import LeakVerdict, ProcessKey, Verdict
from gputop.model.owner import Relative
from gputop.settings import Settings
from tests.unit.leaks.leak_data import (
    AT_REST,
    DOCKER,
    GIB,
    GPU,
    HOUR,
    MINUTE,
    NOW,
    ORPHAN,
    SYSTEMD,
    TMUX,
    USER_SYSTEMD,
    WORKER,
    case,
    facts,
    lost_parent,
)

LEAK, STUCK, SUSPECT, IDLE, NOTE = Verdict.LEAK, Verdict.STUCK, Verdict.SUSPECT, Verdict.IDLE, Verdict.NOTE
SETTINGS = Settings()

Facts = dict[str, Any]
JUPYTER = {"command": "python -m ipykernel_launcher -f /run/kernel-9c.json", "notebook": True}
ESCAPED: Facts = {"slurm_job_claimed": "88123", "slurm_job_running": False}
WORKER_ORPHAN: Facts = {**WORKER, **ORPHAN, "parent_changes": lost_parent("python -m vllm serve")}

#: What it is; the innocent's facts; what is thought of it; the one thing in which its twin differs (it may show in
#: several fields: an orphan's parent, ancestors and leader); the twin's verdict and rule.
PAIRS: tuple[tuple[str, Facts, Verdict | None, Facts, Verdict, str], ...] = (
    ("training in a shell", {}, None, {"state": "Z", "threads": 3}, STUCK, "R7"),
    ("training on a slow network disk", {"state": "D", "stuck_since": NOW - 20}, None,
     {"stuck_since": NOW - 5 * MINUTE}, STUCK, "R7"),
    ("zombie that waits to be reaped", {"state": "Z", "threads": 1}, None, {"threads": 2}, STUCK, "R7"),
    ("nohup", {**ORPHAN, "ignores_hangup": True, **AT_REST, "idle_since": NOW - MINUTE}, NOTE,
     {"ignores_hangup": False, "lost_terminal": "/dev/pts/3"}, SUSPECT, "R4"),
    ("nohup that is at rest", {**ORPHAN, "ignores_hangup": True, **AT_REST}, IDLE,
     {"ignores_hangup": False}, SUSPECT, "R4"),
    ("setsid daemon", {**ORPHAN, "session_id": 4711, "lost_terminal": "/dev/pts/3"}, None,
     {"session_id": 4000}, SUSPECT, "R4"),
    ("setsid daemon whose launcher was seen to end", {**ORPHAN, "session_id": 4711, "parent_changes": lost_parent()},
     None, {"session_id": 4000}, SUSPECT, "R3"),
    ("double fork at its start",
     {**ORPHAN, **WORKER, "session_id": 4711, "parent_changes": lost_parent(ago=10 * HOUR - 5)}, None,
     {"parent_changes": lost_parent(ago=HOUR)}, LEAK, "R3"),
    ("orphan at work, from a shell that is gone", ORPHAN, NOTE, {"deleted_directory": "/tmp/run7"}, SUSPECT, "R4"),
    ("orphan whose program was replaced by an upgrade", {**ORPHAN, "ignores_hangup": True,
     "deleted_executable": "/usr/bin/python3.12"}, NOTE, {"ignores_hangup": False}, SUSPECT, "R4"),
    ("disowned in a shell that lives", {"parent_pid": 1, "ancestors": (SYSTEMD,), "lost_terminal": "/dev/pts/3",
     "has_terminal": False}, None, {"leader_exists": False}, SUSPECT, "R4"),
    ("system service", {**ORPHAN, "unit": "vllm.service", **AT_REST, "idle_since": NOW - MINUTE}, NOTE,
     {"unit": "session-3.scope", **AT_REST}, SUSPECT, "R4"),
    ("worker of a service whose server was started again", {**WORKER_ORPHAN, "unit": "vllm.service"}, SUSPECT,
     {"unit": None}, LEAK, "R3"),
    ("user service", {**ORPHAN, "ancestors": (USER_SYSTEMD, SYSTEMD), "parent_pid": 900, "unit": "serve.service",
     "unit_of_user": True, "lost_terminal": "/dev/pts/1"}, NOTE, {"unit": None}, SUSPECT, "R4"),
    ("tmux window", {"ancestors": (Relative(4000, "bash"), TMUX, SYSTEMD)}, None,
     {**ORPHAN, "lost_terminal": "/dev/pts/5"}, SUSPECT, "R4"),
    ("tmux window at rest", {"ancestors": (Relative(4000, "bash"), TMUX, SYSTEMD), **AT_REST}, IDLE,
     {"state": "T", "stopped_since": NOW - HOUR}, SUSPECT, "R6"),
    ("directly under tmux, its shell gone", {"parent_pid": 3000, "ancestors": (TMUX, SYSTEMD), "leader_exists": False},
     None, {**ORPHAN, "lost_terminal": "/dev/pts/5"}, SUSPECT, "R4"),
    ("screen window", {"parent_pid": 3000, "ancestors": (Relative(3000, "screen"), SYSTEMD)}, None,
     {**ORPHAN, **AT_REST}, SUSPECT, "R4"),
    ("Slurm job", {"slurm_job": "88123", "slurm_job_claimed": "88123", "slurm_job_running": True}, None,
     {**ESCAPED, "slurm_job": None}, LEAK, "R8"),
    ("Slurm job whose batch shell ended", {**ORPHAN, "slurm_job": "88123", "slurm_job_claimed": "88123",
     "slurm_job_running": True, **AT_REST, "idle_since": NOW - MINUTE}, NOTE,
     {"slurm_job": None, "slurm_job_running": False}, LEAK, "R8"),
    ("worker in a Slurm job whose rank died", {**WORKER_ORPHAN, "slurm_job": "88123"}, SUSPECT, {"slurm_job": None},
     LEAK, "R3"),
    ("Slurm without cgroups", {"slurm_job_claimed": "88123", "slurm_job_running": None}, None,
     {"slurm_job_running": False}, LEAK, "R8"),
    ("Slurm job without confinement, alive", {"slurm_job_claimed": "88123", "slurm_job_running": True}, None,
     {"slurm_job_running": False}, LEAK, "R8"),
    ("container's first process", {**ORPHAN, "parent_pid": 5000, "session_id": 4711, "container": DOCKER,
     "ancestors": (Relative(5000, "containerd-shim"), SYSTEMD)}, None,
     {"session_id": 4000, "container": None, **AT_REST}, SUSPECT, "R4"),
    ("worker adopted by a container's tini", {**WORKER_ORPHAN, "parent_pid": 5000, "container": DOCKER,
     "ancestors": (Relative(5000, "tini"), SYSTEMD)}, NOTE, {"container": None}, SUSPECT, "R4"),
    ("inference server at rest", {"command": "vllm serve llama", "name": "vllm", **AT_REST}, IDLE,
     {**ORPHAN, "name": "VLLM::EngineCor", "parent_changes": lost_parent("vllm serve llama")}, LEAK, "R3"),
    ("inference server between requests", {"command": "vllm serve", "idle_since": NOW - 20 * MINUTE,
     "cpu_percent_idle": 0.2}, None, {"idle_since": NOW - 40 * MINUTE}, IDLE, "R9"),
    ("server that polls on the CPU", {"idle_since": NOW - 2 * HOUR, "cpu_percent_idle": 3.0}, None,
     {"cpu_percent_idle": 0.4}, IDLE, "R9"),
    ("small context at rest", {**AT_REST, "memory": ((GPU, 612 * 1024**2),)}, None, {"memory": ((GPU, 9 * GIB),)},
     IDLE, "R9"),
    ("no utilization told by the driver", {"idle_since": None}, None, AT_REST, IDLE, "R9"),
    ("notebook at rest", {**JUPYTER, **AT_REST}, IDLE, {"state": "T", "stopped_since": NOW - HOUR}, SUSPECT, "R6"),
    ("notebook whose browser tab is closed", {**JUPYTER, "idle_since": NOW - 5 * MINUTE, "cpu_percent_idle": 0.0},
     None, {"idle_since": NOW - 3 * HOUR}, IDLE, "R9"),
    ("stopped for a moment", {"state": "T", "stopped_since": NOW - MINUTE}, NOTE, {"stopped_since": NOW - 11 * MINUTE},
     SUSPECT, "R6"),
    ("stopped by a debugger", {"state": "t", "stopped_since": None}, None, {"state": "T", "stopped_since": NOW - HOUR},
     SUSPECT, "R6"),
    ("data worker of a living parent", {"name": "pt_data_worker", "parent_pid": 4600}, None,
     {**ORPHAN, "parent_changes": lost_parent()}, LEAK, "R3"),
    ("spawned worker of a living parent", {"command": "python -c from multiprocessing.spawn import spawn_main(3)"},
     None, {**ORPHAN, "parent_changes": lost_parent("python train.py")}, LEAK, "R3"),
    ("rank of a living torchrun", {"rank": 3, "run_id": "none", "parent_pid": 4600}, None,
     {**ORPHAN, "parent_changes": lost_parent("python torchrun train.py")}, LEAK, "R3"),
    ("started by a script that ended", {**ORPHAN, "leader_exists": True, "parent_changes":
     lost_parent("bash run.sh", on_gpu=False)}, None, {"parent_changes": lost_parent(on_gpu=True)}, SUSPECT, "R3"),
    ("its shell was closed", {**ORPHAN, "parent_changes": lost_parent("-bash", on_gpu=False)}, NOTE,
     {"lost_terminal": "/dev/pts/9"}, SUSPECT, "R4"),
    ("monitor of the GPUs in a service", {"name": "dcgm-exporter", "unit": "dcgm.service", "memory": ((GPU, 30 << 20),),
     **ORPHAN}, NOTE, {"unit": None, "deleted_executable": "/opt/dcgm"}, SUSPECT, "R4"),
)  # fmt: skip


def verdict_of(made: Case, settings: Settings = SETTINGS) -> LeakVerdict | None:
    return judge(made, settings, NOW)


@pytest.mark.parametrize(("what", "innocent", "thought"), [pair[:3] for pair in PAIRS], ids=[p[0] for p in PAIRS])
def test_the_innocent_is_no_leak(what: str, innocent: Facts, thought: Verdict | None) -> None:
    verdict = verdict_of(case(**innocent))
    assert (verdict and verdict.verdict) == thought, verdict
    assert verdict is None or verdict.verdict is not LEAK


@pytest.mark.parametrize(
    ("innocent", "fact", "guilt", "rule"), [(p[1], *p[3:]) for p in PAIRS], ids=[p[0] for p in PAIRS]
)
def test_its_guilty_twin_gets_verdict_and_rule(innocent: Facts, fact: Facts, guilt: Verdict, rule: str) -> None:
    verdict = verdict_of(case(**{**innocent, **fact}))
    assert verdict is not None and verdict.verdict is guilt, verdict
    assert verdict.findings[0].rule == rule, verdict.findings
    assert verdict.targets == (ProcessKey(4711, 4711_00),)
    assert verdict.doubts, "nothing is beyond doubt"


def test_there_are_enough_pairs() -> None:
    assert len(PAIRS) >= 25 and len({pair[0] for pair in PAIRS}) == len(PAIRS)
    assert {pair[5] for pair in PAIRS} >= {"R3", "R4", "R6", "R7", "R8", "R9"}


@pytest.mark.parametrize("made", [facts for pair in PAIRS for facts in (pair[1], {**pair[1], **pair[3]})])
def test_who_is_passed_over_quickly_would_have_got_no_verdict(made: Facts) -> None:
    built = case(**made)
    idle = 0.0 if built.idle_since is None else NOW - built.idle_since
    if nothing_to_ask(built.facts, built.context, bool(built.parent_changes), idle, SETTINGS):
        assert verdict_of(built) is None


# ------------------------------------------------------------------------ evidence


def words_of(verdict: LeakVerdict | None) -> str:
    assert verdict is not None
    return " | ".join(f"{finding.rule} {finding.evidence}" for finding in verdict.findings)


def test_the_evidence_names_parent_devices_and_times() -> None:
    held = (HeldDevice("/dev/nvidia1", 1, (41,)), HeldDevice("/dev/nvidiactl", None, (38,)))
    made = case(**{**WORKER_ORPHAN, **AT_REST, "lost_terminal": "/dev/pts/3", "held": held})
    words = words_of(verdict_of(made))
    assert words.startswith("R3 its parent 4600 (python -m vllm serve) died ")
    assert "holds 20.0 GiB of GPU memory; open: /dev/nvidia1 (fd 41); memory unchanged for 8 h 0 min" in words
    assert "SM 0 % since" in words and "R5 its terminal /dev/pts/3 is gone" in words
    assert "R4 orphaned: its parent is now 1 (systemd), and its session leader 4000 is dead" in words


def test_what_was_so_when_gputop_came_is_said_to_be_so_at_least() -> None:
    made = case(state="T", stopped_since=NOW - HOUR, first_seen=NOW - HOUR)
    assert "stopped for at least 1 h 0 min: SIGTERM stays pending until SIGCONT" in words_of(verdict_of(made))


def test_a_stuck_process_says_where_and_that_sigkill_will_not_help() -> None:
    made = case(state="D", stuck_since=NOW - 5 * MINUTE, waits_in="nv_wait_for_rpc")
    assert "stuck in the kernel (state D) for 5 min in nv_wait_for_rpc: SIGKILL has no effect" in words_of(
        verdict_of(made)
    )


def test_the_idle_minutes_and_the_stopped_minutes_are_settings() -> None:
    idle, stopped = case(**AT_REST), case(state="T", stopped_since=NOW - 20 * MINUTE)
    patient = Settings(leak_idle_minutes=240, leak_stopped_minutes=60)
    assert verdict_of(idle, patient) is None
    verdict = verdict_of(stopped, patient)
    assert verdict is not None and verdict.verdict is NOTE


@pytest.mark.parametrize("names", [("user:ml",), ("VLLM::",), ("VLLM::Worker_TP1",)])
def test_who_is_on_the_ignore_list_is_never_accused(names: tuple[str, ...]) -> None:
    guilty = case(**WORKER_ORPHAN)
    assert verdict_of(guilty) is not None
    assert verdict_of(guilty, Settings(leak_ignore=names)) is None
    assert verdict_of(guilty, Settings(leak_ignore=("user:m", "train.py"))) is not None


def test_the_worst_and_the_largest_come_first() -> None:
    made = [
        case(**AT_REST, memory=((GPU, 90 * GIB),)),
        case(**WORKER_ORPHAN, memory=((GPU, 2 * GIB),)),
        case(**WORKER_ORPHAN, memory=((GPU, 30 * GIB),), key=ProcessKey(4712, 1)),
        case(state="Z", threads=3),
    ]
    verdicts = worst_first(v for v in map(verdict_of, made) if v is not None)
    assert [(v.verdict, v.memory_bytes) for v in verdicts] == [
        (LEAK, 30 * GIB), (LEAK, 2 * GIB), (STUCK, 20 * GIB), (IDLE, 90 * GIB),
    ]  # fmt: skip


# -------------------------------------------------------------------------- dead pids


def held(pid: int, certain: bool = True) -> HolderEvidence:
    device = HeldDevice("/dev/nvidia1", 1, (41,))
    holder = Holder(facts(key=ProcessKey(pid, pid * 10), name="pt_data_worker"), (device,))
    return HolderEvidence(holder, device, "process group 50211" if certain else "holds the device", certain)


def dead_pid(*holders: HolderEvidence, ago: float = HOUR, **values: Any) -> DeadPid:
    given: dict[str, Any] = {"pid": 50211, "memory": ((GPU, 38 * GIB),), "since": NOW - ago, "scanned": True}
    return DeadPid(**(given | {"holders": holders} | values))


def scan(**values: Any) -> HolderScan:
    return HolderScan(**({"taken_at": NOW, "took": 0.1, "holders": (), "inspected": 400} | values))


def dead_pid_verdict(made: DeadPid, seen: HolderScan | None = None) -> LeakVerdict | None:
    return judge_dead_pid(made, SETTINGS, NOW, {GPU: "GPU 1"}, seen)


def test_a_dead_pid_with_memory_is_a_leak_and_its_holders_the_targets() -> None:
    verdict = dead_pid_verdict(
        dead_pid(held(50377), held(50378), known=facts(key=ProcessKey(50211, 7)), saw_death=True)
    )
    assert verdict is not None and verdict.verdict is LEAK and verdict.rules == ("R1", "R2")
    assert [key.pid for key in verdict.targets] == [50377, 50378]
    assert verdict.process == ProcessKey(50211, None) and verdict.command == "python train.py --config a.yaml"
    words = words_of(verdict)
    assert "R1 the driver lists 50211 (python) with 38.0 GiB on GPU 1, but no such process exists; it died at " in words
    assert "R2 50377 holds /dev/nvidia1 (fd 41) opened by 50211; process group 50211" in words


def test_a_pid_that_died_a_moment_ago_is_no_leak_yet() -> None:
    assert dead_pid_verdict(dead_pid(held(50377), ago=3.0)) is None


def test_likely_holders_are_targets_only_where_none_is_certain() -> None:
    both = dead_pid_verdict(dead_pid(held(50377), held(60000, certain=False)))
    likely = dead_pid_verdict(dead_pid(held(60000, certain=False)))
    assert both is not None and [key.pid for key in both.targets] == [50377]
    assert likely is not None and [key.pid for key in likely.targets] == [60000]
    assert "probably, not proven" in words_of(likely)


def test_a_dead_pid_without_holders_says_how_many_could_not_be_looked_at() -> None:
    verdict = dead_pid_verdict(dead_pid(), scan(denied=(("root", 37), ("bob", 2))))
    assert verdict is not None and verdict.targets == ()
    assert any("37 of root, 2 of bob not permitted: run gputop as root" in doubt for doubt in verdict.doubts)


def test_a_dead_pid_that_nobody_holds_though_all_were_looked_at_is_the_drivers() -> None:
    verdict = dead_pid_verdict(dead_pid(), scan())
    assert "no process holds the device now (400 processes inspected)" in words_of(verdict)


def test_a_hundred_holders_are_counted_not_listed() -> None:
    verdict = dead_pid_verdict(dead_pid(*(held(60000 + n) for n in range(126))))
    assert verdict is not None and len(verdict.targets) == 126 and len(verdict.findings) < 12
    assert "118 more processes hold it as well" in words_of(verdict)


def test_an_ignored_users_dead_pid_is_not_reported() -> None:
    made = dead_pid(held(50377), known=facts())
    assert judge_dead_pid(made, Settings(leak_ignore=("user:ml",)), NOW, {}) is None
