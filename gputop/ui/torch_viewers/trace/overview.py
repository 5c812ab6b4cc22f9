"""Overview of a profiler trace: what is in it, each device's peak, how the table's columns add up."""

from __future__ import annotations

from gputop.model import clean_text
from gputop.text import fit, width, wrap
from gputop.ui.toolkit.cells import Line
from gputop.ui.torch_viewers.pane import TextPane
from gputop.ui.torch_viewers.trace.state import TraceState
from gputop.units.fine import milliseconds, size

_LABEL_CELLS = 14
_HELD_LINES = 4  # lines about what was held at a peak


class TraceOverviewPane(TextPane):
    name = "Overview"
    key = "o"

    def __init__(self, state: TraceState) -> None:
        super().__init__(state.view)
        self.state = state

    def text(self, cells: int) -> list[Line]:
        trace = self.state.trace
        events = trace.events
        lines: list[Line] = [()]
        lines += self._field("events", f"{events.seen:,}, {len(events.start):,} of them ops, kernels and frames", cells)
        lines += self._field("memory", f"{len(events.memory_at):,} events", cells)
        if trace.rank:
            lines += self._field("process", trace.rank, cells)
        if events.ooms:
            lines += self._field("out of memory", f"{events.ooms} times", cells, "critical+b")
        for note in events.notes:
            lines += self._field("note", note, cells, "warning")
        if not trace.curves:
            return [*lines, (), *[((part, "warning"),) for part in wrap(trace.why_no_memory, cells)]]
        for curve, (running_then, held_then) in zip(trace.curves, self.state.peaks.of, strict=True):
            peak = curve.peak
            rule = self.view.glyphs.rule
            rest = f" {rule * max(0, cells - width(curve.device) - 1)}"
            lines += [(), ((curve.device, "accent+b"), (rest, "faint"))]
            words = size(peak.allocated) + (f", reserved {size(peak.reserved)}" if peak.reserved > 0 else "")
            lines += self._field("peak", f"{words}, at {milliseconds(peak.at_ns - trace.begins_ns)}", cells, "title+b")
            running = clean_text(" › ".join(running_then[-4:]), 2000)
            if running:
                lines += self._field("running", running, cells)
            for n, held in enumerate(held_then[:_HELD_LINES]):
                op = f"{held.op or 'no op'}  {held.where}"
                words = f"{size(held.bytes):>8} {held.blocks:>6,}× {clean_text(op, 500)}"
                lines.append(((fit("" if n else "held by", _LABEL_CELLS), "dim"), (words, "text")))
            words = (
                f"{curve.allocations:,} allocations {size(curve.allocated_bytes)}, {curve.frees:,} frees "
                f"{size(curve.freed_bytes)}; {size(curve.never_freed)} never freed within the trace"
            )
            lines += self._field("in all", words, cells)
        lines += [(), (("How it adds up", "accent+b"),)]
        return [*lines, *[((part, "text"),) for part in wrap(self.state.peaks.adds_up, cells)]]

    def _field(self, name: str, words: str, cells: int, style: str = "text") -> list[Line]:
        parts = wrap(words, max(10, cells - _LABEL_CELLS))
        return [((fit("" if n else name, _LABEL_CELLS), "dim"), (part, style)) for n, part in enumerate(parts)]
