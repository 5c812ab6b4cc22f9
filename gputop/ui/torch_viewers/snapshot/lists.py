"""Leaks, segments, OOMs and differences: lists with the stack of the row at the cursor below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gputop.text import fit, wrap
from gputop.torch_files.snapshot.diff import Difference, difference
from gputop.torch_files.snapshot.groups import stack_title
from gputop.torch_files.snapshot.layout import SegmentUse, segment_uses
from gputop.torch_files.snapshot.leaks import Leak, Steps, leaks, steps
from gputop.torch_files.snapshot.memory_snapshot import INACTIVE, PENDING, DeviceSnapshot
from gputop.torch_files.snapshot.oom import OutOfMemory, as_torch_says, out_of_memory
from gputop.torch_files.snapshot.summary import counterpart
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.frame import Hint
from gputop.ui.toolkit.glyphs import levels
from gputop.ui.torch_viewers.pane import ListPane
from gputop.ui.torch_viewers.snapshot.pane import NO_TRACE, SnapshotPane, stack_lines
from gputop.ui.torch_viewers.snapshot.state import TorchState
from gputop.units.fine import percent, signed, size

_SPARK_CELLS: Final = 24


class LeaksPane(SnapshotPane, ListPane):
    name = "Leaks"
    key = "l"

    def _steps(self) -> Steps:
        return self.state.kept(("steps",), lambda: steps(self.device))

    def _leaks(self) -> list[Leak]:
        wanted = self.state.filter
        return self.state.kept(("leaks", wanted), lambda: leaks(self.device, self._steps(), wanted))

    def count(self) -> int:
        return len(self._leaks()) if self.device.entries else 0

    def nothing(self) -> str:
        return "Everything allocated within the trace was freed." if self.device.entries else NO_TRACE

    def heading(self, cells: int) -> Sequence[Line]:
        if not self.device.entries:
            return [()]
        found = self._leaks()
        growing = [leak for leak in found if leak.growing]
        lost = sum(leak.bytes for leak in growing)
        told: Span = (f"{len(growing)} growing, {size(lost)}", "warning+b") if growing else ("none grows", "good+b")
        words = f": allocated within the trace and never freed, by {self._steps().origin}"
        a_step, by_step = f"A {self._steps().unit.upper()}", f"BY {self._steps().unit.upper()}"
        spark = fit(by_step, self._spark_cells(cells))
        columns = f"  {'BYTES':>9} {'BLOCKS':>7} {fit(a_step, 8, right=True)} {'FREED':>8}  {spark}  ALLOCATED BY"
        return [(told, (words, "dim")), ((columns, "accent+b"),)]

    def _spark_cells(self, cells: int) -> int:
        return _SPARK_CELLS if cells >= 100 else _SPARK_CELLS // 2

    def row(self, n: int, cells: int) -> Line:
        leak = self._leaks()[n]
        view = self.view
        room = self._spark_cells(cells)
        spark = _spark(leak.by_step, room)
        top = max(1.0, *spark)
        picture = levels(tuple([value if value else float("nan") for value in spark]), view.glyphs, top)
        return (
            (f"{view.glyphs.warning if leak.growing else ' '} ", "warning+b"),
            (f"{size(leak.bytes):>9}", "title+b"),
            (f" {leak.count:>7,} {size(leak.per_step):>8} {leak.freed:>8,}  ", "text"),
            (fit(picture, room), "g1" if leak.growing else "s0"),
            (f"  {stack_title(self.device, leak.stack)}", "title" if leak.growing else "text"),
        )

    def details(self, n: int, cells: int, rows: int) -> Sequence[Line]:
        leak = self._leaks()[n]
        age = self.device.seconds_between(leak.oldest, self.device.last)
        words = "grows step after step" if leak.growing else "does not grow step by step"
        words += f"; since entry {leak.oldest:,}" + (f", {age:.3g} s before the dump" if age is not None else "")
        words += f"; {leak.freed:,} others freed"
        return stack_lines(self.state.snapshot.frames.frames(leak.stack), cells, rows, words)


def _spark(values: list[int], most: int) -> list[float]:
    """At most *most* values; several as their sum."""
    each = -(-len(values) // most) if values else 1
    return [float(sum(values[n : n + each])) for n in range(0, len(values), each)]


class SegmentsPane(SnapshotPane, ListPane):
    name = "Segments"
    key = "s"
    by_address = False

    def _uses(self) -> list[SegmentUse]:
        return self.state.kept(("segments", self.by_address), self._sorted)

    def _sorted(self) -> list[SegmentUse]:
        uses = segment_uses(self.device)
        return sorted(uses, key=lambda use: use.segment) if self.by_address else uses

    def pressed(self, key: str, page: int) -> bool:
        if key != "i":
            return super().pressed(key, page)
        self.by_address = not self.by_address
        return True

    def hints(self) -> Sequence[Hint]:
        return (("i", "most wasted first" if self.by_address else "in order of address"),)

    def count(self) -> int:
        return len(self._uses())

    def nothing(self) -> str:
        return "The allocator held no segments."

    def heading(self, cells: int) -> Sequence[Line]:
        wasted = sum(use.wasted for use in self._uses())
        glyphs = self.view.glyphs
        legend: Line = (
            (f"{len(self._uses()):,} segments; ", "dim"),
            (size(wasted), "warning+b"),
            (" free next to live blocks   ", "dim"),
            (f"{glyphs.full} ", "g0"),
            ("in use  ", "dim"),
            (f"{glyphs.dead_pid} ", "dead"),
            ("waiting for a stream  ", "dim"),
            (f"{glyphs.track} ", "faint"),
            ("free", "dim"),
        )
        columns = f"{'SIZE':>8} {'USED':>6} {'WASTED':>8} {'BLOCKS':>6} {'POOL':<9} {'STREAM':<10} MAP"
        return [legend, ((columns, "accent+b"),)]

    def row(self, n: int, cells: int) -> Line:
        use, device, snapshot = self._uses()[n], self.device, self.state.snapshot
        pool = snapshot.pool_label(device.segment_pool[use.segment])
        stream = snapshot.stream_label(device.segment_stream[use.segment])
        facts = f" {percent(use.active, use.size):>6} {size(use.wasted):>8} {len(use.pins):>6,} "
        spans: list[Span] = [
            (f"{size(use.size):>8}", "title+b"),
            (facts, "text"),
            (f"{fit(pool, 9)} {fit(stream, 10)} ", "dim"),
        ]
        return (*spans, *self._map(use, max(8, cells - 54)))

    def _map(self, use: SegmentUse, cells: int) -> list[Span]:
        """The segment's bytes as cells: in use, waiting, free; a cell with anything in use is never shown as free."""
        device, glyphs = self.device, self.view.glyphs
        base = device.segment_address[use.segment]
        marks = [0] * cells
        for block in range(device.segment_block[use.segment], device.segment_block[use.segment + 1]):
            state = device.block_state[block]
            if state == INACTIVE:
                continue
            start = (device.block_address[block] - base) * cells // max(1, use.size)
            end = -(-(device.block_address[block] - base + device.block_size[block]) * cells // max(1, use.size))
            for at in range(max(0, start), min(cells, end)):
                marks[at] = 2 if state == PENDING else 1
        looks = ((glyphs.track, "faint@track"), (glyphs.full, "g0@track"), (glyphs.dead_pid, "dead@track"))
        spans: list[Span] = []
        at = 0
        while at < cells:
            after = at
            while after < cells and marks[after] == marks[at]:
                after += 1
            glyph, style = looks[marks[at]]
            spans.append((glyph * (after - at), style))
            at = after
        return spans

    def details(self, n: int, cells: int, rows: int) -> Sequence[Line]:
        use, device = self._uses()[n], self.device
        address = f"{device.segment_address[use.segment]:#x}"
        kind = (
            "expandable"
            if device.segment_expandable[use.segment]
            else "small"
            if device.segment_small[use.segment]
            else "large"
        )
        if not use.pins:
            return [
                (
                    (
                        f"{kind} segment at {address}: no live block, so empty_cache() would return it to the driver",
                        "dim",
                    ),
                )
            ]
        lines: list[Line] = [((f"{kind} segment at {address}, kept by", "dim"),)]
        fold = self.state.snapshot.frames.folded
        for block in use.pins[: rows - 1]:
            row = device.block_row[block]
            birth = device.row_birth[row] if row >= 0 else -1
            age = device.seconds_between(birth, device.last)
            when = f"for {age:.3g} s" if age is not None else "since before the trace"
            title = stack_title(device, fold(device.block_stack[block]))
            lines.append(
                ((f"{size(device.block_size[block]):>9} ", "title+b"), (fit(when, 24), "dim"), (title, "accent"))
            )
        return lines


class OomPane(SnapshotPane, ListPane):
    name = "OOM"
    key = "m"

    def _told(self, n: int) -> OutOfMemory:
        entry, free = self.device.ooms[n]
        return self.state.kept(("oom", entry), lambda: out_of_memory(self.device, entry, free))

    def count(self) -> int:
        return len(self.device.ooms)

    def nothing(self) -> str:
        return "No allocation failed within the trace." if self.device.entries else NO_TRACE

    def lines(self, cells: int, rows: int) -> Sequence[Line]:
        """A card of the chosen one, and the list if there are several."""
        if not self.device.ooms:
            return super().lines(cells, rows)
        self._count = self.count()
        self.at = max(0, min(self.at, self._count - 1))
        card = self._card(self._told(self.at), cells, rows)
        if self._count == 1:
            return [(), *card][:rows]
        return [((f"{self.at + 1} of {self._count} in the trace", "dim"),), (), *card][:rows]

    def hints(self) -> Sequence[Hint]:
        return (
            (("↑↓", "another"), ("Enter", "in the timeline")) if self.count() > 1 else (("Enter", "in the timeline"),)
        )

    def pressed(self, key: str, page: int) -> bool:
        if key == "enter" and self.device.ooms:
            self.state.cursor = self.device.ooms[self.at][0]
            return False  # the screen shows the timeline
        return super().pressed(key, page)

    def _card(self, told: OutOfMemory, cells: int, rows: int) -> list[Line]:
        snapshot, glyphs = self.state.snapshot, self.view.glyphs
        ago = "" if told.seconds_before_end is None else f", {told.seconds_before_end:.3g} s before the dump"
        lines: list[Line] = [
            (
                (f"{glyphs.warning} {size(told.asked)} ", "critical+b"),
                (f"could not be allocated at entry {told.entry:,}{ago}", "title+b"),
            ),
            (),
            *[((part, "title"),) for part in wrap(told.verdict, cells - 1)],
            (),
        ]
        for advice in told.advice:
            lines += [
                ((("→ " if not n else "  "), "good+b"), (part, "text"))
                for n, part in enumerate(wrap(advice, cells - 4))
            ]
        source = "as dumped right then" if told.exact else "rebuilt from the trace"
        facts = (
            ("requested", size(told.asked), f"stream {snapshot.stream_label(told.stream)}"),
            ("", "", f"“Tried to allocate {as_torch_says(told.tried)}” in torch's message: rounded up to a segment"),
            ("device free", size(told.device_free), "still free in the driver after torch returned what it could"),
            ("reserved", size(told.reserved), "by this process's allocator"),
            ("held", size(told.live), "requested by live tensors"),
            ("free in torch", size(told.cached), source),
            ("  usable", size(told.fits), "largest free block of the right stream, pool and size class"),
            ("  other stream", size(told.other_stream), "largest free block, wrong stream"),
            ("  other pool", size(told.other_pool), "largest free block, wrong pool"),
            (
                "  other class",
                size(told.other_class),
                "largest free block, kept for small requests"
                if told.asked > 1 << 20
                else "largest free block, for large requests",
            ),
        )
        lines.append(())
        lines += [
            ((fit(what, 16), "dim"), (fit(much, 9, right=True), "title+b"), (f"   {words}", "dim"))
            for what, much, words in facts
        ]
        frames = snapshot.frames.frames(snapshot.frames.folded(told.stack))
        room = max(3, rows - len(lines) - 2)
        return [*lines, (), *stack_lines(frames, cells, room, "requested by")]


class DiffPane(SnapshotPane, ListPane):
    name = "Diff"
    key = "d"

    def __init__(self, state: TorchState) -> None:
        super().__init__(state)
        self.at_peak = False

    @property
    def before(self) -> DeviceSnapshot | None:
        """The device compared with: of the first other file, else the file's next device."""
        state = self.state
        if len(state.snapshots) > 1:
            others = [n for n in range(len(state.snapshots)) if n != state.file]
            return counterpart(state.snapshots[others[0]], state.snapshot, self.device)
        others_here = [device for device in state.snapshot.devices if device is not self.device]
        return others_here[0] if others_here else None

    def _changes(self) -> list[Difference]:
        before, wanted = self.before, self.state.filter
        if before is None:
            return []
        return self.state.kept(
            ("diff", id(before), self.at_peak, wanted), lambda: difference(before, self.device, self.at_peak, wanted)
        )

    def pressed(self, key: str, page: int) -> bool:
        if key != "w":
            return super().pressed(key, page)
        self.at_peak = not self.at_peak
        return True

    def hints(self) -> Sequence[Hint]:
        return (("w", "at the dumps" if self.at_peak else "at the peaks"),)

    def count(self) -> int:
        return len(self._changes())

    def nothing(self) -> str:
        if self.before is None:
            return (
                "Nothing to compare with: name two files (gputop torch-snapshot A.pickle B.pickle), such as two ranks."
            )
        return "No difference."

    def heading(self, cells: int) -> Sequence[Line]:
        before = self.before
        if before is None:
            return [()]
        sum_ = sum(change.bytes for change in self._changes())
        when = "peaks" if self.at_peak else "dumps"
        words = f"{self._words(self.device)} compared with {self._words(before)}, at the {when}: "
        columns = f"{'CHANGE':>9} {'BLOCKS':>8} {'BEFORE':>9} {'AFTER':>9}  ALLOCATED BY"
        return [((words, "dim"), (signed(sum_), "title+b")), ((columns, "accent+b"),)]

    def _words(self, device: DeviceSnapshot) -> str:
        return f"{device.snapshot.name} {device.label}" if len(self.state.snapshots) > 1 else device.label

    def row(self, n: int, cells: int) -> Line:
        change = self._changes()[n]
        style = "warning+b" if change.bytes > 0 else "good+b" if change.bytes < 0 else "dim"
        title = change.frames[0].short if change.frames else "(no frames)"
        figures = f" {change.count:>+8,} {size(change.before_bytes):>9} {size(change.after_bytes):>9}  "
        return ((f"{signed(change.bytes):>9}", style), (figures, "text"), (title, "text"))

    def details(self, n: int, cells: int, rows: int) -> Sequence[Line]:
        return stack_lines(self._changes()[n].frames, cells, rows)
