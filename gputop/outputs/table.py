"""A snapshot as a plain table: ``--once``, and what ``--print-on-exit`` leaves in the scrollback."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gputop import units
from gputop.model import Gpu, GpuProcess, HostFacts, MigInstance, ProcessKey, Severity, Snapshot
from gputop.settings import DEFAULTS, Settings, Thresholds
from gputop.text import fit, shorten, to_ascii, width, wrap
from gputop.units import UNKNOWN

_NARROWEST: Final = 60
_WIDEST: Final = 120  # but for command lines
_BAR: Final = 24
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_NO_FACTS: Final = HostFacts(ProcessKey(0, None), 0.0)
_BOLD, _DIM, _GREEN, _YELLOW, _RED, _CYAN = "1", "2", "32", "33", "31", "36"
_COLORS: Final = {
    Severity.NORMAL: _GREEN,
    Severity.INFO: _CYAN,
    Severity.WARNING: _YELLOW,
    Severity.CRITICAL: _RED,
}


def render(
    snapshot: Snapshot,
    settings: Settings = DEFAULTS,
    width: int | None = None,
    color: bool = False,
    ascii_only: bool = False,
) -> str:
    """The table, its lines at most *width* cells long; without a width, command lines are given whole."""
    text = "\n".join(_PlainTable(snapshot, settings, width, color).lines()) + "\n"
    return to_ascii(text) if ascii_only else text


class _PlainTable:
    def __init__(self, snapshot: Snapshot, settings: Settings, width: int | None, color: bool) -> None:
        self.snapshot, self.settings, self.color = snapshot, settings, color
        self.width = max(_NARROWEST, min(width or _WIDEST, _WIDEST))
        self.unlimited = width is None
        self.room = max(_NARROWEST, width or _WIDEST)  # of a line with a command

    def lines(self) -> Iterable[str]:
        yield from self.header()
        yield from self.gpus()
        if self.snapshot.processes:
            yield ""
            yield from self.processes()
        elif self.snapshot.gpus:
            yield ""
            unknown = [str(gpu.index) for gpu in self.snapshot.gpus if not gpu.processes_known]
            if not unknown:
                yield self.paint("No processes on these GPUs.", _DIM)
            elif len(unknown) == len(self.snapshot.gpus):
                yield self.paint("Processes unknown: the driver did not list them (see above).", _YELLOW)
            else:
                yield from self.words("", f"No processes listed; unknown for GPU {', '.join(unknown)}.", _YELLOW)

    def paint(self, text: str, *codes: str) -> str:
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self.color and codes else text

    # -- the machine

    def header(self) -> Iterable[str]:
        snapshot, host, driver = self.snapshot, self.snapshot.host, self.snapshot.driver
        parts = ["SIMULATED"] if snapshot.source != "nvml" else []
        parts += [host.name or "gputop"]
        parts += [f"driver {driver.version}"] if driver.version else []
        parts += [f"CUDA {driver.cuda_version}"] if driver.cuda_version else []
        if host.cpu_percent is not None:
            parts += [f"CPU {units.percent(host.cpu_percent)}"]
        if host.memory_total_bytes is not None:
            parts += [f"RAM {self.used_of(host.memory_used_bytes, host.memory_total_bytes)}"]
        words = " · ".join(parts)
        clock = units.timestamp(snapshot.taken_at)
        if width(words) + 1 + len(clock) > self.width:
            clock = clock.split()[-1]
        yield self.paint(fit(words, self.width - 1 - len(clock)), _BOLD) + " " + clock
        told_below = {f"GPU {gpu.index}: {gpu.error}" for gpu in snapshot.gpus}
        for problem in snapshot.problems:
            if problem not in told_below:
                yield from self.words("! ", problem, _RED)
        if host.slow:
            yield from self.words("! ", f"no answer yet: {'; '.join(host.slow)}", _YELLOW)

    def words(self, lead: str, text: str, *codes: str) -> Iterable[str]:
        """Wrapped under *lead*."""
        indent = " " * width(lead)
        for number, line in enumerate(wrap(text, self.width - width(lead))):
            yield self.paint((indent if number else lead) + line, *codes)

    # -- GPUs

    def gpus(self) -> Iterable[str]:
        gpus = self.snapshot.gpus
        if not gpus:
            return
        names = max(width(gpu.name) for gpu in gpus)
        instances = [mig for gpu in gpus for mig in gpu.mig]
        memory = max(10, *(width(self.memory(of)) for rows in (gpus, instances) for of in rows))
        power = max(5, *(width(units.power(gpu.power_watts, gpu.power_limit_watts)) for gpu in gpus))
        fixed = 4 + 1 + 6 + 5 + 2 + memory + 1 + 7 + 2 + power
        names = max(4, min(names, self.width - fixed - 8))
        bar = max(0, min(_BAR, self.width - fixed - names))
        titles = fit("MEMORY", memory + 1 + bar)
        head = f"{'GPU':>4} {fit('NAME', names)}{'UTIL':>6}{'SM%':>5}  {titles}{'TEMP':>7}  {'POWER':>{power}}"
        yield self.paint(head.rstrip(), _DIM)
        for gpu in gpus:
            yield from self.gpu(gpu, names, memory, power, bar)

    def gpu(self, gpu: Gpu, names: int, memory: int, power: int, bar: int) -> Iterable[str]:
        settings = self.settings
        share = units.percent_of(gpu.memory_used_bytes, gpu.memory_total_bytes)
        load = units.percent_of(gpu.power_watts, gpu.power_limit_watts)
        temperature = units.temperature(gpu.temperature_celsius, settings.temperature_unit)
        watts = units.power(gpu.power_watts, gpu.power_limit_watts)
        yield "".join(
            (
                self.paint(f"{gpu.index:>4} {fit(gpu.name, names)}", _BOLD),
                self.judged(f"{units.percent(gpu.utilization_gpu_percent):>6}", gpu.utilization_gpu_percent, "none"),
                f"{units.number(gpu.sm_active_percent):>5}  ",
                f"{self.memory(gpu):>{memory}} ",
                self.judged(_bar(share, bar), share, "threshold_memory"),
                self.judged(f"{temperature:>7}", gpu.temperature_celsius, "threshold_temperature"),
                "  ",
                self.judged(f"{watts:>{power}}", load, "threshold_power"),
            )
        ).rstrip()
        indent = " " * 5
        if gpu.error is not None:
            yield from self.words(indent + "! ", gpu.error, _RED)
        if (gpu.late or self.snapshot.steady_at - gpu.steady_at > 5) and gpu.memory_used_bytes is not None:
            age = units.duration(self.snapshot.steady_at - gpu.steady_at)
            yield from self.words(indent, f"the values above are {age} old", _YELLOW)
        worst, details = self.details(gpu)
        if details:
            yield from self.words(indent, " · ".join(details), *([_COLORS[worst]] if worst > Severity.INFO else [_DIM]))
        for mig in gpu.mig:
            yield from self.instance(mig, names, memory, bar)

    def details(self, gpu: Gpu) -> tuple[Severity, list[str]]:
        """What the second line of a GPU says, and how bad that is."""
        reasons = [reason for reason in gpu.event_reasons or () if reason.severity > Severity.NORMAL]
        worst = max((reason.severity for reason in reasons), default=Severity.NORMAL)
        details = [("! " if reason.severity > Severity.INFO else "") + reason.label for reason in reasons]
        if gpu.asleep:
            details.append("asleep, left asleep")
        if gpu.performance_state is not None:
            details.append(f"P{gpu.performance_state}")
        if gpu.clock_sm_mhz is not None:
            details.append(f"SM {gpu.clock_sm_mhz} MHz")
        if gpu.pcie_rx_bytes_per_second is not None or gpu.pcie_tx_bytes_per_second is not None:
            rx, tx = units.rate(gpu.pcie_rx_bytes_per_second), units.rate(gpu.pcie_tx_bytes_per_second)
            details.append(f"PCIe rx {rx}B/s tx {tx}B/s")
        if gpu.temperature_memory_celsius is not None:
            memory = units.temperature(gpu.temperature_memory_celsius, self.settings.temperature_unit)
            details.append(f"memory {memory}")
        if gpu.fan_percent is not None:
            details.append(f"fan {gpu.fan_percent}%")
        if gpu.memory_unattributed_bytes and gpu.memory_unattributed_bytes >= 256 * units.MIB:
            details.append(f"{self.size(gpu.memory_unattributed_bytes)} held by no listed process")
        details += [f"Xid {xid.code}: {xid.message}" for xid in gpu.xids[-2:]]
        details += gpu.notes
        return worst, details

    def instance(self, mig: MigInstance, names: int, memory: int, bar: int) -> Iterable[str]:
        share = units.percent_of(mig.memory_used_bytes, mig.memory_total_bytes)
        name = f"MIG {mig.name} {mig.gpu_instance_id}:{mig.compute_instance_id}"
        line = f"{'':>4} {fit(name, names + 6)}{units.number(mig.sm_active_percent):>5}  {self.memory(mig):>{memory}} "
        yield (line + self.judged(_bar(share, bar), share, "threshold_memory")).rstrip()
        if mig.error is not None:
            yield from self.words(" " * 5 + "! ", mig.error, _RED)

    def memory(self, of: Gpu | MigInstance) -> str:
        return self.used_of(of.memory_used_bytes, of.memory_total_bytes)

    def used_of(self, used: int | None, total: int | None) -> str:
        """``88.1/140.4G``: the unit once where both have the same."""
        used_text, total_text = self.size(used), self.size(total)
        if used_text[-1] == total_text[-1] and used is not None:
            used_text = used_text[:-1]
        return UNKNOWN if used is None and total is None else f"{used_text}/{total_text}"

    def size(self, bytes_: int | None) -> str:
        return units.size(bytes_, self.settings.memory_unit)

    def judged(self, text: str, value: float | None, name: str) -> str:
        """*text* in the colour of *value*."""
        thresholds: Thresholds | None = None if name == "none" else getattr(self.settings, name)
        if value is None:
            return self.paint(text, _DIM)
        if thresholds is None:
            return text
        return self.paint(text, _RED if value >= thresholds[1] else _YELLOW if value >= thresholds[0] else _GREEN)

    # -- processes

    def processes(self) -> Iterable[str]:
        processes = sorted(self.snapshot.processes, key=lambda p: (p.gpu_index, -(p.memory_bytes or 0), p.pid))
        head = ("GPU", "PID", "USER", "TYPE", "GPU-MEM", "SM%", "CPU%", "HOST", "AGE", "COMMAND")
        rows = [self.process(process) for process in processes]
        widths = [max(width(row[column]) for row in (head, *rows)) for column in range(len(head) - 1)]
        widths[0] = max(widths[0], 4)
        widths[2] = min(widths[2], 12 if self.width >= 100 else 8)
        if self.width < 100:
            widths[3] = 0  # the type is not worth a command's first words
        taken = sum(widths) + sum(1 for width in widths if width)
        room = None if self.unlimited else max(0, self.room - taken)
        yield self.paint(_row(head, widths, room), _DIM)
        for process, row in zip(processes, rows, strict=True):
            line = _row(row, widths, room)
            yield self.paint(line, _YELLOW) if process.exists is False else line

    def process(self, process: GpuProcess) -> tuple[str, ...]:
        host = process.host or _NO_FACTS
        age = None if host.start_time is None else self.snapshot.taken_at - host.start_time
        return (
            ("† " if process.exists is False else "") + process.gpu_label,
            str(process.pid),
            host.user or UNKNOWN,
            process.kind,
            self.size(process.memory_bytes),
            units.number(process.sm_percent),
            units.number(host.cpu_percent),
            self.size(host.host_memory_bytes),
            units.duration(age),
            _command(process),
        )


def _command(process: GpuProcess) -> str:
    if process.exists is False and process.host is not None:
        return (
            f"zombie of {process.host.command or process.host.name}: not reaped by its parent {process.host.parent_pid}"
        )
    if process.exists is False:
        return "dead: the host has no such process, the driver still lists it"
    if process.host is None:
        return "cannot be seen from here (another PID namespace)" if process.exists is None else UNKNOWN
    command = process.host.command or process.host.name or UNKNOWN
    label = process.host.state_label
    return f"({label}) {command}" if label else command


def _row(row: Sequence[str], widths: Sequence[int], room: int | None) -> str:
    """All columns to the right but for the user, the type and the command; those of no width are left out."""
    *columns, command = row
    fitted = [
        fit(text, width) if number in (2, 3) else fit(text, width, right=True)
        for number, (text, width) in enumerate(zip(columns, widths, strict=True))
        if width
    ]
    return f"{' '.join(fitted)} {command if room is None else shorten(command, room)}".rstrip()


def _bar(percent: float | None, width: int) -> str:
    """A bar of *width* cells, to the eighth of a cell."""
    if percent is None or width < 4:
        return " " * width
    eighths = round(max(0.0, min(100.0, percent)) / 100 * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width, "·")
