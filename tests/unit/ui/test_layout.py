"""Sizes × GPUs × names: no exception, no overlap, exact widths, nothing silently lost."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.history.gpu_history import GpuHistory
from gputop.model import Gpu, GpuFacts, GpuProcess, Host, MigInstance, Severity, Snapshot, Xid, clean_text, unattributed
from gputop.settings import Settings
from gputop.text import fit, skip, width
from gputop.ui.footer import footer_line
from gputop.ui.gpus.cards import card
from gputop.ui.gpus.lines import Shape, pair, single
from gputop.ui.gpus.parts import GpuDrawing, memory_bar, memory_curve
from gputop.ui.gpus.remarks import memory_parts
from gputop.ui.header import header_line, host_line, problem_line
from gputop.ui.keys import KEYS, TORN
from gputop.ui.layout import CHART_LEAST, LEAST_HEIGHT, LEAST_WIDTH, TABLE_AIR, TableRows, plan
from gputop.ui.toolkit.cells import asciify, line_width
from gputop.ui.toolkit.glyphs import ASCII, UNICODE, gauge
from gputop.ui.toolkit.view import View

SIZES = st.tuples(st.integers(LEAST_WIDTH, 320), st.integers(LEAST_HEIGHT, 120))
NAMES = st.text(max_size=60).map(clean_text)
PERCENT = st.none() | st.integers(0, 100)


@given(SIZES, st.integers(0, 64), st.integers(0, 7), st.booleans(), st.booleans(), st.booleans(), st.booleans(),
       st.integers(0, 600))  # fmt: skip
def test_plan_gives_every_line_of_the_screen_to_somebody(size, gpus, mig, banner, show_gpus, show_chart, show_table,
                                                         rows):  # fmt: skip
    columns, lines = size
    found = plan(columns, lines, gpus, rows=rows, mig=mig * gpus, most_mig=mig, banner=banner, show_gpus=show_gpus,
                 show_chart=show_chart, show_table=show_table)  # fmt: skip
    assert min(found.gpus, found.chart, found.table) >= 0
    used = 2 + banner + found.host + found.upper + found.table
    assert used <= lines
    assert found.upper == (found.chart if found.beside else found.chart + found.gpus)
    if show_table:
        assert used == lines
        assert found.table >= 3
    if show_gpus and gpus:
        assert found.gpus >= 1
    if found.beside:
        assert gpus <= 2 and found.gpus == found.chart and columns - found.gpu_cells >= 50


@given(SIZES, st.integers(0, 16), st.integers(0, 600))
def test_room_goes_to_the_charts_and_not_to_blank_rows_under_the_table(size, gpus, rows):
    """80x24 said that there was no room, above nine blank rows."""
    columns, lines = size
    found = plan(columns, lines, gpus, rows=rows)
    if found.chart:
        assert found.chart >= CHART_LEAST
        assert found.table <= max(rows, 1) + TABLE_AIR or found.table <= 8
    else:
        assert found.table - max(rows, 1) - TABLE_AIR < CHART_LEAST or lines <= 20  # at 20 lines and no rows: open


def test_two_gpus_have_a_chart_on_80x24_and_cards_beside_the_charts_on_a_wide_screen():
    small = plan(80, 24, 2, rows=6)
    assert small.chart >= 7 and small.table == 9
    wide = plan(200, 60, 2, rows=6)
    assert wide.beside and wide.chart == 60 - 2 - 1 - 9


def test_a_process_that_comes_or_goes_does_not_move_the_screen():
    rows = TableRows()
    assert rows.take(6, 0.0) == 6
    assert rows.take(7, 1.0) == 7, "it grows at once"
    assert [rows.take(count, 2.0 + n) for n, count in enumerate([6, 7, 5, 4, 6])] == [7] * 5
    assert rows.take(3, 20.0) == 7
    assert rows.take(3, 60.0) == 3, "and shrinks when it has been shorter for a while"


def test_sixteen_gpus_fit_80x24_with_a_process_table():
    found = plan(80, 24, 16)
    assert found.gpus == 16
    assert found.table >= 6


@st.composite
def gpus(draw) -> Gpu:
    total = draw(st.none() | st.integers(1, 2**38))
    used = None if total is None else draw(st.none() | st.integers(0, total))
    now = time.time()
    return Gpu(
        index=draw(st.integers(0, 63)), uuid="GPU-1", name=draw(NAMES), read_at=now,
        error=draw(st.none() | NAMES), late=draw(st.booleans()), asleep=draw(st.booleans()),
        memory_total_bytes=total, memory_used_bytes=used,
        memory_reserved_bytes=draw(st.none() | st.integers(0, 2**30)),
        memory_unattributed_bytes=None if used is None else draw(st.none() | st.integers(0, used)),
        utilization_gpu_percent=draw(PERCENT), utilization_memory_percent=draw(PERCENT),
        utilization_encoder_percent=draw(PERCENT), sm_active_percent=draw(PERCENT),
        tensor_active_percent=draw(PERCENT), dram_bandwidth_percent=draw(PERCENT),
        temperature_celsius=draw(st.none() | st.integers(-20, 130)),
        temperature_memory_celsius=draw(st.none() | st.integers(0, 130)),
        temperature_margin_celsius=draw(st.none() | st.integers(-10, 80)),
        power_watts=draw(st.none() | st.floats(0, 2000)), power_limit_watts=draw(st.none() | st.floats(1, 2000)),
        fans_percent=draw(st.sampled_from([(), (30,), (None, 120)])),
        clock_sm_mhz=draw(st.none() | st.integers(0, 4000)), clock_memory_mhz=draw(st.none() | st.integers(0, 20000)),
        performance_state=draw(st.none() | st.integers(0, 15)),
        event_reasons_mask=draw(st.none() | st.integers(0, 0x7FF)),
        pcie_rx_bytes_per_second=draw(st.none() | st.floats(0, 1e12)),
        nvlink_rx_bytes_per_second=draw(st.none() | st.floats(0, 1e12)),
        facts=GpuFacts(gpm=draw(st.booleans()), rows_remap_pending=draw(st.none() | st.booleans())),
        mig=tuple(
            MigInstance(
                "MIG-1", n, 0, "3g.71gb", 2**36, draw(st.none() | st.integers(0, 2**36)), error=draw(st.none() | NAMES)
            )
            for n in range(draw(st.integers(0, 3)))
        ),
        xids=tuple(Xid(now - 5, 79, "fell off the bus", Severity.CRITICAL) for _ in range(draw(st.integers(0, 1)))),
    )  # fmt: skip


VIEWS = st.builds(
    View,
    st.builds(Settings, memory_unit=st.sampled_from(["GiB", "MiB"]), temperature_unit=st.sampled_from(["C", "F"])),
    st.sampled_from([UNICODE, ASCII]),
    st.booleans(),
)
PROCESSES = st.lists(
    st.builds(
        GpuProcess,
        pid=st.integers(1, 2**22),
        gpu_uuid=st.just("GPU-1"),
        kind=st.sampled_from(["C", "G", "C+G", "M"]),
        memory_bytes=st.none() | st.integers(0, 2**37),
        exists=st.none() | st.booleans(),
    ),
    max_size=6,
)


def drawing(gpu: Gpu, processes: list[GpuProcess]) -> GpuDrawing:
    track = GpuHistory()
    for n in range(30):
        track.put(gpu, 1000.0 + n, 1.0)
    return GpuDrawing(gpu, memory_parts(gpu, processes), track, time.time())


@settings(max_examples=80, deadline=None)
@given(gpus(), PROCESSES, st.integers(LEAST_WIDTH, 300), VIEWS)
def test_gpu_lines_are_exactly_as_wide_as_the_screen(gpu, processes, cells, view):
    drawn = drawing(gpu, processes)
    shape = Shape.of([drawn], cells, view)
    for lines, least in ((pair(drawn, shape, view), 2), (single(drawn, shape, view), 1)):
        assert len(lines) == least + len(gpu.mig)
        assert [line_width(line) for line in lines] == [cells] * len(lines)


@settings(max_examples=80, deadline=None)
@given(gpus(), PROCESSES, st.integers(48, 300), st.integers(8, 20), VIEWS)
def test_gpu_cards_are_exactly_as_large_as_planned(gpu, processes, cells, lines, view):
    drawn = card(drawing(gpu, processes), cells, lines, view)
    assert [line_width(line) for line in drawn] == [cells] * lines


@given(gpus(), PROCESSES, st.integers(1, 200), VIEWS)
def test_memory_bar_has_its_width_whatever_the_parts_are(gpu, processes, cells, view):
    assert line_width(memory_bar(drawing(gpu, processes), cells, view)) == cells


def test_the_curve_in_a_gpus_panel_is_no_solid_bar_it_shows_a_slow_leak_with_its_figures():
    track = GpuHistory()
    for n in range(120):
        used = int((80 + 2 * n / 120) * 2**30)
        gpu = Gpu(0, "GPU-1", "x", 0.0, memory_total_bytes=140 * 2**30, memory_used_bytes=used)
        track.put(gpu, 1000.0 + n, 1.0)
    line = memory_curve(GpuDrawing(gpu, None, track, 1120.0), 60, View(Settings(), UNICODE, True))
    text = "".join(part for part, _ in line)
    assert width(text) == 60
    assert len(set(text) & set(UNICODE.levels[1:])) >= 7
    assert text.strip().endswith("82.0G") and text.strip().startswith("80.5G")


@given(gpus(), PROCESSES)
def test_memory_parts_add_up_to_what_is_used(gpu, processes):
    parts = memory_parts(gpu, processes)
    if parts is not None:
        assert parts.used == gpu.memory_used_bytes
        assert min(parts.live, parts.dead_pid, parts.unattributed) >= 0


@given(st.dictionaries(st.integers(1, 99), st.none() | st.integers(0, 2**40)), st.integers(0, 2**40))
def test_unattributed_memory_is_never_negative_and_never_guessed(by_pid, used):
    gpu = Gpu(0, "a", "x", 0.0, memory_total_bytes=2**41, memory_used_bytes=used, memory_reserved_bytes=0)
    found = unattributed(gpu, by_pid)
    assert found is None if None in by_pid.values() else found >= 0


@given(st.text().map(clean_text), st.integers(0, 80))
def test_fit_and_skip_count_cells(text, cells):
    assert width(fit(text, cells)) == cells
    assert width(skip(text, cells)) == max(0, width(text) - cells)


@given(st.none() | st.floats(0, 200), st.integers(0, 100), st.sampled_from([UNICODE, ASCII]))
def test_gauge_has_its_width(percent, cells, glyphs):
    assert line_width(gauge(percent, cells, "l0", glyphs)) == cells


@given(st.text().map(clean_text))
def test_ascii_lines_stay_as_wide_as_they_were(text):
    line = ((text, "text"),)
    assert line_width(asciify(line)) == line_width(line)
    assert all(part.isascii() for part, _ in asciify(line))


@given(st.lists(gpus(), max_size=4), NAMES, st.integers(LEAST_WIDTH, 300), st.sampled_from(["", "PAUSED"]), VIEWS)
@settings(max_examples=60, deadline=None)
def test_header_host_line_and_banner_fit(all_gpus, name, cells, paused, view):
    snapshot = Snapshot(
        time.time(), Host(name, 5.0, 96, 2**38, 2**37, (1.0, 2.0, 3.0), False), gpus=tuple(all_gpus), source="simulated"
    )
    assert line_width(header_line(snapshot, view, cells, 0.5, paused)) == cells
    assert line_width(host_line(snapshot, view, cells)) == cells
    assert line_width(problem_line((name, "b"), view, cells)) == cells


@given(st.integers(LEAST_WIDTH, 300))
def test_footer_fits_and_knows_where_its_keys_are(cells):
    line, places = footer_line([key for key in KEYS if key.footer], cells)
    assert line_width(line) == cells
    assert all(0 <= start < end <= cells for start, end, _ in places)


@given(st.integers(80, 300), st.sampled_from(["", "▲38G", "▲512M", "▲1130G"]))
def test_from_80_columns_on_no_key_falls_off_the_footer_to_make_room_for_letters_or_a_leak(cells, leaked):
    keys = [key for key in KEYS if key.footer]
    assert [key for _, _, key in footer_line(keys, cells, leaked)[1]] == keys


def test_letters_that_torn_escape_sequences_leave_behind_are_bound_to_nothing():
    assert not TORN & {key for entry in KEYS for key in entry.keys}


@given(st.text(st.characters(), max_size=50) | st.binary(max_size=50))
def test_cleaned_text_holds_nothing_a_terminal_obeys(text):
    cleaned = clean_text(text)
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in cleaned)
    assert not any(c in cleaned for c in "\u202e\u2066\u200b\u061c\u200f")
