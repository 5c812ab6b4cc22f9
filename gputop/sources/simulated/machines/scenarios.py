"""The simulated machines by name."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

from gputop.model import clean_text
from gputop.sources.simulated.machines import faults, servers, workstations
from gputop.sources.simulated.machines.gpu_models import ALIASES, GPU_MODELS
from gputop.sources.simulated.machines.plan import MachinePlan, plan

MOST_GPUS: Final = 64

_BUILDERS: Final[dict[str, tuple[Callable[[int], MachinePlan], str]]] = {
    "": (servers.training_box, "2×H200: one is full in 44 minutes, 38 GiB of the other are held by a dead process"),
    "h200": (partial(servers.cluster_node, "h200", 1), "one H200 that several people share"),
    "8xh200": (partial(servers.cluster_node, "h200", 8), "8×H200: a torchrun over five, vLLM, notebooks, batch jobs"),
    "8xh100": (partial(servers.cluster_node, "h100", 8), "8×H100 80GB, the same"),
    "16xb200": (partial(servers.cluster_node, "b200", 16), "16×B200: as many as fit on a screen"),
    "leak": (faults.leak, "memory held by dead parents: pids that no longer exist, their orphans alive"),
    "lost-gpu": (faults.lost_gpu, "GPU 3 of 8 falls off the bus after 20 s and is back after 60 s"),
    "mig": (servers.instances, "2×H200, the first split into three MIG instances"),
    "laptop": (workstations.laptop, "RTX 4090 Laptop with a desktop, a browser and Blender; a second GPU that sleeps"),
    "workstation": (workstations.workstation, "RTX 4090 and RTX 6000 Ada: fans, video encoding, a desktop"),
    "spark": (workstations.spark, "GB10, whose GPU shares the host's memory"),
    "hot": (faults.hot, "4×H100 with failing airflow: throttling, Xid events, ECC errors, a pending row remap"),
    "empty": (lambda seed: plan([GPU_MODELS["h200"]] * 8, seed), "8×H200, idle"),
    "no-gpus": (lambda seed: plan([], seed), "a driver that lists no GPU"),
    "crowd": (partial(servers.crowd, 8, 64), "8×H200 with 64 processes each"),
    "thousand": (partial(servers.crowd, 8, 125), "8×H200 with 1000 processes"),
    "hostile": (faults.hostile, "process names that try to take over the terminal"),
    "slow": (faults.slow, "8×H200, of which GPU 2 answers every call after 3 s"),
    "hang": (faults.hang, "8×H200, of which GPU 2 stops answering after 5 s"),
    "busy-oom": (
        faults.busy_oom,
        "2×H200, one of which fills up until its job runs out of memory and restarts",
    ),
}

#: Name and one line about it, for ``--demo=help``. NxMODEL works besides: see :func:`build`.
SCENARIOS: Final[dict[str, str]] = {name: summary for name, (_, summary) in _BUILDERS.items()}


class UnknownScenario(ValueError):
    """No simulated machine has this name; ``str()`` says which there are."""


def build(name: str, seed: int) -> MachinePlan:
    """The machine called *name*: one of SCENARIOS, or NxMODEL (``4xh200``, ``16xa100``, ``l40s``) of up to 64 GPUs.
    Raises UnknownScenario."""
    name = name.strip().lower()
    if name in _BUILDERS:
        return _BUILDERS[name][0](seed)
    match = re.fullmatch(r"(?:(\d{1,3})[x×])?([a-z0-9-]+)", name)
    model = ALIASES.get(match[2], match[2]) if match else ""
    count = int(match[1] or 1) if match else 0
    if model not in GPU_MODELS or not 1 <= count <= MOST_GPUS:
        raise UnknownScenario(
            f"no simulated machine is called {clean_text(name)!r}; there are {', '.join(n for n in SCENARIOS if n)}; "
            f"and 1 to {MOST_GPUS} GPUs as NxMODEL, such as 4xh200, of {', '.join(GPU_MODELS)}"
        )
    return servers.cluster_node(model, count, seed + zlib.crc32(model.encode()) % 97)
