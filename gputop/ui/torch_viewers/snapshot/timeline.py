"""Timeline: bytes held and reserved after every entry of the trace, and what the entry at the cursor is."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gputop.text import fit
from gputop.torch_files.snapshot.groups import stack_title
from gputop.torch_files.snapshot.memory_snapshot import ACTIONS, OOM
from gputop.torch_files.snapshot.phases import phases
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.frame import Hint
from gputop.ui.torch_viewers.curve_pane import CurvePane
from gputop.ui.torch_viewers.snapshot.pane import NO_TRACE, SnapshotPane
from gputop.units.fine import percent, size

_HELD_LINES = 5  # lines about what is held at the cursor, at most


class TimelinePane(SnapshotPane, CurvePane):
    name = "Timeline"
    key = "t"

    @property
    def of(self) -> Hashable:
        return id(self.device)

    @property
    def points(self) -> int:
        return self.device.entries

    @property
    def cursor(self) -> int:
        return self.state.cursor

    @cursor.setter
    def cursor(self, entry: int) -> None:
        self.state.cursor = entry

    @property
    def peak(self) -> tuple[int, int]:
        return self.device.peak

    @property
    def alarms(self) -> Sequence[int]:
        return [entry for entry, _ in self.device.ooms]

    def most_held(self, start: int, end: int) -> int:
        return self.device.most_live(start, end)

    def most_reserved(self, start: int, end: int) -> int:
        return self.device.most_reserved(start, end)

    def axis(self, start: int, end: int) -> str:
        seconds = self.device.seconds_between(start, end - 1)
        return super().axis(start, end) + (f", {seconds:.3g} s" if seconds is not None else "")

    def nothing(self) -> str:
        return NO_TRACE

    def hints(self) -> Sequence[Hint]:
        return (*super().hints(), ("n", "next OOM"))

    # -- about the cursor

    def below(self, cells: int, rows: int) -> list[Line]:
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
        most = _HELD_LINES if rows >= 30 else 3
        key = state.groups_key(cursor)
        if not state.is_kept(*key):
            return [*lines, (("…", "faint"),), *[()] * most]
        groups = state.groups(cursor)
        lines.append(((f"Held at the cursor by {len(groups):,} lines of code, largest first", "dim"),))
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
        facts = f"  {size(device.size[cursor])}  stream {snapshot.stream_label(device.stream[cursor])}"
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
        return bool(self.device.entries) and not self.state.is_kept(*self.state.groups_key(self.cursor))

    def settle(self) -> None:
        self.state.groups(self.cursor)
