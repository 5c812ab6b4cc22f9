"""A flame graph as one SVG file: no scripts, nothing from the network; names and figures as tooltips."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final
from xml.sax.saxutils import escape

from gputop.torch_files.call_tree import CallNode
from gputop.units.fine import percent, size

_MARK: Final = "<!-- flame graph by gputop -->"  # by which a file of ours is known
WIDTH: Final = 1200
_ROW: Final = 17
_LEFT: Final = 10
_TOP: Final = 44
_CHARACTER: Final = 6.6  # pixels
_LEAST: Final = 0.4  # pixels: narrower boxes are left out


def flame_graph(root: CallNode, title: str) -> str:
    """*root* as an icicle: the outermost frame at the top, widths in bytes."""
    boxes = list(_boxes(root))
    height = _TOP + _ROW * (max((depth for depth, *_ in boxes), default=0) + 1) + 12
    lines = [
        _MARK,
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="monospace" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fbfcfd"/>',
        f'<text x="{_LEFT}" y="26" font-size="15" font-weight="bold" fill="#1f2630">{escape(title)}</text>',
    ]
    for depth, left, width, node in boxes:
        y = _TOP + depth * _ROW
        told = f"{node.frame}\n{size(node.bytes)} in {node.count:,} blocks, {percent(node.bytes, root.bytes)}"
        label = node.title
        room = int((width - 6) / _CHARACTER)
        if room < len(label):
            label = label[: room - 1] + "…" if room >= 4 else ""
        lines.append(
            f'<g><title>{escape(told)}</title><rect x="{left:.2f}" y="{y}" width="{max(0.1, width - 0.5):.2f}" '
            f'height="{_ROW - 1}" rx="2" fill="{_colour(node)}"/>'
            + (f'<text x="{left + 3:.2f}" y="{y + 12}" fill="#10161d">{escape(label)}</text>' if label else "")
            + "</g>"
        )
    lines.append("</svg>\n")
    return "\n".join(lines)


def is_flame_graph(head: bytes) -> bool:
    """Whether a file that begins with *head* was made here."""
    return head.startswith(_MARK.encode())


def _boxes(root: CallNode) -> Iterator[tuple[int, float, float, CallNode]]:
    scale = (WIDTH - 2 * _LEFT) / root.bytes if root.bytes else 0.0
    todo: list[tuple[int, float, CallNode]] = [(0, float(_LEFT), root)]
    while todo:
        depth, left, node = todo.pop()
        width = node.bytes * scale
        if width < _LEAST:
            continue
        yield depth, left, width, node
        for child in node.sorted():
            todo.append((depth + 1, left, child))
            left += child.bytes * scale


def _colour(node: CallNode) -> str:
    """A warm colour of its own for each file, so that neighbours of one file belong together."""
    seed = zlib.crc32(node.frame.filename.encode("utf-8", "replace"))
    return f"hsl({10 + seed % 45}, {70 + seed // 64 % 20}%, {66 + seed // 4096 % 14}%)"
