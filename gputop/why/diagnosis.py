"""The diagnosis ladder for one GPU: whose memory, live or cached or outside PyTorch, trend, suspects, throttling, and
what to do next, with the exact command or line of code. Drawn by nobody here: sections of plain lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gputop import units
from gputop.leaks.report import LeakReport
from gputop.model import Gpu, GpuProcess, LeakVerdict, ProcessKey, Severity, Snapshot, Verdict, memory_breakdown
from gputop.torch_monitor.process_memory import TorchMemory, torch_memory

MOST_PROCESSES: Final = 8
WORTH_SAYING: Final = 512 * units.MIB
OUTSIDE_MUCH: Final = 3 * units.GIB  # a CUDA context with its libraries is 0.2 to 1 GiB

MONITOR: Final = (
    "from gputop.torch_monitor import MemoryMonitor",
    "monitor = MemoryMonitor(record_history=True)  # before the loop",
    "monitor.step()                                # in it, after optimizer.step()",
)


class Section(NamedTuple):
    """A step of the ladder. A line that begins with ``$ `` is a command, with ``> `` a line of Python: not to be
    wrapped."""

    title: str
    lines: tuple[str, ...]


class ObservedTrend(NamedTuple):
    """Where the GPU's memory is going. *grown*: what each process gained while it was watched."""

    bytes_per_second: float | None = None
    seconds_to_full: float | None = None
    grown: Mapping[ProcessKey, int] = {}  # read only
    watched: float = 0.0  # seconds


class _Member(NamedTuple):
    """A process on the GPU, with what it tells of PyTorch."""

    process: GpuProcess
    split: TorchMemory | None
    verdict: LeakVerdict | None = None  # on it: of a dead pid it knows whose it was

    @property
    def label(self) -> str:
        host = self.process.host
        if host is None and self.verdict is not None:
            user, command = self.verdict.user, self.verdict.command
        else:
            user, command = (host.user, host.command or units.UNKNOWN) if host is not None else (None, None)
        unknown = "(gone)" if self.process.exists is False else units.UNKNOWN
        return f"pid {self.process.pid}  {user or units.UNKNOWN}  {(command or unknown)[:100]}"

    @property
    def is_python(self) -> bool:
        host = self.process.host
        return host is not None and "python" in f"{host.name or ''} {(host.command or '').split(' ')[0]}".lower()


def diagnose(snapshot: Snapshot, gpu: Gpu, report: LeakReport, trend: ObservedTrend) -> tuple[Section, ...]:
    """What there is to say of *gpu*, in the order in which one would ask."""
    here = [process for process in snapshot.processes if process.gpu_uuid == gpu.uuid]
    here.sort(key=lambda process: -(process.memory_bytes or 0))
    verdicts = list(report.on({gpu.uuid}).verdicts)
    on_pid = {verdict.process.pid: verdict for verdict in verdicts}
    members = [
        _Member(process, torch_memory(process, gpu, snapshot.taken_at), on_pid.get(process.pid)) for process in here
    ]
    return (
        Section("Whose memory", tuple(_whose(gpu, members, report))),
        Section("Live, cached, or outside PyTorch", tuple(_split(members))),
        Section("Trend", tuple(_trend(members, trend))),
        Section("Suspects", tuple(_suspects(verdicts, report, gpu))),
        Section("Throttling and health", tuple(_health(gpu))),
        Section("What to do next", tuple(_advice(members, verdicts, report, gpu, trend))),
    )


def headline(snapshot: Snapshot, gpu: Gpu) -> str:
    """``GPU 0 · NVIDIA H200 · 128.3G of 140.4G used (91%) · gpu01``"""
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    share = f" ({100 * used / total:.0f}%)" if used is not None and total else ""
    said = [f"GPU {gpu.index}", gpu.name, f"{units.size(used)} of {units.size(total)} used{share}"]
    busy = gpu.sm_active_percent if gpu.sm_active_percent is not None else gpu.utilization_gpu_percent
    if busy is not None:
        said.append(f"{busy:.0f}% busy")
    return " · ".join([*said, *([snapshot.host.name] if snapshot.host.name else [])])


