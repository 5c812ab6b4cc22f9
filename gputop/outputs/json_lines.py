"""A snapshot as one JSON object.

Keys are the model's field names (but see ``gputop.model.json_key``), so they carry their units. Not known is ``null``;
there is no NaN. Times are seconds since the epoch.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Iterable
from typing import Any, Final

from gputop.model import Gpu, GpuProcess, MigInstance, Snapshot, memory_breakdown
from gputop.model.json_key import json_key

#: Fields that appear under another name or in another form.
_GPU_OWN: Final = frozenset(("event_reasons_mask", "mig"))


def as_json(snapshot: Snapshot, indent: int | None = None) -> str:
    """One line of JSON (or several, with *indent*), in ASCII: it arrives the same through every locale."""
    return json.dumps(as_dict(snapshot), indent=indent, allow_nan=False)


def as_dict(snapshot: Snapshot) -> dict[str, Any]:
    """The object behind :func:`as_json`."""
    instances = {
        (gpu.uuid, mig.gpu_instance_id, mig.compute_instance_id): mig.uuid for gpu in snapshot.gpus for mig in gpu.mig
    }
    return {
        "taken_at": _plain(snapshot.taken_at),
        "host": _plain(snapshot.host),
        "driver_version": snapshot.driver.version,
        "nvml_version": snapshot.driver.nvml_version,
        "cuda_version": snapshot.driver.cuda_version,
        "source": snapshot.source,
        "gpus": [gpu_as_dict(gpu, snapshot.processes) for gpu in snapshot.gpus],
        "processes": _processes(snapshot, instances),
        "problems": list(snapshot.problems),
    }


def _processes(snapshot: Snapshot, instances: dict[tuple[str, int, int], str]) -> list[dict[str, Any]] | None:
    """None where none is told and a GPU's list is not known; which GPU's that is, its ``processes_error`` says."""
    if not snapshot.processes and not all(gpu.processes_known for gpu in snapshot.gpus):
        return None
    return [_process(process, instances) for process in snapshot.processes]


def gpu_as_dict(gpu: Gpu, processes: Iterable[GpuProcess]) -> dict[str, Any]:
    """One GPU of a machine whose processes are *processes*."""
    plain = _fields(gpu, leave_out=_GPU_OWN)
    parts = memory_breakdown(gpu, processes)
    plain["memory_living_bytes"] = parts.living if gpu.memory_used_bytes is not None else None
    plain["memory_dead_bytes"] = parts.dead_pids if gpu.memory_used_bytes is not None else None
    plain["memory_shared_bytes"] = parts.shared
    reasons = gpu.event_reasons
    plain["fan_percent"] = gpu.fan_percent
    plain["event_reasons"] = None if reasons is None else [reason.label for reason in reasons]
    plain["mig"] = [_instance(mig) for mig in gpu.mig]
    if gpu.error is not None and not gpu.mig:
        plain["mig"] = None  # not known to have none
    return plain


def _instance(mig: MigInstance) -> dict[str, Any]:
    return {"mig_uuid": mig.uuid, **_fields(mig, leave_out=frozenset(("uuid",)))}


def _process(process: GpuProcess, instances: dict[tuple[str, int, int], str]) -> dict[str, Any]:
    host = process.host
    plain: dict[str, Any] = {
        "pid": process.pid,
        "start_time": host and _plain(host.start_time),
        "gpu_uuid": process.gpu_uuid,
        "gpu_index": process.gpu_index,
        "kind": process.kind,
        "memory_bytes": process.memory_bytes,
        "sm_percent": process.sm_percent,
        "memory_bandwidth_percent": process.memory_bandwidth_percent,
        "encoder_percent": process.encoder_percent,
        "decoder_percent": process.decoder_percent,
        "exists": process.exists,
        "user": host and host.user,
        "name": host and host.name,
        "command": host and host.command,
        "state": host and host.state,
        "parent_pid": host and host.parent_pid,
        "threads": host and host.threads,
        "cpu_percent": host and _plain(host.cpu_percent),
        "cpu_seconds": host and _plain(host.cpu_seconds),
        "host_memory_bytes": host and host.host_memory_bytes,
    }
    if process.torch is not None:
        plain["torch"] = _plain(process.torch)
    if process.gpu_instance_id is not None:
        gpu_instance, compute_instance = process.gpu_instance_id, process.compute_instance_id
        plain["mig_uuid"] = instances.get((process.gpu_uuid, gpu_instance, compute_instance or 0))
        plain["gpu_instance_id"] = gpu_instance
        plain["compute_instance_id"] = compute_instance
    return plain


def _fields(value: Any, leave_out: frozenset[str] = frozenset()) -> dict[str, Any]:
    return {
        json_key(field): _plain(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if field.compare and field.name not in leave_out
    }


def _plain(value: Any) -> Any:
    """*value* as JSON has it."""
    if isinstance(value, enum.Enum):
        return value.name.lower()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    return value
