"""A flame graph in cells: the outermost frame at the top, widths in bytes, a cursor that walks and zooms."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from gputop.text import fit, width
from gputop.torch_files.call_tree import CallNode
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.torch_viewers.snapshot.state import TorchState
from gputop.units.fine import percent, size

_LEAST_CELLS = 0.25  # cells: less is left out


class _Box(NamedTuple):
    left: int
    right: int
    path: tuple[CallNode, ...]  # from the root


class FlameGraph:
    """Draws a tree; keeps where the cursor and the zoom are as paths of frames, so that they outlive the tree."""

    def __init__(self, state: TorchState) -> None:
        self._state = state
        self._at: list[object] = []
        self._zoom: list[object] = []
        self._rows: list[list[_Box]] = []
        self._made_of: tuple[object, ...] = ()
        self._first = 0

    def _follow(self, root: CallNode, frames: list[object]) -> tuple[CallNode, ...]:
        path = [root]
        for frame in frames:
            child = path[-1].children.get(frame)  # type: ignore[call-overload]
            if child is None:
                break
            path.append(child)
        return tuple(path)

    def lines(self, root: CallNode, cells: int, rows: int) -> list[Line]:
        at = self._follow(root, self._at)
        made_of = (root, tuple(self._zoom), cells)
        if self._made_of != made_of:
            self._made_of = made_of
            zoom = self._follow(root, self._zoom)
            self._rows = [[_Box(0, cells, zoom[: n + 1])] for n in range(len(zoom))]
            while boxes := self._below(self._rows[-1]):
                self._rows.append(boxes)
        room = max(1, rows - 3)
        depth = len(at) - 1
        self._first = max(0, min(self._first, depth, len(self._rows) - room))
        self._first = max(self._first, depth - room + 1)
        shown = self._rows[self._first : self._first + room]
        lines = [self._row(boxes, at[-1], cells) for boxes in shown]
        lines += [()] * (room - len(lines))
        node = at[-1]
        facts = f"{size(node.bytes)}, {percent(node.bytes, root.bytes)} of all, {node.count:,} blocks"
        more = len(self._rows) - self._first - room
        return [
            *lines,
            ((f"… {more} deeper" if more > 0 else "", "dim"),),
            ((str(node.frame), "title"),),
            ((facts, "dim"),),
        ]

    def _below(self, boxes: list[_Box]) -> list[_Box]:
        found: list[_Box] = []
        for box in boxes:
            node = box.path[-1]
            scale = (box.right - box.left) / node.bytes if node.bytes else 0.0
            left = float(box.left)
            for child in node.sorted():
                if child.bytes * scale < _LEAST_CELLS:
                    break  # so are the rest
                right = left + child.bytes * scale
                if round(right) > round(left):
                    found.append(_Box(round(left), round(right), (*box.path, child)))
                left = right
        return found

    def _row(self, boxes: list[_Box], chosen: CallNode, cells: int) -> Line:
        spans: list[Span] = []
        x = 0
        for n, box in enumerate(boxes):
            if box.left > x:
                spans.append((" " * (box.left - x), "text"))
            node, room = box.path[-1], box.right - box.left
            hue = zlib.crc32(node.frame.filename.encode("utf-8", "replace")) % 4 * 2 + n % 2
            style = "accent+br" if node is chosen else f"s{hue}+r"
            label = node.title
            text = fit(f" {label}" if room > 3 else "", room) if width(label) + 1 > room else f" {label}".ljust(room)
            spans.append((fit(text, room), style))
            x = box.right
        return tuple(spans)

    # -- keys

    def pressed(self, key: str) -> bool:
        match key:
            case "down":
                self._move_down()
            case "up":
                self._at = self._at[:-1]
                if len(self._at) < len(self._zoom):
                    self._zoom = list(self._at)
            case "left" | "right":
                self._move_along(1 if key == "right" else -1)
            case "enter":
                self._zoom = list(self._at)
            case "z":
                self._zoom = []
            case _:
                return False
        return True

    def _chosen(self) -> tuple[int, int] | None:
        """Row and place of the box at the cursor."""
        depth = len(self._at)
        if depth < len(self._rows):
            for n, box in enumerate(self._rows[depth]):
                if [node.frame for node in box.path[1:]] == self._at:
                    return depth, n
        return None

    def _choose(self, box: _Box) -> None:
        self._at = [node.frame for node in box.path[1:]]

    def _move_down(self) -> None:
        depth = len(self._at) + 1
        if depth < len(self._rows):
            below = [b for b in self._rows[depth] if [node.frame for node in b.path[1:depth]] == self._at]
            if below:
                self._choose(below[0])

    def _move_along(self, step: int) -> None:
        place = self._chosen()
        if place is not None:
            boxes = self._rows[place[0]]
            self._choose(boxes[max(0, min(len(boxes) - 1, place[1] + step))])

    def clicked(self, row: int, column: int) -> None:
        depth = self._first + row
        if 0 <= depth < len(self._rows):
            for box in self._rows[depth]:
                if box.left <= column < box.right:
                    self._choose(box)