def _whose(gpu: Gpu, members: list[_Member], report: LeakReport) -> Iterable[str]:
    if gpu.error is not None:
        yield gpu.error
    parts = memory_breakdown(gpu, [member.process for member in members])
    for member in members[:MOST_PROCESSES]:
        dead = " (dead: it exited, but its memory is still allocated)" if member.process.exists is False else ""
        yield f"{units.size(member.process.memory_bytes):>6}  {member.label}{dead}"
    rest = members[MOST_PROCESSES:]
    if rest:
        held = sum(member.process.memory_bytes or 0 for member in rest)
        yield f"{units.size(held):>6}  {len(rest)} more"
    if not members:
        told = gpu.processes_known and not gpu.asleep
        yield "no process is listed" if told else "its processes are not known"
    if parts.unknown is not None:
        yield f"{units.UNKNOWN:>6}  unattributed: {parts.unknown}"
    elif parts.unattributed is not None and parts.unattributed >= WORTH_SAYING:
        yield f"{units.size(parts.unattributed):>6}  unattributed: used by no listed process"
    if parts.reserved:
        yield f"{units.size(parts.reserved):>6}  reserved by the driver"
    yield f"{units.size(parts.free):>6}  free"


def _split(members: list[_Member]) -> Iterable[str]:
    told = [member for member in members if member.split is not None]
    for member in told:
        split = member.split
        assert split is not None
        outside = "" if split.outside is None else f", outside PyTorch {units.size(split.outside)}"
        age = "" if split.fresh else f" ({units.duration(split.age)} ago: a long step, or it hangs)"
        yield (
            f"pid {member.process.pid}: live {units.size(split.live)}, cached {units.size(split.cached)} "
            f"(up to {units.size(split.releasable)} of it could be released){outside}{age}"
        )
        device = split.device
        peak = f"peak {units.size(device.peak_bytes)}, in the newest step {units.size(device.step_peak_bytes)}"
        retries = f"; {device.retries} cache flushes: it is at its memory limit" if device.retries else ""
        yield f"  {peak}{retries}{f'; {device.ooms} OOMs' if device.ooms else ''}"
        most = max(device.phases, key=lambda phase: phase.peak_bytes, default=None)
        if most is not None:
            yield f"  the peak of each step is in phase {most.name}: {units.size(most.peak_bytes)}"
    silent = [member for member in members if member.split is None and member.is_python]
    if silent:
        pids = " ".join(str(member.process.pid) for member in silent[:MOST_PROCESSES])
        yield f"not known for pid {pids}: only the process itself can report it (see below)"
    if not told and not silent:
        yield "no process here reports it"


def _trend(members: list[_Member], trend: ObservedTrend) -> Iterable[str]:
    if trend.bytes_per_second:
        growing = trend.bytes_per_second > 0
        rate = units.size(abs(trend.bytes_per_second) * 60)
        full = ""
        if growing and trend.seconds_to_full is not None:
            full = f": full in {units.duration(trend.seconds_to_full)} at this rate"
        yield f"{'growing' if growing else 'shrinking'} by {rate} a minute{full}"
    elif trend.bytes_per_second is None:
        yield "not watched long enough"
    else:
        yield "steady"
    for member in members:
        grown = trend.grown.get(member.process.key, 0)
        if abs(grown) >= units.MIB:
            sign = "+" if grown > 0 else "-"
            yield f"pid {member.process.pid}: {sign}{units.size(abs(grown))} in {units.duration(trend.watched)}"


def _suspects(verdicts: list[LeakVerdict], report: LeakReport, gpu: Gpu) -> Iterable[str]:
    for verdict in verdicts:
        size = units.size(verdict.memory_bytes)
        yield f"{verdict.verdict.name}  pid {verdict.process.pid}  {size}: {verdict.findings[0].evidence}"
        if verdict.doubts:
            yield f"  unless {'; or '.join(verdict.doubts)}"
    unattributed = report.unattributed_on(gpu.uuid)
    if unattributed is not None and unattributed.causes:
        cause = unattributed.causes[0]
        yield f"unattributed memory, perhaps {cause.name}: {cause.evidence}"
    if not verdicts and unattributed is None:
        yield "none"
    yield from report.unsure


