"""The lines of the process table: heading, rows, and the line that says what is not seen."""

from __future__ import annotations

from typing import Final, NamedTuple

from gputop.model import Verdict
from gputop.text import cut, fit, width
from gputop.ui.processes.cells import CELLS, CellContext
from gputop.ui.processes.column_layout import TableLayout
from gputop.ui.processes.command import cell_spans, clip, spans_width
from gputop.ui.processes.listing.row import ProcessRow
from gputop.ui.processes.mark import Mark
from gputop.ui.toolkit.cells import Line, Span, line_width
from gputop.ui.toolkit.glyphs import ASCII
from gputop.ui.toolkit.view import View

_ASCII_BRANCHES: Final = str.maketrans({"├": "|", "│": "|", "└": "`"})
#: Lines kept twice over: those drawn lately, and those before. More than a terminal has rows; what exited goes soon.
_CACHE_LINES: Final = 256
_COMMAND_MIN_CELLS: Final = 12  # cells of a command that a verdict after it leaves
#: How the word of a verdict looks; the word tells, the colour helps.
VERDICT_ROLES: Final[dict[Verdict | None, str]] = {
    Verdict.LEAK: "critical+b",
    Verdict.STUCK: "critical",
    Verdict.SUSPECT: "warning",
    Verdict.IDLE: "dim",
    Verdict.NOTE: "dim",
    None: "dim",
}


class _CachedLine(NamedTuple):
    row: ProcessRow
    surface: str
    tagged: bool
    age: int
    line: Line


class RowPainter:
    """Draws rows in one layout and view. The same line (the same object) comes again for a row that did not change."""

    def __init__(
        self, layout: TableLayout, view: View, offset: int = 0, uid: int = -1, mark: Mark | None = None
    ) -> None:
        self.layout = layout
        self.view = view
        self.offset = offset
        self.uid = uid
        self.mark = mark
        self._ascii = view.glyphs is ASCII
        self._signs = (view.glyphs.unfolded + " ", view.glyphs.folded + " ")
        self._marks = ("<", ">") if self._ascii else ("‹", "›")
        self._placed = [(column, cells, CELLS[column.id]) for column, _, cells in layout.placed]
        self._has_age = any(placed.column.id == "age" for placed in layout.placed)
        self._commands: dict[tuple[object, ...], tuple[Span, ...]] = {}
        self._lines: dict[tuple[int, str, int | None, int | None], _CachedLine] = {}
        self._older_commands = self._commands
        self._older_lines = self._lines

    def fits(self, layout: TableLayout, view: View, offset: int, mark: Mark | None = None) -> bool:
        """Whether this painter is one for *layout*, *view*, *offset* and *mark*."""
        same = self.offset == offset and self.mark is mark and self.layout == layout
        return same and (self.view is view or self.view == view)

    def line(self, row: ProcessRow, at: float, cursor: bool = False, tagged: bool = False) -> Line:
        """The line of *row*, exactly as wide as the layout, at time *at* (epoch seconds)."""
        surface = "@cursor" if cursor else "@tag" if tagged else ""
        age = _age_step(row, at) if self._has_age else 0
        process = row.process
        place = (process.pid, process.gpu_uuid, process.gpu_instance_id, process.compute_instance_id)
        kept = self._lines.get(place) or self._older_lines.get(place)
        if kept is not None and kept[0] is row and kept[1] == surface and kept[2] == tagged and kept[3] == age:
            if place not in self._lines:
                self._lines[place] = kept  # else it would go with the older ones
            return kept[4]
        line = self._draw(row, CellContext(self.view, at, self.uid, self.mark), surface, tagged)
        if len(self._lines) > _CACHE_LINES:
            self._older_lines, self._lines = self._lines, {}
        self._lines[place] = _CachedLine(row, surface, tagged, age, line)
        return line

    def command_width(self, row: ProcessRow) -> int:
        """Cells that the command of *row* takes beyond those it has."""
        fixed, scrolling = cell_spans(row)
        return spans_width(scrolling) + spans_width(fixed) - self.layout.command_cells

    def _draw(self, row: ProcessRow, context: CellContext, surface: str, tagged: bool) -> Line:
        spans: list[Span] = [("*" if tagged else " ", f"accent{surface}")]
        add = spans.append
        taken = 1
        for column, cells, cell in self._placed:
            if taken > 1:
                taken += 1
            if column.id == "command":
                if taken > 1:
                    add((" ", f"dim{surface}"))
                spans += self._command(row, cells, surface)
            else:
                text, role = cell(row, context)
                length = len(text)
                if text.isascii() and length <= cells:
                    text = text.rjust(cells) if column.right else text.ljust(cells)
                else:
                    text = fit(text, cells, column.right)
                add((text if taken == 1 else " " + text, role + surface))
            taken += cells
        if taken < self.layout.cells:
            add((" " * (self.layout.cells - taken), f"dim{surface}"))
        return tuple(spans)

    def _command(self, row: ProcessRow, cells: int, surface: str) -> tuple[Span, ...]:
        """The command cell; the same spans again while nothing in it changed, which it rarely does."""
        facts = row.facts
        said = (facts.command, facts.name, facts.state) if facts is not None else None
        below = len(row.pids) if row.is_launcher else 0
        of = (said, row[4:], row.process.exists, row.process.gpu_index, below, surface)
        spans = self._commands.get(of)
        if spans is None:
            spans = self._older_commands.get(of)
            if spans is None:
                spans = tuple((text, role + surface) for text, role in self._draw_command(row, cells))
            if len(self._commands) > _CACHE_LINES:
                self._older_commands, self._commands = self._commands, {}
            self._commands[of] = spans
        return spans

    def _draw_command(self, row: ProcessRow, cells: int) -> list[Span]:
        fixed, scrolling = cell_spans(row, *self._signs)
        if self._ascii:
            fixed = tuple((text.translate(_ASCII_BRANCHES), role) for text, role in fixed)
        said = row.annotation.verdict_label if row.annotation.verdict is not None and not row.is_part else ""
        if said and cells >= len(said) + _COMMAND_MIN_CELLS:
            cells -= len(said) + 2
        else:
            said = ""
        room = cells - spans_width(fixed)
        if room < 1:
            spans = clip(fixed, 0, cells, *self._marks)
        else:
            spans = [*fixed, *clip(scrolling, 0 if row.is_part else self.offset, room, *self._marks)]
        return [*spans, ("  ", "dim"), (said, VERDICT_ROLES[row.annotation.verdict])] if said else spans


