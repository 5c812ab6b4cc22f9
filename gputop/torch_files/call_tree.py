"""Stacks with amounts as one tree, from the outermost frame inwards: what the tree and the flame graph are drawn of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from gputop.torch_files.snapshot.frames import Frame

NO_FRAMES: Final = Frame("(no frames)", "", 0)
_DEEPEST: Final = 400


@dataclass(slots=True, eq=False)
class CallNode:
    """A frame, what was allocated under it, and the frames it called."""

    frame: Frame
    bytes: int = 0
    count: int = 0
    children: dict[Frame, CallNode] = field(default_factory=dict)

    @property
    def title(self) -> str:
        frame = self.frame
        return f"{frame.name} {frame.file}:{frame.line}" if frame.line else frame.name

    def sorted(self) -> list[CallNode]:
        return sorted(self.children.values(), key=lambda node: (-node.bytes, node.frame))

    def walk(self) -> Iterator[tuple[int, CallNode]]:
        """(depth, node) of all below, depth first, the most bytes first."""
        stack = [(0, node) for node in reversed(self.sorted())]
        while stack:
            depth, node = stack.pop()
            yield depth, node
            stack += [(depth + 1, child) for child in reversed(node.sorted())]


def call_tree(stacks: Iterable[tuple[list[Frame], int, int]]) -> CallNode:
    """The tree of (frames innermost first, bytes, count)."""
    root = CallNode(Frame("all", "", 0))
    for frames, bytes_, count in stacks:
        root.bytes += bytes_
        root.count += count
        node = root
        for frame in reversed(frames[:_DEEPEST] or [NO_FRAMES]):
            child = node.children.get(frame)
            if child is None:
                child = node.children[frame] = CallNode(frame)
            child.bytes += bytes_
            child.count += count
            node = child
    return root
