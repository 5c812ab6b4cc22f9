"""The cursor of the process table and the page around it."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.model import RowKey
from gputop.ui.processes.listing.row import ProcessRow, find_row


class Cursor:
    """Sticks to its row, by (pid, start time, GPU, instance), through every change of rows, order and size.

    While the row that was chosen is not there (it exited, a filter hides it, its GPU is lost), the cursor is on the
    nearest one; if it comes back, so does the cursor, unless another one was chosen meanwhile.
    """

    def __init__(self) -> None:
        self.at = 0  # the cursor's row
        self.top = 0  # the first row in sight
        self._key: RowKey | None = None
        self._chosen: RowKey | None = None  # by the user

    def follow(self, before: Sequence[ProcessRow], rows: Sequence[ProcessRow], body: int) -> bool:
        """*rows* are shown now instead of *before*, *body* of them at a time. True if the cursor is on another row."""
        if not rows:
            return bool(before)
        chosen = None if self._chosen is None else find_row(rows, self._chosen)
        if chosen is not None:
            self.at = chosen
            self._chosen = rows[chosen].key
        elif self._key is None:
            self.at = 0
        else:
            self.at = closest_row(self._key, self.at, before, rows)
            if self._chosen is not None and self._chosen.process.start_ticks is None:
                self._chosen = None  # whoever bears that pid next could not be told from it
        if self._chosen is None and self.at >= max(1, body):
            self.at = 0  # nobody chose that row, so nobody wants the page to follow it
        old, self._key = self._key, rows[self.at].key
        return old != self._key

    def move(self, to: int, rows: Sequence[ProcessRow]) -> bool:
        """The user chooses row *to*, or the nearest there is. True if that is another one."""
        if not rows:
            return False
        to = max(0, min(to, len(rows) - 1))
        moved, self.at = to != self.at, to
        self._key = self._chosen = rows[to].key
        return moved

    def scroll(self, by: int, count: int, body: int) -> int | None:
        """Scroll the page by *by* of *count* rows; returns where that takes the cursor, None where nothing moved."""
        top = max(0, min(self.top + by, count - body))
        if top == self.top:
            return None
        self.top = top
        return max(top, min(self.at, top + body - 1))

    def keep_in_sight(self, count: int, body: int) -> None:
        """Scroll the page as little as needed to show the cursor, and no emptiness after the last row."""
        if self.at < self.top:
            self.top = self.at
        elif self.at >= self.top + body:
            self.top = self.at - body + 1
        self.top = max(0, min(self.top, count - body))


def closest_row(key: RowKey, at: int, old: Sequence[ProcessRow], new: Sequence[ProcessRow]) -> int:
    """Where row *key*, *at* in *old*, is in *new*: the row itself, else one of its process, else the nearest row that
    was there before, looking down first. *new* has at least one row."""
    found = find_row(new, key)
    if found is not None:
        return found
    places = {row.key: n for n, row in enumerate(new)}
    for row in (*old[at + 1 :], *reversed(old[:at])):
        if row.key in places:
            return places[row.key]
    return max(0, min(at, len(new) - 1))
