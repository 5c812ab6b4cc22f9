"""Overview: the figures of a device at the dump, its pools, how much the trace covers, the allocator's settings."""

from __future__ import annotations

from typing import Any

from gputop.text import fit, width, wrap
from gputop.torch_files.snapshot.overview import Totals, coverage_sentences, overview
from gputop.torch_files.snapshot.summary import figures
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.torch_viewers.pane import TextPane
from gputop.ui.torch_viewers.snapshot.pane import SnapshotPane
from gputop.units.fine import percent, size


class OverviewPane(SnapshotPane, TextPane):
    name = "Overview"
    key = "o"

    def text(self, cells: int) -> list[Line]:
        device, snapshot = self.device, self.state.snapshot
        totals = overview(device).totals
        lines: list[Line] = [(), *self._bar(totals, cells), ()]
        for what, much, words in figures(device, totals):
            style = "text" if what.startswith(" ") else "title"
            lines.append(
                ((fit(what, 16), "dim"), (fit(much, 9, right=True), f"{style}+b"), ("   ", "text"), (words, "dim"))
            )
        at, peak = device.peak
        if device.entries:
            at_most = "at most, " if device.unseen else ""
            moment = f"after entry {at:,} of {device.entries:,}" if at >= 0 else "before the first entry"
            where = f"requested, {at_most}{moment}"
            lines.append(
                ((fit("peak", 16), "dim"), (fit(size(peak), 9, right=True), "title+b"), (f"   {where}", "dim"))
            )
        lines += [(), self._title("Trace", cells)]
        for words in coverage_sentences(device):
            lines += [((part, "text"),) for part in wrap(words, cells)]
        if device.ooms:
            sign = self.view.glyphs.warning
            words = f"{sign} {len(device.ooms)} out of memory in the trace: press m to see why"
            lines += [((words, "critical+b"),)]
        lines += [(), self._title("Pools and streams", cells), *self._pools(cells)]
        if snapshot.settings:
            lines += [(), self._title("Allocator settings", cells)]
            for name, value in snapshot.settings.items():
                for n, part in enumerate(wrap(_value(value), max(10, cells - 34))):
                    lines.append(((fit("" if n else name, 34), "dim"), (part, "text")))
        return [*lines, (), ((snapshot.form, "dim"),)]

    def _title(self, words: str, cells: int) -> Line:
        rule = self.view.glyphs.rule
        return ((words, "accent+b"), (f" {rule * (cells - width(words) - 1)}", "faint"))

    def _bar(self, totals: Totals, cells: int) -> list[Line]:
        """Reserved memory as a stack: living, waiting, lost to rounding, stuck, releasable."""
        glyphs = self.view.glyphs
        waiting = totals.active - totals.allocated
        loss = max(0, min(totals.rounding_loss, totals.allocated))
        parts = (
            ("live", totals.allocated - loss, glyphs.full, "g0"),
            ("rounding", loss, glyphs.unattributed, "warning"),
            ("waiting for a stream", waiting, glyphs.dead_pid, "dead"),
            ("cached, stuck", totals.stuck, glyphs.cached, "s0"),
            ("cached, releasable", totals.releasable, glyphs.reserved, "reserved"),
        )
        whole = max(1, totals.reserved)
        spans: list[Span] = []
        legend: list[Span] = []
        done = drawn = 0
        for words, amount, glyph, style in parts:
            done += amount
            upto = max(drawn + (1 if amount else 0), round(cells * done / whole))
            if upto > drawn:
                spans.append((glyph * (upto - drawn), style))
                drawn = upto
            if amount:
                legend += [
                    (f"{glyph} ", style),
                    (f"{words} {size(amount)} ", "text"),
                    (f"{percent(amount, whole)}   ", "dim"),
                ]
        return [tuple(spans), tuple(legend)]

    def _pools(self, cells: int) -> list[Line]:
        snapshot = self.state.snapshot
        header = "pool      stream        class  segments reserved   active   cached releasable  largest free"
        lines: list[Line] = [((header, "dim"),)]
        for key, part in overview(self.device).pools.items():
            text = (
                f"{fit(snapshot.pool_label(key.pool), 9)} {fit(snapshot.stream_label(key.stream), 13)} "
                f"{'small' if key.small else 'large'}  {part.segments:>8,} {size(part.reserved):>8} "
                f"{size(part.active):>8} {size(part.inactive):>8} {size(part.releasable):>10} "
                f"{size(part.largest_free):>13}"
            )
            lines.append(((text, "text"),))
        return lines


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}:{part}" for key, part in value.items())
    return str(value) if value != "" else "(empty)"
