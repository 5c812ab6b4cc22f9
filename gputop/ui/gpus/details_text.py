"""Everything that is known about a GPU, as lines; unknown is a dash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gputop import units
from gputop.history.detail_history import DetailHistory
from gputop.history.gpu_history import History
from gputop.leaks.report import LeakReport
from gputop.model import Gpu, GpuFacts, Severity, Snapshot, event_reasons
from gputop.text import fit, wrap
from gputop.ui.gpus.parts import tall_sparkline
from gputop.ui.leaks.text import about_holders, about_unattributed
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.glyphs import gauge
from gputop.ui.toolkit.palette import gpu_role, load_role, soft_role
from gputop.ui.toolkit.scrolling_page import Part, field, spread
from gputop.ui.toolkit.view import View

_GPM: Final = {True: "yes", False: "no: no SM activity of the whole GPU", None: units.UNKNOWN}
_SEVERITY: Final = {
    Severity.NORMAL: ("dim", ""),
    Severity.INFO: ("text", ""),
    Severity.WARNING: ("warning+b", " (warning)"),
    Severity.CRITICAL: ("critical+b", " (critical)"),
}
_LINK_STATES: Final = {True: ("up", "good"), False: ("down", "warning"), None: (units.UNKNOWN, "dim")}
_TOPOLOGY: Final = {
    "SYS": "through the link between CPUs",
    "NODE": "through PCIe and the CPU's own interconnect",
    "PHB": "through one PCIe host bridge",
    "PXB": "through several PCIe switches",
    "PIX": "through one PCIe switch",
    "X": "itself",
}


class GpuText:
    """The lines on *gpu*, which is one of *snapshot*'s; *cells* is the width of a part."""

    def __init__(
        self,
        gpu: Gpu,
        snapshot: Snapshot | None,
        history: History,
        past: DetailHistory,
        view: View,
        cells: int,
        report: LeakReport | None = None,
    ) -> None:
        self._gpu, self._snapshot, self._history, self._past = gpu, snapshot, history, past
        self.view, self._cells, self._report = view, cells, report

    def parts(self) -> list[Part]:
        gpu, cells = self._gpu, self._cells
        return [
            Part("Load", self._load(gpu, cells)),
            Part("Memory", self._memory(gpu, cells)),
            *self._findings(gpu, cells),
            Part("Past minutes", self._curves(gpu, cells)),
            Part("Clocks", self._clocks(gpu, cells)),
            Part("Temperature and fans", self._temperature(gpu, cells)),
            Part("Power", self._power(gpu, cells)),
            Part("PCIe", self._pcie(gpu, cells)),
            Part("NVLink", self._nvlink(gpu, cells)),
            Part("Health", self._health(gpu.facts, cells)),
            Part("Xid events", self._xids(gpu, cells)),
            Part("MIG instances", self._mig(gpu)),
            Part("To the other GPUs", self._topology(gpu, cells)),
            Part("Identity", self._identity(gpu, cells)),
        ]

    def _load(self, gpu: Gpu, cells: int) -> list[Line]:
        values: list[tuple[str, float | None]] = [
            ("utilization", gpu.utilization_gpu_percent),
            ("memory busy", gpu.utilization_memory_percent),
            ("SM active", gpu.sm_active_percent),
            ("SM occupancy", gpu.sm_occupancy_percent),
            ("tensor cores", gpu.tensor_active_percent),
            ("DRAM bandwidth", gpu.dram_bandwidth_percent),
            ("encoder", gpu.utilization_encoder_percent),
            ("decoder", gpu.utilization_decoder_percent),
            ("JPEG", gpu.utilization_jpeg_percent),
            ("OFA", gpu.utilization_ofa_percent),
        ]
        bar = max(8, min(40, cells - 24))
        glyphs = self.view.glyphs
        return [
            spread(label, (*gauge(n, bar, load_role(n), glyphs), (fit(units.percent(n), 6, right=True), "title")))
            for label, n in values
        ]

    def _memory(self, gpu: Gpu, cells: int) -> list[Line]:
        total = gpu.memory_total_bytes

        def amount(label: str, bytes_: int | None, style: str = "text") -> Line:
            share = f"{100 * bytes_ / total:5.1f} %" if bytes_ is not None and total else ""
            return spread(label, ((fit(self.view.memory(bytes_), 8, right=True), style), (f"  {share}", "dim")))

        facts = gpu.facts
        used = "used" if gpu.memory_reserved_bytes is not None else "used + reserved"
        lines = [
            amount("total", total, "title"),
            amount(used, gpu.memory_used_bytes, "title+b"),
            *self._shares(gpu, amount),
            amount("reserved", gpu.memory_reserved_bytes),
            amount("free", gpu.memory_free_bytes),
        ]
        if gpu.memory_is_shared:
            lines.append((("Shared with the host: used is what its processes hold", "dim"),))
        bar1 = None
        if facts.bar1_total_bytes is not None:
            bar1 = f"{self.view.memory(facts.bar1_used_bytes)} of {self.view.memory(facts.bar1_total_bytes)}"
        return [*lines, *field("BAR1", bar1, cells)]

    def _shares(self, gpu: Gpu, amount: Callable[[str, int | None], Line]) -> list[Line]:
        """What is used, by whom: used = listed + held by dead pids + unattributed - shared."""
        found = self._report.breakdown(gpu.uuid) if self._report is not None else None
        if found is None:
            return [amount("unattributed", gpu.memory_unattributed_bytes)]
        lines = [amount("  processes", found.living), amount("  dead pids", found.dead_pids)]
        lines.append(amount("  unattributed", found.unattributed))
        if found.shared:
            lines += [amount("  shared, twice", found.shared)]
        if found.unknown is not None:
            lines += [((part, "dim"),) for part in wrap(f"Cannot be told apart: {found.unknown}", self._cells)]
        return lines

    def _findings(self, gpu: Gpu, cells: int) -> list[Part]:
        """Memory that nobody accounts for, and memory that dead pids hold."""
        report = self._report
        if report is None:
            return []
        parts = []
        card = report.unattributed_on(gpu.uuid)
        if card is not None:
            parts.append(Part("Used by no listed process", about_unattributed(card, str(gpu.index), self.view, cells)))
        for dead_pid in report.dead_pids:
            if any(uuid == gpu.uuid for uuid, _ in dead_pid.memory):
                held = self.view.memory(dead_pid.memory_bytes)
                parts.append(
                    Part(f"Dead pid {dead_pid.pid}: {held}", about_holders(dead_pid, report, self.view, cells))
                )
        return parts

    def _curves(self, gpu: Gpu, cells: int) -> list[Line]:
        track = self._history.track(gpu.uuid)
        if track is None:
            return []
        columns = max(10, cells - 13)
        lines: list[Line] = []
        for label, buckets in (("utilization", track.utilization), ("memory", track.memory)):
            rows = tall_sparkline(buckets.last(columns), columns, 3, soft_role(gpu.index), self.view.glyphs)
            for n, span in enumerate(rows):
                lines.append((span, (fit((" 100 %", "", f" {label}")[n], 13), "dim")))
        if track.peak_bytes is not None and track.peak_at is not None:
            at = units.clock_or_day(track.peak_at)
            lines += field("most used", f"{self.view.memory(track.peak_bytes)} at {at}", cells)
        return lines

    def _clocks(self, gpu: Gpu, cells: int) -> list[Line]:
        facts = gpu.facts
        state = None if gpu.performance_state is None else f"P{gpu.performance_state}"
        lines = [
            *field("SM", _of(gpu.clock_sm_mhz, facts.clock_sm_max_mhz, "MHz"), cells),
            *field("memory", _of(gpu.clock_memory_mhz, facts.clock_memory_max_mhz, "MHz"), cells),
            *field("video", _of(gpu.clock_video_mhz, facts.clock_video_max_mhz, "MHz"), cells),
            *field("state", state, cells),
        ]
        reasons = gpu.event_reasons
        if reasons is None:
            return [*lines, *field("reasons", None, cells)]
        spans: list[Span] = []
        for reason in reasons:
            style, suffix = _SEVERITY[reason.severity]
            spans += [(", ", "dim")] * bool(spans) + [(reason.label + suffix, style)]
        free: list[Span] = [("none: nothing holds the clocks down", "dim")]
        return [*lines, spread("reasons", spans or free), *self._timeline(cells)]

    def _timeline(self, cells: int) -> list[Line]:
        """Which reasons there were, over time: a cell is 2 s."""
        ring = self._past.reasons.get(self._gpu.uuid)
        if ring is None:
            return []
        masks = ring.last(max(10, min(120, cells - 16)))
        seen = 0
        for mask in masks:
            seen |= max(0, mask)
        full, track = self.view.glyphs.full, self.view.glyphs.track
        lines = []
        for reason in event_reasons(seen) or ():
            text = "".join([" " if mask < 0 else full if mask & reason.bit else track for mask in masks])
            lines.append(spread(f"  {reason.label}", [(text, _SEVERITY[reason.severity][0])]))
        return [*lines, spread("", [("2 s a cell, the newest at the right", "dim")])] if lines else []

    def _temperature(self, gpu: Gpu, cells: int) -> list[Line]:
        facts, view = gpu.facts, self.view
        limits = [
            (words, view.temperature(value))
            for words, value in (
                ("highest wanted", facts.temperature_max_celsius),
                ("slows down", facts.temperature_slowdown_celsius),
                ("shuts down", facts.temperature_shutdown_celsius),
            )
            if value is not None
        ]
        margin = None
        if gpu.temperature_margin_celsius is not None:
            left = units.temperature_difference(gpu.temperature_margin_celsius, view.settings.temperature_unit)
            margin = f"{left} before it slows down"
        memory = None
        if gpu.temperature_memory_celsius is not None:
            most = facts.temperature_memory_max_celsius
            memory = view.temperature(gpu.temperature_memory_celsius)
            memory += f", at most {view.temperature(most)}" if most is not None else ""
        lines = [
            *field("GPU", view.temperature(gpu.temperature_celsius), cells, "title"),
            *field("limits", ", ".join(f"{words} {value}" for words, value in limits) or None, cells),
            *field("margin", margin, cells),
            *field("memory", memory, cells),
        ]
        if not gpu.fans_percent:
            return [*lines, *field("fans", "none that the driver reports", cells, "dim")]
        for n, percent in enumerate(gpu.fans_percent):
            rpm = facts.fan_rpm[n] if facts.fan_rpm and n < len(facts.fan_rpm) else None
            turns = f", {rpm} rpm" if rpm is not None else ""
            lines += field(f"fan {n}", units.percent(percent) + turns if percent is not None else None, cells)
        return lines

    def _power(self, gpu: Gpu, cells: int) -> list[Line]:
        facts = gpu.facts
        low, high = facts.power_limit_min_watts, facts.power_limit_max_watts
        span = None if low is None or high is None else f"{low:.0f} to {high:.0f} W can be set"
        return [
            *field("draw", _of(gpu.power_watts, gpu.power_limit_watts, "W"), cells, "title"),
            *field("this instant", units.watts(gpu.power_instant_watts), cells),
            *field("limit", units.watts(gpu.power_limit_watts), cells),
            *field("default limit", units.watts(facts.power_limit_default_watts), cells),
            *field("range", span, cells),
        ]

    def _pcie(self, gpu: Gpu, cells: int) -> list[Line]:
        facts = gpu.facts
        link = None
        if facts.pcie_generation is not None or facts.pcie_width is not None:
            link = f"gen {_or(facts.pcie_generation)} ×{_or(facts.pcie_width)}"
            link += f" of gen {_or(facts.pcie_generation_max)} ×{_or(facts.pcie_width_max)}"
        return [
            *field("link", link, cells),
            *field("to the GPU", _rate(gpu.pcie_rx_bytes_per_second), cells),
            *field("from the GPU", _rate(gpu.pcie_tx_bytes_per_second), cells),
            *field("replays", _count(facts.pcie_replays), cells),
        ]

    def _nvlink(self, gpu: Gpu, cells: int) -> list[Line]:
        links = gpu.facts.nvlinks or ()
        if not links:
            return [(("none", "dim"),)]
        lines = [
            *field("receives", _rate(gpu.nvlink_rx_bytes_per_second), cells),
            *field("sends", _rate(gpu.nvlink_tx_bytes_per_second), cells),
        ]
        down, up = self.view.glyphs.down, self.view.glyphs.up
        for link in links:
            state, style = _LINK_STATES[link.active]
            rx, tx = units.rate(link.rx_bytes_per_second), units.rate(link.tx_bytes_per_second)
            flow = (f"{down}{rx:>5} {up}{tx:>5}  ", "text")
            lines.append(spread(f"link {link.index}", ((fit(state, 7), style), flow, (link.peer or "", "dim"))))
        return lines

    def _health(self, facts: GpuFacts, cells: int) -> list[Line]:
        ecc = {True: "on", False: "off", None: None}[facts.ecc_enabled]

        def errors(now: int | None, total: int | None) -> str | None:
            if now is None and total is None:
                return None
            return f"{_or(now)} since the driver was loaded, {_or(total)} in all"

        def style(*counts: int | None) -> str:
            return "critical+b" if any(counts) else "text"

        pending = {True: "pending: reset the GPU", False: "no", None: None}[facts.rows_remap_pending]
        failed = {True: "failed: have the board replaced", False: "no", None: None}[facts.rows_remap_failed]
        remapped = None
        if facts.rows_remapped_corrected is not None or facts.rows_remapped_uncorrected is not None:
            remapped = f"{_or(facts.rows_remapped_corrected)} after corrected, "
            remapped += f"{_or(facts.rows_remapped_uncorrected)} after uncorrected errors"
        return [
            *field("ECC", ecc, cells),
            *field("corrected", errors(facts.ecc_corrected, facts.ecc_corrected_total), cells),
            *field("uncorrected", errors(facts.ecc_uncorrected, facts.ecc_uncorrected_total), cells,
                   style(facts.ecc_uncorrected)),
            *field("remapped rows", remapped, cells),
            *field("remap pending", pending, cells, style(facts.rows_remap_pending)),
            *field("remap failed", failed, cells, style(facts.rows_remap_failed)),
            *field("action wanted", facts.recovery_action or "none", cells, style(bool(facts.recovery_action))),
        ]  # fmt: skip

    def _xids(self, gpu: Gpu, cells: int) -> list[Line]:
        if not gpu.xids:
            return [(("none since gputop runs", "dim"),)]
        lines: list[Line] = []
        for xid in reversed(gpu.xids):
            at = units.clock(xid.at)
            style = _SEVERITY[xid.severity][0]
            for n, part in enumerate(wrap(xid.message, max(8, cells - 18))):
                head = (f"{at}  {xid.code:>4}   " if not n else " " * 17, style)
                lines.append((head, (part, "text")))
        return lines

    def _mig(self, gpu: Gpu) -> list[Line]:
        if not gpu.mig:
            mode = {True: "MIG is on, without instances", False: "MIG is off", None: "no MIG on this GPU"}
            return [((mode[gpu.facts.mig_mode], "dim"),)]
        lines: list[Line] = []
        for instance in gpu.mig:
            used, total = self.view.memory(instance.memory_used_bytes), self.view.memory(instance.memory_total_bytes)
            memory = f"{used} of {total}"
            ids = f"{instance.gpu_instance_id}:{instance.compute_instance_id}"
            lines.append(((f"{ids:>6}  ", "title"), (fit(instance.name, 12), "text"), (f"{memory:>16}", "text"),
                          (f"  SM {units.percent(instance.sm_active_percent)}", "text")))  # fmt: skip
            if instance.error is not None:
                lines.append(((f"        {instance.error}", "critical"),))
            lines.append(((f"        {instance.uuid}", "dim"),))
        return lines

    def _topology(self, gpu: Gpu, cells: int) -> list[Line]:
        lines: list[Line] = []
        for uuid, word in gpu.facts.topology or ():
            other = self._snapshot.gpu(uuid) if self._snapshot is not None else None
            links = word.removeprefix("NV")
            words = f"{links} NVLinks" if word.startswith("NV") and links.isdecimal() else _TOPOLOGY.get(word, "")
            role = gpu_role(other.index) if other is not None else "text"
            name = f"GPU {other.index}" if other is not None else uuid
            words = fit(words, max(0, cells - 14)).rstrip()
            lines.append(((fit(name, 8), role), (fit(word, 6), "title"), (words, "dim")))
        return lines or [(("not known, or no other GPU", "dim"),)]

    def _identity(self, gpu: Gpu, cells: int) -> list[Line]:
        facts, driver = gpu.facts, self._snapshot.driver if self._snapshot is not None else None
        minor = None if facts.minor_number is None else f"/dev/nvidia{facts.minor_number}"
        switch = {True: "on", False: "off", None: None}
        return [
            *field("name", gpu.name, cells),
            *field("UUID", gpu.uuid, cells),
            *field("PCI bus", gpu.pci_bus_id, cells),
            *field("device", minor, cells),
            *field("architecture", facts.architecture, cells),
            *field("compute cap.", facts.compute_capability, cells),
            *field("serial", facts.serial, cells),
            *field("VBIOS", facts.vbios, cells),
            *field("driver", driver.version if driver is not None else None, cells),
            *field("CUDA at most", driver.cuda_version if driver is not None else None, cells),
            *field("persistence", switch[facts.persistence_mode], cells),
            *field("compute mode", facts.compute_mode, cells),
            *field("display", {True: "in use", False: "none", None: None}[facts.display_active], cells),
            *field("MIG", {True: "on", False: "off", None: "this GPU has none"}[facts.mig_mode], cells),
            *field("GPM", _GPM[facts.gpm], cells),
            *field("NUMA node", _count(facts.numa_node), cells),
            *field("near CPUs", facts.cpu_affinity, cells),
        ]


def _of(value: float | None, most: float | None, unit: str) -> str | None:
    if value is None:
        return None
    return f"{value:.0f} {unit}" if most is None else f"{value:.0f} of {most:.0f} {unit}"


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{units.rate(value)}B/s"


def _count(value: int | None) -> str | None:
    return None if value is None else str(value)


def _or(value: int | None) -> str:
    return units.UNKNOWN if value is None else str(value)