def _health(gpu: Gpu) -> Iterable[str]:
    reasons = [reason for reason in gpu.event_reasons or () if reason.severity > Severity.NORMAL]
    for reason in reasons:
        normal = " (normal at full load)" if reason.severity is Severity.INFO else ""
        yield f"clocks reduced: {reason.label}{normal}"
    if gpu.event_reasons is None:
        yield "the driver does not report clock event reasons"
    elif not reasons:
        yield "not throttled"
    if gpu.temperature_celsius is not None:
        margin = gpu.temperature_margin_celsius
        yield f"{gpu.temperature_celsius} °C" + (f", {margin} below its limit" if margin is not None else "")
    if gpu.xids:
        yield f"Xid {gpu.xids[-1].code}: {gpu.xids[-1].message}"
    if gpu.facts.recovery_action:
        yield gpu.facts.recovery_action


def _advice(
    members: list[_Member], verdicts: list[LeakVerdict], report: LeakReport, gpu: Gpu, trend: ObservedTrend
) -> Iterable[str]:
    said = False
    for verdict in verdicts:
        if verdict.targets and verdict.verdict in (Verdict.LEAK, Verdict.STUCK, Verdict.SUSPECT):
            owner = report.owners.get(verdict.process)
            command = owner.stop_with if owner is not None and owner.stop_with else None
            pids = " ".join(str(key.pid) for key in verdict.targets)
            yield f"To free {units.size(verdict.memory_bytes)} (check first that it is not needed):"
            yield f"$ {command or f'kill {pids}'}"
            said = True
        elif verdict.verdict is Verdict.LEAK and not verdict.targets:
            dead_pid = report.dead_pid(verdict.process.pid)
            if dead_pid is not None and not dead_pid.scanned:
                yield f"To find what holds the memory of pid {verdict.process.pid} (as root, to see all processes):"
                yield "$ gputop leaks"
            else:
                yield f"No process holds the memory of pid {verdict.process.pid}. If it stays this way, as root:"
                yield f"$ nvidia-smi -i {gpu.index} --gpu-reset   # when nothing uses the GPU; or reboot"
            said = True
    unattributed = report.unattributed_on(gpu.uuid)
    if unattributed is not None and unattributed.causes:
        yield unattributed.causes[0].advice
        said = True
    for member in members:
        for line in _for_process(member, trend):
            yield line
            said = True
    silent = [member for member in members if member.split is None and member.is_python and member.process.exists]
    if silent:
        yield f"To see inside pid {silent[0].process.pid}, if it uses PyTorch, add to its script:"
        yield from (f"> {line}" for line in MONITOR)
        yield "then press T on it in gputop to write a snapshot that shows which lines hold the memory."
        said = True
    bad = [reason for reason in gpu.event_reasons or () if reason.severity >= Severity.WARNING]
    if bad:
        yield f"Clocks are reduced ({bad[0].label}): check cooling and power supply."
        yield f"$ nvidia-smi -i {gpu.index} -q -d PERFORMANCE,TEMPERATURE,POWER"
        said = True
    if not said:
        yield "Nothing stands out."


def _for_process(member: _Member, trend: ObservedTrend) -> Iterable[str]:
    split, pid = member.split, member.process.pid
    if split is None:
        return
    report = member.process.torch
    growing = trend.grown.get(member.process.key, 0) >= units.MIB or (trend.bytes_per_second or 0) > 0
    if growing:
        if report is not None and not report.recording:
            yield f"pid {pid} grows: press T on it in gputop, start recording, wait for some steps, write a snapshot."
        else:
            yield f"pid {pid} grows: press T on it in gputop and write a snapshot; its leaks view names the lines."
        yield "A usual cause is a sum of losses that keeps each step's graph alive:"
        yield "> total += loss.item()   # not: total += loss"
    if split.releasable >= WORTH_SAYING and split.releasable >= split.live // 4:
        yield f"pid {pid} caches {units.size(split.releasable)} that others could use; once, after the peak is over:"
        yield "> torch.cuda.empty_cache()"
    stuck = split.device.inactive_split_bytes
    if stuck >= WORTH_SAYING or split.device.retries:
        yield f"pid {pid}: {units.size(stuck)} of its cache are stuck in pieces (fragmentation). Start it with:"
        yield "$ export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    if split.outside is not None and split.outside >= OUTSIDE_MUCH:
        yield (
            f"pid {pid} holds {units.size(split.outside)} outside PyTorch: NCCL buffers of many communicators, "
            "CUDA graphs, cuBLAS workspaces, or another library (JAX, CuPy). Late loading of kernels saves some:"
        )
        yield "$ export CUDA_MODULE_LOADING=LAZY"
