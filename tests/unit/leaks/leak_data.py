"""What is known of made-up processes, for the tests of the leak rules."""

from __future__ import annotations

from typing import Any

from gputop.leaks.process_context import ProcessContext
from gputop.leaks.process_history import ParentChange
from gputop.leaks.rules import Case
from gputop.model import HostFacts, ProcessKey, replace
from gputop.model.owner import Container, Owner, Relative

GIB = 1024**3
NOW = 1_800_000_000.0
MINUTE, HOUR = 60.0, 3600.0
GPU = "GPU-00000000-1111"

BASH = Relative(4000, "bash", "-bash", 10)
TMUX = Relative(3000, "tmux: server", "tmux new -s main", 9)
SYSTEMD = Relative(1, "systemd", "/sbin/init", 1)
USER_SYSTEMD = Relative(900, "systemd", "/lib/systemd/systemd --user", 5)


def facts(**values: Any) -> HostFacts:
    """A training in a shell."""
    given = {
        "key": ProcessKey(4711, 4711_00),
        "read_at": NOW,
        "start_time": NOW - 10 * HOUR,
        "parent_pid": 4000,
        "group_id": 4711,
        "session_id": 4000,
        "uid": 1001,
        "user": "ml",
        "name": "python",
        "command": "python train.py --config a.yaml",
        "state": "S",
        "threads": 40,
        "cpu_percent": 0.0,
        "cpu_seconds": 400.0,
    }
    return HostFacts(**(given | values))


_FACTS = frozenset(HostFacts.__dataclass_fields__)
_CONTEXT = frozenset(ProcessContext.__dataclass_fields__) - {"facts"}
_OWNER = frozenset(Owner.__dataclass_fields__)


def case(**values: Any) -> Case:
    """A case that differs in *values* (fields of the case, its context, its owner, its facts) from a training
    that runs in somebody's shell and is at work. GPU memory: 20 GiB."""
    owner = Owner(**{name: value for name, value in values.items() if name in _OWNER})
    around = {
        "ancestors": (BASH, SYSTEMD),
        "leader_exists": True,
        "group_leader_exists": True,
        "ignores_hangup": False,
        "has_terminal": True,
    } | {name: value for name, value in values.items() if name in _CONTEXT and name != "owner"}
    host = facts(**{name: value for name, value in values.items() if name in _FACTS})
    made = Case(
        context=ProcessContext(host, NOW, owner=owner, **around),
        memory=((GPU, 20 * GIB),),
        gpu_bytes=140 * GIB,
        first_seen=NOW - 9 * HOUR,
        memory_since=NOW - 8 * HOUR,
    )
    own = frozenset(Case.__dataclass_fields__) - {"context"}
    return replace(made, **{name: value for name, value in values.items() if name in own})


#: Adopted by pid 1, and the leader of its session is dead.
ORPHAN: dict[str, Any] = {
    "parent_pid": 1, "ancestors": (SYSTEMD,), "leader_exists": False, "has_terminal": False,
}  # fmt: skip
#: Neither GPU nor CPU used for two hours.
AT_REST: dict[str, Any] = {"idle_since": NOW - 2 * HOUR, "cpu_percent_idle": 0.1}
#: One of vLLM's workers, with a context of its own.
WORKER: dict[str, Any] = {"name": "VLLM::Worker_TP", "command": "VLLM::Worker_TP1"}


def lost_parent(command: str = "python train.py --config a.yaml", on_gpu: bool = True, ago: float = HOUR) -> Any:
    """It was seen to lose its parent."""
    return (ParentChange(NOW - ago, Relative(4600, "python", command, 4600_00), 1, on_gpu),)


DOCKER = Container("docker", "3fa9c81d02ab" + "0" * 52, pid_inside=7)
