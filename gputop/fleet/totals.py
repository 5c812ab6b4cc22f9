"""Sums of hosts that are all at hand: of everything, by model, by any label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gputop.fleet.model import FleetGpu, FleetGroup, FleetHost, GpuState, HostState, Totals

#: What GPUs can be grouped by besides the labels of their hosts.
GROUPS = ("model", "user", "job", "namespace", "pod", "state", "host")


class _Sum:
    __slots__ = ("busy", "hosts", "known", "memory_total", "memory_used", "power", "states")

    def __init__(self) -> None:
        self.hosts: dict[str, HostState] = {}
        self.states: dict[GpuState, int] = {}
        self.memory_total: int | None = None
        self.memory_used: int | None = None
        self.power: float | None = None
        self.busy = 0.0
        self.known = 0

    def add(self, host: FleetHost, gpu: FleetGpu | None) -> None:
        self.hosts[host.name] = host.state
        if gpu is None:
            return
        self.states[gpu.state] = self.states.get(gpu.state, 0) + 1
        values = gpu.gpu
        if values.memory_total_bytes is not None:
            self.memory_total = (self.memory_total or 0) + values.memory_total_bytes
        if values.memory_used_bytes is not None:
            self.memory_used = (self.memory_used or 0) + values.memory_used_bytes
        if values.power_watts is not None:
            self.power = (self.power or 0.0) + values.power_watts
        if values.utilization_gpu_percent is not None:
            self.busy += values.utilization_gpu_percent
            self.known += 1

    def totals(self) -> Totals:
        states, hosts = self.states, list(self.hosts.values())
        return Totals(
            hosts=len(hosts),
            hosts_stale=hosts.count(HostState.STALE),
            hosts_unreachable=hosts.count(HostState.UNREACHABLE),
            gpus=sum(states.values()),
            gpus_free=states.get(GpuState.FREE, 0),
            gpus_busy=states.get(GpuState.BUSY, 0),
            gpus_idle_held=states.get(GpuState.IDLE_HELD, 0),
            gpus_broken=states.get(GpuState.BROKEN, 0),
            gpus_unreachable=states.get(GpuState.UNREACHABLE, 0),
            memory_total_bytes=self.memory_total,
            memory_used_bytes=self.memory_used,
            power_watts=self.power,
            utilization_percent=self.busy / self.known if self.known else None,
        )


def totals_of(hosts: Iterable[FleetHost]) -> Totals:
    sums = _Sum()
    for host in hosts:
        sums.add(host, None)
        for gpu in host.gpus:
            sums.add(host, gpu)
    return sums.totals()


def totals_by_model(hosts: Iterable[FleetHost]) -> dict[str, Totals]:
    """By the GPUs' names, the most frequent first."""
    return {group.label: group.totals for group in groups_of(hosts, "model")}


def groups_of(hosts: Iterable[FleetHost], by: str) -> tuple[FleetGroup, ...]:
    """The GPUs of *hosts* by one of GROUPS or a label of the hosts; the largest group first."""
    sums: dict[str, _Sum] = {}
    for host in hosts:
        for gpu in host.gpus:
            for label in labels_of(host, gpu, by):
                sums.setdefault(label, _Sum()).add(host, gpu)
    groups = [FleetGroup(label, one.totals()) for label, one in sums.items()]
    return tuple(sorted(groups, key=lambda group: (-group.totals.gpus, group.label)))


def labels_of(host: FleetHost, gpu: FleetGpu, name: str) -> Iterator[str]:
    """What *gpu* of *host* has for *name* (one of GROUPS or a label of the host), each once; "" where nothing."""
    match name:
        case "model":
            yield gpu.gpu.name
        case "state":
            yield gpu.state.value
        case "host":
            yield host.name
        case "user" | "job" | "namespace" | "pod" | "container" | "unit":
            values = dict.fromkeys(getattr(usage, name) for usage in gpu.usages)
            yield from [value for value in values if value] or [""]
        case _:
            yield host.labels.get(name, "")
