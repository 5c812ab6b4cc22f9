"""Memory over time, from a trace's memory events: the curve, what ran at the cursor, and who held memory then."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gputop.model import clean_text
from gputop.text import fit
from gputop.torch_files.trace.memory_curve import MemoryCurve
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.frame import Hint
from gputop.ui.torch_viewers.curve_pane import CurvePane
from gputop.ui.torch_viewers.trace.state import TraceState
from gputop.units.fine import milliseconds, signed, size

_HELD_LINES = 6  # lines about what is held at the cursor, at most
_OPEN_LINES = 6  # about what ran


class TraceMemoryPane(CurvePane):
    name = "Memory"
    key = "m"

    def __init__(self, state: TraceState) -> None:
        super().__init__(state.view)
        self.state = state

    @property
    def _curve(self) -> MemoryCurve:
        assert self.state.curve is not None
        return self.state.curve

    @property
    def of(self) -> Hashable:
        return id(self.state.curve)

    @property
    def points(self) -> int:
        return 0 if self.state.curve is None else len(self.state.curve)

    @property
    def cursor(self) -> int:
        return self.state.cursor

    @cursor.setter
    def cursor(self, event: int) -> None:
        self.state.cursor = event

    @property
    def peak(self) -> tuple[int, int]:
        peak = self._curve.peak
        return peak.event, peak.allocated

    def most_held(self, start: int, end: int) -> int:
        return max(0, self._curve.most_allocated(start, end))

    def most_reserved(self, start: int, end: int) -> int:
        return max(0, self._curve.most_reserved(start, end))

    def axis(self, start: int, end: int) -> str:
        at = self._curve.at_ns
        lasted = milliseconds(at[end - 1] - at[start])
        return f"{self._curve.device}: {end - start:,} of {self.points:,} events, {lasted}"

    def nothing(self) -> str:
        return self.state.trace.why_no_memory

    def hints(self) -> Sequence[Hint]:
        return super().hints()

    # -- about the cursor

    def below(self, cells: int, rows: int) -> list[Line]:
        curve, at = self._curve, self.cursor
        if at < 0:
            return [(), (("before the first event", "title+b"),)]
        changed = curve.bytes[at]
        reserved = f"  reserved {size(curve.reserved[at])}" if curve.reserved[at] > 0 else ""
        when = milliseconds(curve.at_ns[at] - self.state.trace.begins_ns)
        lines: list[Line] = [
            (),
            (
                (f"event {at:,} ", "dim"),
                (f"{'allocated' if changed >= 0 else 'freed'} {size(abs(changed))}", "title+b"),
                (f"  at {when}", "text"),
                ("  held ", "dim"),
                (size(curve.allocated[at]), "g0+b"),
                (reserved, "dim"),
            ),
        ]
        running = self.state.trace.running(curve, at)
        if rows < 20:
            words = " › ".join(running[-3:]) or "no op of its thread"
            return [*lines, ((fit(clean_text(words, 2000), cells), "accent"),)]
        most = _OPEN_LINES if rows >= 30 else 3
        lines.append((("Running, innermost first" if running else "No op of its thread was running", "dim"),))
        shown = running[::-1][:most]
        lines += [((fit(f"  {clean_text(name, 500)}", cells), "title" if not n else "text"),)
                  for n, name in enumerate(shown)]  # fmt: skip
        lines += [()] * (most - len(shown))
        return [*lines, *self._held(cells, _HELD_LINES if rows >= 30 else 3)]

    def _held(self, cells: int, most: int) -> list[Line]:
        held = self.state.held()
        if held is None:
            return [(("…", "faint"),), *[()] * most]
        told = sum(one.bytes for one in held)
        rest = self._curve.allocated[self.cursor] - told
        words = f"Held by {len(held):,} origins, largest first"
        if rest > 0:
            words += f" (and {signed(rest)} from before the trace)"
        lines: list[Line] = [((words, "dim"),)]
        for one in held[:most]:
            lines.append(
                (
                    (f"{size(one.bytes):>9} {one.blocks:>7,}× ", "text"),
                    (clean_text(one.op or "no op", 300), "title"),
                    (f"  {clean_text(one.where, 300)}", "accent"),
                )
            )
        return lines + [()] * (most - len(held[:most]))

    def pending(self) -> bool:
        return self.points > 0 and self.cursor >= 0 and self.state.held() is None

    def settle(self) -> None:
        self.state.compute_held()
