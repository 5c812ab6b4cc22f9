"""Series for each process, in the text format, without the client library: it takes 25 µs a sample, and a machine with
512 processes has 2048 of them. Their labels are put together once; they are the dear part.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from gputop.leaks.process_context import Investigator
from gputop.model import GpuProcess, HostFacts, ProcessKey, Snapshot
from gputop.model.owner import Owner
from gputop.outputs.prometheus import is_up

_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def _sm(process: GpuProcess) -> float | None:
    return None if process.sm_percent is None else process.sm_percent / 100


def _alive(process: GpuProcess) -> int | None:
    return None if process.exists is None else int(process.exists)


_GAUGES: Final[tuple[tuple[str, str, Callable[[GpuProcess], float | None]], ...]] = (
    ("gputop_process_memory_used_bytes", "GPU memory of the process.", lambda process: process.memory_bytes),
    ("gputop_process_sm_ratio", "Share of the multiprocessors' time the process used.", _sm),
    ("gputop_process_alive", "0: a pid that holds GPU memory and does not exist.", _alive),
)


class ProcessOwners:
    """Whose processes are, found out in a thread of its own: what it reads of /proc takes milliseconds, and a scrape
    waits for nothing."""

    def __init__(self, investigator: Callable[[], Investigator]) -> None:
        self._make = investigator
        self._owners: dict[ProcessKey, Owner] = {}
        self._wanted: queue.SimpleQueue[tuple[HostFacts, ...]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def of(self, host: HostFacts | None) -> Owner | None:
        """None while it is not known yet."""
        return None if host is None else self._owners.get(host.key)

    def look(self, snapshot: Snapshot) -> None:
        """Find out about those of *snapshot* that are not known."""
        hosts = tuple(process.host for process in snapshot.processes if process.host is not None)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="owners", daemon=True)
            self._thread.start()
        if self._wanted.empty() and any(host.key not in self._owners for host in hosts):
            self._wanted.put(hosts)

    def _run(self) -> None:
        investigator = self._make()
        while True:
            hosts = self._wanted.get()
            keys = {host.key for host in hosts}
            investigator.forget(keys)
            known = {key: owner for key, owner in self._owners.items() if key in keys}
            for host in hosts:
                if host.key not in known:
                    known[host.key] = investigator.owner(host)
            self._owners = known


class _Labels(NamedTuple):
    of: tuple[object, ...]  # what they were made of
    ids: str
    info: str


class ProcessText:
    """Renders the processes of snapshots; keeps the labels of those that are there."""

    def __init__(self, owner: Callable[[HostFacts | None], Owner | None] = lambda host: None) -> None:
        self._owner = owner
        self._labels: dict[tuple[object, ...], _Labels] = {}

    def render(self, snapshot: Snapshot) -> str:
        """All series of the processes on GPUs that can be read. Each process once per GPU or MIG device."""
        up = {gpu.uuid for gpu in snapshot.gpus if is_up(gpu)}
        before = self._labels
        kept: dict[tuple[object, ...], _Labels] = {}
        rows: list[tuple[_Labels, GpuProcess]] = []
        for process in snapshot.processes:
            key = (process.gpu_uuid, process.pid, process.gpu_instance_id, process.compute_instance_id)
            if process.gpu_uuid not in up or key in kept:
                continue
            host = process.host
            of = (
                process.kind,
                None if host is None else host.user,
                None if host is None else host.name,
                self._owner(host),
            )
            labels = before.get(key)
            if labels is None or labels.of != of:
                labels = _labels(process, of)
            kept[key] = labels
            rows.append((labels, process))
        self._labels = kept
        if not rows:
            return ""
        lines = _head("gputop_process_info", "A process on a GPU.")
        lines += [labels.info for labels, _ in rows]
        for name, help_, value in _GAUGES:
            known = [(labels.ids, value(process)) for labels, process in rows]
            series = [f"{name}{{{ids}}} {number}" for ids, number in known if number is not None]
            if series:
                lines += _head(name, help_)
                lines += series
        lines.append("")
        return "\n".join(lines)


def _head(name: str, help_: str) -> list[str]:
    return [f"# HELP {name} {help_}", f"# TYPE {name} gauge"]


def _labels(process: GpuProcess, of: tuple[str | None, str | None, str | None, Owner | None]) -> _Labels:
    ids: dict[str, object] = {"uuid": process.gpu_uuid, "pid": process.pid}
    if process.gpu_instance_id is not None:
        ids |= {"gpu_instance_id": process.gpu_instance_id, "compute_instance_id": process.compute_instance_id or 0}
    kind, user, name, owner = of
    info = _text(ids | {"user": user or "", "name": name or "", "type": kind or ""} | _owner_labels(owner))
    return _Labels(of, _text(ids), f"gputop_process_info{{{info}}} 1")


def _owner_labels(owner: Owner | None) -> dict[str, object]:
    """Job, pod, namespace, container, unit and rank, only what is known. The job is ``job_id``: Prometheus itself calls
    the scraped target ``job``. A pod without a name is told by its UID."""
    if owner is None:
        return {}
    container = owner.container
    pod = container is not None and (container.pod_name or container.pod)
    known = {
        "job_id": owner.slurm_job or owner.batch_job,
        "pod": pod or None,
        "namespace": None if container is None else container.namespace,
        "container": None if container is None else container.id or container.engine,
        "unit": owner.unit if container is None and owner.slurm_job is None else None,  # else it is only their cgroup
        "rank": owner.rank,
    }
    return {label: text for label, text in known.items() if text is not None}


def _text(labels: dict[str, object]) -> str:
    return ",".join(f'{name}="{str(value).translate(_ESCAPED)}"' for name, value in labels.items())
