"""Changed spans: all that changed, and as little else as can be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gputop.ui.toolkit.cells import Line, line_width
from gputop.ui.toolkit.glyphs import UNICODE, gauge
from gputop.ui.toolkit.line_widget import changed_regions, changed_runs

SPANS = st.lists(st.tuples(st.text(st.sampled_from("ab█ 中"), max_size=6), st.sampled_from(["x", "y"])), max_size=8)


def cells_of(line: Line) -> list[tuple[str, str]]:
    """What stands in each cell; the second half of a wide character is its own cell."""
    found = []
    for text, style in line:
        for character in text:
            found.append((character, style))
            if character == "中":
                found.append(("half", style))
    return found


@given(SPANS, SPANS)
def test_every_cell_that_differs_is_redrawn(old, new):
    before, after = cells_of(tuple(old)), cells_of(tuple(new))
    covered = {x for first, end in changed_runs(tuple(old), tuple(new)) for x in range(first, min(end, 200))}
    for x in range(max(len(before), len(after))):
        same = x < len(before) and x < len(after) and (before[x] == after[x] or before[x][0] == after[x][0] == " ")
        assert same or x in covered


@given(SPANS)
def test_an_equal_line_is_not_redrawn_however_its_spans_are_cut(spans):
    line = tuple(spans)
    assert changed_runs(line, line) == []
    if all("中" not in text for text, _ in line):
        cut = tuple((character, style) for text, style in line for character in text)
        assert changed_runs(line, cut) == []


def test_a_gauge_that_grows_redraws_what_it_grew_by():
    old, new = gauge(50, 40, "l1", UNICODE), gauge(55, 40, "l1", UNICODE)
    assert line_width(old) == line_width(new) == 40
    regions = changed_regions(3, (("GPU ", "dim"), *old), (("GPU ", "dim"), *new), 80)
    assert [(region.x, region.y, region.width) for region in regions] == [(24, 3, 2)]


def test_regions_stay_inside_the_line():
    regions = changed_regions(0, (("中a", "x"),), (("中b中", "x"),), 10)
    assert all(region.right <= 10 for region in regions)
