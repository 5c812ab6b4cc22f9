"""Allocations held at a moment (now, the peak, the cursor of the timeline): a table, tree or flame graph by stack, or
single ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gputop.text import fit
from gputop.torch_files.call_tree import CallNode, call_tree
from gputop.torch_files.snapshot.groups import StackGroup, stack_title
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.frame import Hint
from gputop.ui.torch_viewers.pane import ListPane
from gputop.ui.torch_viewers.snapshot.flame import FlameGraph
from gputop.ui.torch_viewers.snapshot.pane import SnapshotPane, stack_lines
from gputop.ui.torch_viewers.snapshot.state import TorchState
from gputop.units.fine import percent, size

_MOMENTS: Final = ("now", "peak", "cursor")
_SHAPES: Final = ("table", "tree", "flame", "blocks")  # blocks: single allocations
_BAR_CELLS: Final = 12
_LIFETIME_CELLS: Final = 22


_TreeRow = tuple[int, CallNode, tuple[object, ...]]
"""Depth, node, and the frames that lead to it."""


class AllocationsPane(SnapshotPane, ListPane):
    name = "Allocations"
    key = "a"

    def __init__(self, state: TorchState) -> None:
        super().__init__(state)
        self.moment = "now"
        self.shape = "table"
        self._unfolded: set[tuple[object, ...]] = set()  # paths in the tree that were opened
        self._folded: set[tuple[object, ...]] = set()  # … that were closed
        self._visible: list[_TreeRow] = []
        self._visible_of = (0, 0, 0)  # the tree and how much is folded: what it was made of
        self._flame = FlameGraph(state)

    @property
    def entry(self) -> int:
        device = self.device
        return {"now": device.last, "peak": device.peak[0], "cursor": self.state.cursor}[self.moment]

    # -- keys

    def pressed(self, key: str, page: int) -> bool:
        match key:
            case "w":
                self.moment = _next(_MOMENTS, self.moment)
            case "v":
                self.shape = _next(_SHAPES, self.shape)
                self.at = 0
            case "f":
                self.state.folded = not self.state.folded
            case "enter" | "right" | "left" | "plus" | "minus" if self.shape == "tree":
                self._toggle({"enter": None, "right": True, "plus": True}.get(key, False))
            case _:
                if self.shape == "flame":
                    return self._flame.pressed(key)
                return super().pressed(key, page)
        return True

    def clicked(self, row: int, column: int) -> None:
        if self.shape == "flame":
            self._flame.clicked(row - 1, column)
        else:
            super().clicked(row, column)

    def hints(self) -> Sequence[Hint]:
        more: tuple[Hint, ...] = ()
        if self.shape == "tree":
            more = (("←→", "fold"),)
        elif self.shape == "flame":
            more = (("←→↑↓", "move"), ("Enter", "zoom"), ("z", "all"))
        frames = "torch's frames too" if self.state.folded else "your frames only"
        return (("w", "when"), ("v", f"as {_next(_SHAPES, self.shape)}"), ("f", frames), *more)

    # -- drawing

    def lines(self, cells: int, rows: int) -> Sequence[Line]:
        if self.shape == "flame":
            root = self._tree()
            return [*self.heading(cells)[:1], *self._flame.lines(root, cells, rows - 1)]
        return super().lines(cells, rows)

    def heading(self, cells: int) -> Sequence[Line]:
        groups, device, entry = self.state.groups(self.entry), self.device, self.entry
        held = self._held(groups)
        count = sum(group.count for group in groups)
        where = {
            "now": "held at the dump",
            "peak": f"held at the peak, entry {entry:,}",
            "cursor": f"held at entry {entry:,}",
        }
        spans: list[Span] = [
            (f"{where[self.moment]}: ", "dim"),
            (size(held), "g0+b"),
            (f" requested, {count:,} blocks, {len(groups):,} stacks", "dim"),
        ]
        if self.state.filter:
            spans.append((f"  of {size(device.live(entry))}", "dim"))
        title: Line = tuple(spans)
        if self.shape == "flame":
            return [title]
        columns = f"{'BYTES':>9} {'SHARE':>6} {'BLOCKS':>8} {'LARGEST':>8} {'':{_BAR_CELLS}} ALLOCATED BY"
        if self.shape == "tree":
            columns = f"{'BYTES':>9} {'SHARE':>6} {'BLOCKS':>8}  CALLS"
        elif self.shape == "blocks":
            columns = f"{'BYTES':>9} {'ADDRESS':>14}  {fit('LIFETIME', _LIFETIME_CELLS)} ALLOCATED BY"
        return [title, ((columns, "accent+b"),)]

    def count(self) -> int:
        if self.shape == "blocks":
            return len(self._single())
        if self.shape != "tree":
            return len(self.state.groups(self.entry))
        root = self._tree()
        if self._visible_of != (id(root), len(self._unfolded), len(self._folded)):
            self._visible_of = (id(root), len(self._unfolded), len(self._folded))
            self._visible = self._rows(root)
        return len(self._visible)

    def nothing(self) -> str:
        return "The filter matches no allocation." if self.state.filter else "Nothing was held at this moment."

    def row(self, n: int, cells: int) -> Line:
        if self.shape == "tree":
            return self._tree_row(n, cells)
        if self.shape == "blocks":
            return self._single_row(n, cells)
        groups = self.state.groups(self.entry)
        held = self._held(groups)
        group = groups[n]
        glyphs = self.view.glyphs
        filled = round(_BAR_CELLS * group.bytes / groups[0].bytes) if groups[0].bytes else 0
        return (
            (f"{size(group.bytes):>9}", "title+b"),
            (f" {percent(group.bytes, held):>6} {group.count:>8,} {size(group.largest):>8} ", "text"),
            (glyphs.full * filled, "g0"),
            (" " * (_BAR_CELLS - filled + 1), "text"),
            (fit(stack_title(self.device, group.stack), max(1, cells - 37 - _BAR_CELLS)), "text"),
        )

    def _held(self, groups: list[StackGroup]) -> int:
        key = ("held", *self.state.groups_key(self.entry))
        return self.state.kept(key, lambda: sum(group.bytes for group in groups))

    def details(self, n: int, cells: int, rows: int) -> Sequence[Line]:
        if self.shape == "tree":
            frame = self._visible[n][1].frame
            return stack_lines([frame], cells, rows)
        if self.shape == "blocks":
            return self._single_details(n, cells, rows)
        stack = self.state.groups(self.entry)[n].stack
        return stack_lines(self.state.snapshot.frames.frames(stack), cells, rows)

    # -- single allocations

    def _single(self) -> list[int]:
        """The largest first."""
        size_of = self.device.row_size
        rows = self.state.rows(self.entry)
        return self.state.kept(
            ("blocks", self.entry, self.state.filter), lambda: sorted(rows, key=lambda row: -size_of[row])
        )

    def _single_row(self, n: int, cells: int) -> Line:
        device, row = self.device, self._single()[n]
        stack = self.state.snapshot.frames.folded(device.row_stack[row])
        return (
            (f"{size(device.row_size[row]):>9}", "title+b"),
            (f" {device.row_address[row]:>#14x}  ", "text"),
            (f"{fit(self._lifetime(row), _LIFETIME_CELLS)} ", "dim"),
            (fit(stack_title(device, stack), max(1, cells - 27 - _LIFETIME_CELLS)), "text"),
        )

    def _lifetime(self, row: int) -> str:
        device = self.device
        birth, death = device.row_birth[row], device.row_death[row]
        lasted = device.seconds_between(birth, min(death, device.last)) if birth >= 0 else None
        if birth < 0:
            return "since before the trace" if death >= device.entries else "from before the trace"
        time = "" if lasted is None else f" {lasted:.3g} s"
        return f"held for{time}" if death >= device.entries else f"freed after{time}"

    def _single_details(self, n: int, cells: int, rows: int) -> Sequence[Line]:
        device, snapshot, row = self.device, self.state.snapshot, self._single()[n]
        birth, death = device.row_birth[row], device.row_death[row]
        made = f"allocated at entry {birth:,}" if birth >= 0 else "allocated before the trace"
        freed = f"freed at entry {death:,}" if death < device.entries else "held at the dump"
        stream, pool = snapshot.stream_label(device.row_stream[row]), snapshot.pool_label(device.row_pool[row])
        stack = device.row_stack[row]
        frames = snapshot.frames.frames(snapshot.frames.folded(stack) if self.state.folded else stack)
        return stack_lines(frames, cells, rows, f"{made}, {freed}; stream {stream}, pool {pool}")

    # -- tree

    def _tree(self) -> CallNode:
        frames = self.state.snapshot.frames

        def build() -> CallNode:
            return call_tree((frames.frames(g.stack), g.bytes, g.count) for g in self.state.groups(self.entry))

        return self.state.kept(("tree", self.entry, self.state.filter, self.state.folded), build)

    def _rows(self, root: CallNode) -> list[_TreeRow]:
        """What is unfolded: at first along the frames that lead to most of the bytes."""
        found: list[_TreeRow] = []
        todo: list[_TreeRow] = [(0, child, (child.frame,)) for child in reversed(root.sorted())]
        while todo:
            depth, node, path = todo.pop()
            found.append((depth, node, path))
            if self._is_open(node, path, root):
                todo += [(depth + 1, child, (*path, child.frame)) for child in reversed(node.sorted())]
        return found

    def _is_open(self, node: CallNode, path: tuple[object, ...], root: CallNode) -> bool:
        if not node.children or path in self._folded:
            return False
        least = 100 if len(node.children) == 1 else 10  # a part of all
        return path in self._unfolded or node.bytes * least >= root.bytes

    def _toggle(self, unfold: bool | None) -> None:
        rows = self._visible
        if not rows:
            return
        _, node, path = rows[min(self.at, len(rows) - 1)]
        is_open = self._is_open(node, path, self._tree())
        if (not is_open if unfold is None else unfold) and node.children:
            self._unfolded.add(path)
            self._folded.discard(path)
        elif is_open:
            self._folded.add(path)
            self._unfolded.discard(path)
        elif len(path) > 1:  # on to its caller
            self.at = next(n for n, (_, _, other) in enumerate(rows) if other == path[:-1])

    def _tree_row(self, n: int, cells: int) -> Line:
        depth, node, path = self._visible[n]
        glyphs, root = self.view.glyphs, self._tree()
        sign = " " if not node.children else glyphs.unfolded if self._is_open(node, path, root) else glyphs.folded
        indent = "  " * min(depth, max(0, cells - 50) // 3)
        return (
            (f"{size(node.bytes):>9}", "title+b"),
            (f" {percent(node.bytes, root.bytes):>6} {node.count:>8,}  ", "text"),
            (f"{indent}{sign} ", "dim"),
            (node.frame.name, "text"),
            (f"  {node.frame.filename.rpartition('/')[2]}:{node.frame.line}" if node.frame.line else "", "accent"),
        )


def _next(values: tuple[str, ...], value: str) -> str:
    return values[(values.index(value) + 1) % len(values)]