def _age_step(row: ProcessRow, at: float) -> int:
    """Changes when the age is written differently: every second up to an hour, then every minute (units.duration)."""
    start = row.facts.start_time if row.facts is not None else None
    if start is None or row.is_part:
        return -1
    age = int(at - start)
    return age if age < 3600 else -(age // 60) - 2


def heading(layout: TableLayout, view: View, sort: str, descending: bool, focused: bool, marked: bool = False) -> Line:
    """The columns' names. The sort arrow follows its one, in the gap after the column where that is full."""
    arrow = view.glyphs.arrow_down if descending else view.glyphs.arrow_up
    usual = "title@bar" if focused else "dim@bar"
    spans: list[Span] = [(" ", usual)]
    for column, _, cells in layout.placed:
        name = "ΔMEM" if marked and column.id == "gpu_mem" else column.heading
        if column.id != sort:
            spans.append((fit(name, cells, column.right) + " ", usual))
        else:
            name += arrow
            text = fit(name, cells + 1) if len(name) > cells else fit(name, cells, column.right) + " "
            spans.append((text, "accent+b@bar"))
    return _exactly(spans, layout.cells, usual)


def status(cells: int, left: list[Span], right: list[Span]) -> Line:
    """The last line: *left* as far as it fits, *right* always."""
    room = max(0, cells - line_width(tuple(right)) - 2)
    spans: list[Span] = [(" ", "dim"), *clip(left, 0, room, right="…"), *right]
    return _exactly(spans, cells, "dim")


def _exactly(spans: list[Span], cells: int, role: str) -> Line:
    """*spans* padded in *role*, or cut, to *cells* cells."""
    result: list[Span] = []
    room = cells
    for text, style in spans:
        taken = width(text)
        if taken > room:
            text = cut(text, room)
        if text:
            result.append((text, style))
        room = max(0, room - taken)
    if room:
        result.append((" " * room, role))
    return tuple(result)


def message(text: str, role: str, cells: int) -> Line:
    """A line of words in place of rows."""
    return _exactly([(" ", role), (fit(text, min(width(text), max(0, cells - 1))), role)], cells, role)
