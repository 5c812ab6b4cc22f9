"""A strip of one-cell characters only: cheap to make and to crop, since boards make dozens a tick."""

from __future__ import annotations

from typing import Any, Final

from rich.segment import Segment
from textual.strip import Strip


class _Nothing:
    """A cache that keeps nothing: these strips live for a tick, and seven caches each are most of their cost."""

    def get(self, key: object, default: Any = None) -> Any:
        return default

    def __setitem__(self, key: object, value: object) -> None:
        pass


_NOTHING: Any = _Nothing()
_CACHES: Final = (
    "_divide_cache",
    "_crop_cache",
    "_style_cache",
    "_filter_cache",
    "_line_length_cache",
    "_crop_extend_cache",
    "_offsets_cache",
)
#: Whether this Textual's strips hold what is set below; if not, they are made the slow way.
_AS_KNOWN: Final = {*Strip.__slots__} == {
    *_CACHES,
    "_segments",
    "_cell_length",
    "_render_cache",
    "_link_ids",
    "_cell_count",
}


class PlainStrip(Strip):
    """Of segments whose characters all take one cell; *cells* is their number."""

    __slots__ = ()

    def __init__(self, segments: list[Segment], cells: int) -> None:
        if not _AS_KNOWN:
            super().__init__(segments, cells)
            return
        self._segments = segments
        self._cell_length = cells
        self._divide_cache = self._crop_cache = self._style_cache = self._filter_cache = _NOTHING
        self._line_length_cache = self._crop_extend_cache = self._offsets_cache = _NOTHING
        self._render_cache = None
        self._link_ids = None
        self._cell_count = None

    def crop(self, start: int, end: int | None = None) -> Strip:
        cells = self._cell_length or 0
        stop = cells if end is None else min(end, cells)
        segments = []
        position = 0
        for segment in self._segments:
            text = segment[0]
            after = position + len(text)
            if after > start:
                if position < start or after > stop:
                    segments.append(Segment(text[max(0, start - position) : stop - position], segment[1]))
                else:
                    segments.append(segment)
                if after >= stop:
                    break
            position = after
        return PlainStrip(segments, stop - start)

    def divide(self, cuts: Any) -> list[Strip]:
        cuts = list(cuts)
        if cuts == [self._cell_length]:
            return [self]
        strips = []
        start = 0
        for cut in cuts:
            strips.append(self.crop(start, cut))
            start = cut
        return strips
