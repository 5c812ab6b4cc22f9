"""``gputop fleet --once --json``: a fleet as one JSON object. A GPU has the keys of ``gputop --once --json``."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gputop.fleet.free import FreePlace, FreeRequest
from gputop.fleet.model import FleetGpu, FleetHost, FleetSnapshot, Totals
from gputop.outputs.json_lines import gpu_as_dict


def as_json(snapshot: FleetSnapshot, indent: int | None = None) -> str:
    return json.dumps(as_dict(snapshot), indent=indent, allow_nan=False)


def as_dict(snapshot: FleetSnapshot) -> dict[str, Any]:
    return {
        "taken_at": snapshot.taken_at,
        "source": snapshot.source,
        "totals": _totals(snapshot.totals, snapshot.by_model),
        "hosts": [host_as_dict(host) for host in snapshot.hosts],
        "problems": list(snapshot.problems),
    }


def free_as_json(request: FreeRequest, places: Sequence[FreePlace], problems: Sequence[str], indent: int | None) -> str:
    """What ``--free … --json`` prints: the hosts that have it, best fit first."""
    fitting = [
        {
            "name": place.host.name,
            "gpus_fitting": len(place.gpus),
            "gpus_free": place.host.gpus_free,
            "gpus": [{"index": gpu.gpu.index, "uuid": gpu.gpu.uuid, "name": gpu.gpu.name} for gpu in place.gpus],
        }
        for place in places
    ]
    asked = {"count": request.count, "model": request.model or None, "memory_bytes": request.memory_bytes or None}
    return json.dumps({"request": asked, "hosts": fitting, "problems": list(problems)}, indent=indent, allow_nan=False)


def host_as_dict(host: FleetHost) -> dict[str, Any]:
    return {
        "name": host.name,
        "state": host.state.value,
        "age_seconds": _finite(host.age_seconds),
        "reason": host.reason,
        "labels": dict(host.labels),
        "gpus": [_gpu(gpu, host) for gpu in host.gpus],
    }


def _gpu(gpu: FleetGpu, host: FleetHost) -> dict[str, Any]:
    values = gpu_as_dict(gpu.gpu, host.processes)
    if not host.processes and gpu.gpu.memory_unattributed_bytes is None:  # no list of processes: nothing is attributed
        values |= {"memory_living_bytes": None, "memory_dead_bytes": None}
    return values | {
        "state": gpu.state.value,
        "problem": gpu.problem,
        "usages": [dataclasses.asdict(usage) for usage in gpu.usages],
    }


def _totals(totals: Totals | None, by_model: Mapping[str, Totals]) -> dict[str, Any] | None:
    if totals is None:
        return None
    return _sums(totals) | {"by_model": {model: _sums(one) for model, one in by_model.items()}}


def _sums(totals: Totals) -> dict[str, Any]:
    return {key: _finite(value) for key, value in dataclasses.asdict(totals).items()}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
