"""Timeline: bytes held and reserved after every entry of the trace, with zoom and a cursor.

A column stands for as many entries as it must and shows the most that was held after any of them, so that no spike is
lost; the curves come from levels of maxima, which makes a redraw independent of the length of the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gputop.memory.snapshot_groups import stack_title
from gputop.memory.snapshot_phases import phases
from gputop.memory.torch_snapshot import ACTIONS, OOM
from gputop.memory.words import percent, size
from gputop.ui.cells import Line, Span, fit
from gputop.ui.torch_pane import NO_TRACE, Pane
from gputop.ui.torch_state import TorchState
from gputop.ui.widgets.frame import Hint
from gputop.ui.wrap import wrap

_AXIS = 9  # cells of the labels at the left
_LEAST = 20  # entries of the deepest zoom
_HELD = 5  # lines about what is held at the cursor, at most


class TimelinePane(Pane):
    name = "Timeline"
    key = "t"

    def __init__(self, state: TorchState) -> None:
        super().__init__(state)
        self._windows: dict[int, tuple[int, int]] = {}
        self._columns = 1

    @property
    def window(self) -> tuple[int, int]:
        """The entries shown: from, to (without)."""
        return self._windows.get(id(self.device), (0, self.device.entries))

    @window.setter
    def window(self, window: tuple[int, int]) -> None:
        start, end = window
        span = max(min(_LEAST, self.device.entries), end - start)
        start = max(0, min(start, self.device.entries - span))
        self._windows[id(self.device)] = (start, min(self.device.entries, start + span))

    # -- keys

    def pressed(self, key: str, page: int) -> bool:
        device, state = self.device, self.state
        if not device.entries:
            return False
        start, end = self.window
        span = end - start
        step = max(1, span // self._columns)
        match key:
            case "left" | "right":
                state.cursor += step if key == "right" else -step
            case "comma" | "full_stop":
                state.cursor += 1 if key == "full_stop" else -1
            case "pageup" | "pagedown" | "space":
                state.cursor += -span // 2 if key == "pageup" else span // 2
            case "home" | "end":
                state.cursor = -1 if key == "home" else device.last
            case "plus" | "equals_sign" | "up":
                self._zoom(span // 2)
            case "minus" | "down":
                self._zoom(span * 2)
            case "z":
                self.window = (0, device.entries)
            case "p":
                state.cursor = device.peak[0]
            case "n" if device.ooms:
                state.cursor = next((entry for entry, _ in device.ooms if entry > state.cursor), device.ooms[0][0])
            case _:
                return False
        self._follow()
        return True

    def _zoom(self, span: int) -> None:
        start, end = self.window
        at = max(start, min(end, self.state.cursor))
        share = (at - start) / max(1, end - start)
        self.window = (round(at - share * span), round(at - share * span) + span)

    def _follow(self) -> None:
        """Move the window to the cursor."""
        start, end = self.window
        cursor = max(0, self.state.cursor)
        if cursor < start:
            self.window = (cursor, cursor + end - start)
        elif cursor >= end:
            self.window = (cursor + 1 - (end - start), cursor + 1)

    def clicked(self, row: int, column: int) -> None:
        start, end = self.window
        if column >= _AXIS and end > start:
            self.state.cursor = start + (column - _AXIS) * (end - start) // max(1, self._columns)

    def hints(self) -> Sequence[Hint]:
        return (("←→", "move"), (", .", "one entry"), ("↑↓", "zoom"), ("z", "whole"), ("p", "peak"), ("n", "next OOM"))

    # -- drawing

    def lines(self, cells: int, rows: int) -> Sequence[Line]:
        if not self.device.entries:
            return [(), *[((part, "dim"),) for part in wrap(NO_TRACE, cells)]]
        below = self._below(cells, rows)
        height = max(3, rows - len(below) - 3)
        self._columns = columns = max(10, cells - _AXIS - 1)
        return [*self._chart(columns, height), *below]

    def _chart(self, columns: int, height: int) -> list[Line]:
        device, glyphs = self.device, self.state.view.glyphs
        start, end = self.window
        span = end - start
        edges = [start + n * span // columns for n in range(columns + 1)]
        live = [device.most_live(a, max(a + 1, b)) for a, b in pairwise(edges)]
        reserved = [device.most_reserved(a, max(a + 1, b)) for a, b in pairwise(edges)]
        top = max(1, *reserved, *live)
        steps = len(glyphs.levels) - 1
        heights = [max(value * height * steps // top, 1 if value else 0) for value in live]
        tops = [value * height * steps // top for value in reserved]
        cursor = self._column(self.state.cursor, columns)
        lines: list[Line] = [self._marks(columns)]
        for row in range(height):
            base = (height - 1 - row) * steps
            label = size(top * (height - row) / height) if row % 3 == 0 else ""
            lines.append(((fit(label, _AXIS - 1, right=True) + " ", "dim"), *self._row(base, heights, tops, cursor)))
        lines.append(self._axis(start, end, columns))
        return lines

    def _row(self, base: int, heights: list[int], tops: list[int], cursor: int | None) -> list[Span]:
        """One row of cells: the curve, what is reserved above it, the cursor."""
        glyphs = self.state.view.glyphs
        marks, steps = glyphs.levels, len(glyphs.levels) - 1
        track = self.state.view.has_track
        spans: list[Span] = []
        text, style = "", ""
        for column, height in enumerate(heights):
            level = height - base
            in_reserved = tops[column] - base >= steps // 2
            surface = "@track" if in_reserved and track else ""
            if level > 0:
                mark, now = marks[min(steps, level)], f"g0{surface}"
            else:
                mark, now = (" " if track or not in_reserved else glyphs.track), f"faint{surface}"
            if column == cursor:
                mark, now = (mark, "title@cursor") if level > 0 else (glyphs.peak, "accent@cursor")
            if now != style and text:
                spans.append((text, style))
                text = ""
            text, style = text + mark, now
        return [*spans, (text, style)]

    def _column(self, entry: int, columns: int) -> int | None:
        start, end = self.window
        if not start <= max(0, entry) < end:
            return None
        return min(columns - 1, ((max(0, entry) - start + 1) * columns - 1) // (end - start))

    def _marks(self, columns: int) -> Line:
        """Over the chart: the peak and the OOMs that are in sight."""
        device, glyphs = self.device, self.state.view.glyphs
        cells = [" "] * columns
        styles = ["dim"] * columns
        for entry, _ in device.ooms:
            if (at := self._column(entry, columns)) is not None:
                cells[at], styles[at] = glyphs.warning, "critical+b"
        moment, peak = device.peak
        if moment >= 0 and (at := self._column(moment, columns)) is not None:
            words = f"peak {size(peak)}"
            left = at + 1 + len(words) + 1 > columns
            text = f"{words} {glyphs.arrow_down}" if left else f"{glyphs.arrow_down} {words}"
            begin = at - len(text) + 1 if left else at
            for n, character in enumerate(text):
                if 0 <= begin + n < columns and cells[begin + n] != glyphs.warning:
                    cells[begin + n], styles[begin + n] = character, "warning+b"
        return ((" " * _AXIS, "text"), *zip(cells, styles, strict=True))

    def _axis(self, start: int, end: int, columns: int) -> Line:
        device = self.device
        left, right = f"{start:,}", f"{end - 1:,}"
        seconds = device.seconds_between(start, end - 1)
        middle = f"{end - start:,} of {device.entries:,} entries"
        if seconds is not None:
            middle += f", {seconds:.3g} s"
        room = columns - len(left) - len(right)
        return ((" " * _AXIS, "text"), (left + middle.center(max(0, room)) + right, "dim"))

    # -- about the cursor

    def _below(self, cells: int, rows: int) -> list[Line]:
        device, state = self.device, self.state
        cursor = state.cursor
        reserved, live = device.reserved(cursor), device.live(cursor)
        spans: list[Span] = [
            ("held ", "dim"),
            (size(live), "g0+b"),
            ("  reserved ", "dim"),
            (size(reserved), "title+b"),
            (f"  {percent(live, reserved)} in use", "dim"),
        ]
        lines: list[Line] = [(), self._entry(cursor), tuple(spans)]
        if rows < 16:
            return lines
        most = _HELD if rows >= 30 else 3
        key = state.groups_key(cursor)
        if not state.is_kept(*key):
            return [*lines, (("…", "faint"),), *[()] * most]
        groups = state.groups(cursor)
        lines.append(((f"Held at the cursor by {len(groups):,} lines of the program, the most by", "dim"),))
        for group in groups[:most]:
            title = stack_title(device, group.stack)
            lines.append(
                ((f"{size(group.bytes):>9} {group.count:>7,}× ", "text"), (fit(title, max(1, cells - 20)), "title"))
            )
        return lines + [()] * (most - len(groups[:most]))

    def _entry(self, cursor: int) -> Line:
        device, snapshot = self.device, self.state.snapshot
        if cursor < 0:
            return (("before the first entry", "title+b"),)
        code = device.action[cursor]
        row = device.row_of(cursor)
        stack = device.row_stack[row] if row is not None else device.stack[cursor]
        before = device.seconds_between(cursor, device.last)
        facts = f"  {size(device.size[cursor])}  stream {snapshot.stream_words(device.stream[cursor])}"
        if before is not None:
            facts += f"  {before:.3f} s before the dump"
        note = snapshot.notes[device.note[cursor]] or " › ".join(phases(device).at(device.time[cursor]))
        folded = snapshot.frames.folded(stack)
        return (
            (f"entry {cursor:,} ", "dim"),
            (ACTIONS[code], "critical+b" if code == OOM else "title+b"),
            (facts, "text"),
            (f"  {stack_title(device, folded)}", "accent"),
            (f"  {note}" if note else "", "dim"),
        )

    def pending(self) -> bool:
        return bool(self.device.entries) and not self.state.is_kept(*self.state.groups_key(self.state.cursor))

    def settle(self) -> None:
        self.state.groups(self.state.cursor)
