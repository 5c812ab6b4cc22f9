"""History charts: what is kept of the samples, what the axes say, what the picture shows, how often it is built."""

from __future__ import annotations

import math
import threading
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.history.gpu_history import History
from gputop.model import Gpu, Snapshot
from gputop.model.chart_metrics import CHART_METRICS
from gputop.ui.chart.builder import ChartBuilder, ChartRequest, Picture
from gputop.ui.chart.curves import MIRRORED, Decimated, Raster
from gputop.ui.chart.picture import ChartPane, ChartStyle, Curve, Painter, empty_axes
from gputop.ui.chart.scale import Scale, TimeAxis, value_scale
from gputop.ui.toolkit.cells import Line, line_width

GIB = 1024**3
T0 = 1_796_000_000.0
PERCENT = value_scale("utilization", None, 10)


def gpu(index: int, **values: Any) -> Gpu:
    return Gpu(index=index, uuid=f"GPU-{index}", name="H200", read_at=0, memory_total_bytes=140 * GIB, **values)


def history_of(samples: dict[float, list[dict[str, Any]]]) -> History:
    """A history of what each GPU had at each time."""
    history = History()
    for at, values in samples.items():
        gpus = tuple(gpu(index, **value) for index, value in enumerate(values))
        history.add(Snapshot(taken_at=at, gpus=gpus, interval=1.0))
    return history


def utilization(values: list[float | None], start: float = T0, distance: float = 1.0) -> History:
    return history_of({start + n * distance: [{"utilization_gpu_percent": v}] for n, v in enumerate(values)})


def text(lines: tuple[Line, ...]) -> list[str]:
    return ["".join(span for span, _ in line) for line in lines]


def painted(history: History, now: float, *, pane: ChartPane | None = None, curves: int = 1, **look: Any) -> list[str]:
    look.setdefault("window", 60.0)
    pane = pane or ChartPane("utilization", 60, 12)
    curve = tuple(Curve(f"GPU-{n}", n) for n in range(curves))
    return text(Painter().paint(pane, ChartStyle(**look), curve, history, now).lines)


def plot(rows: list[str]) -> list[str]:
    """The part right of the value axis, without the time axis."""
    return [row.replace("┤", "│", 1).split("│", 1)[1] for row in rows[:-1]]


def lit_columns(rows: list[str]) -> list[int]:
    return sorted({x for row in plot(rows) for x, c in enumerate(row) if c != " "})


# ----------------------------------------------------------------------------- decimation


def test_a_spike_of_one_sample_is_seen_however_many_samples_a_column_holds() -> None:
    values: list[float | None] = [3.0] * 600
    values[300] = 100.0
    rows = painted(utilization(values, distance=0.1), T0 + 60)
    assert plot(rows)[0].strip(), "the spike does not reach the top line"


def test_what_is_unknown_for_a_while_is_a_gap_not_a_line() -> None:
    rows = painted(utilization([50.0] * 20 + [None] * 20 + [50.0] * 20), T0 + 60)
    columns = lit_columns(rows)
    gaps = [b - a for a, b in pairwise(columns) if b - a > 1]
    assert len(gaps) == 1
    assert 10 < gaps[0] < 22


def test_a_time_without_samples_is_a_gap() -> None:
    samples = {T0 + n: [{"utilization_gpu_percent": 50}] for n in range(60) if not 20 <= n < 40}
    columns = lit_columns(painted(history_of(samples), T0 + 60))
    assert sum(b - a > 5 for a, b in pairwise(columns)) == 1


def test_rarer_samples_are_not_gaps() -> None:
    """The refresh was changed from 0.5 s to 5 s: the curve goes on."""
    times = [T0 + n * 0.5 for n in range(60)] + [T0 + 30 + n * 5 for n in range(1, 7)]
    history = history_of({at: [{"utilization_gpu_percent": 50}] for at in times})
    columns = lit_columns(painted(history, T0 + 60))
    assert columns == list(range(columns[0], columns[-1] + 1))


@given(
    st.lists(
        st.tuples(st.sampled_from([0.3, 1.0, 1.1, 7.0, 30.0]), st.floats(0, 100) | st.just(math.nan)), max_size=60
    ),
    st.lists(st.integers(1, 9), min_size=1, max_size=60),
    st.sampled_from([(1, 1), (1, 8), (2, 4)]),
    st.integers(0, 1),
)
@settings(max_examples=150, deadline=None)
def test_a_picture_kept_up_to_date_is_the_one_drawn_anew(
    steps: list[tuple[float, float]], chunks: list[int], dots: tuple[int, int], offset: int
) -> None:
    across, up = dots
    points, at = [], T0
    for distance, value in steps:
        at += distance
        points.append((at, value))
    kept = Raster(Decimated(0.7), across, up)
    first = int(T0 / 0.7) // across * across + offset
    position = 0
    for chunk in chunks:
        kept.curve.take(points[position : position + chunk])
        position += chunk
        first += across
        kept.curve.forget(first)
        kept.update(10, PERCENT, first % across)
    fresh = Raster(Decimated(0.7), across, up)
    fresh.curve.take(points[:position])
    fresh.curve.forget(first)
    fresh.update(10, PERCENT, first % across)
    oldest = (
        min(fresh.curve.highest, default=0) - first % across
    ) // across + 1  # a line from a forgotten bucket may still lead in
    assert {c: k for c, k in kept.columns.items() if c >= oldest} == {
        c: k for c, k in fresh.columns.items() if c >= oldest
    }
    assert {c: k for c, k in kept.levels.items() if c >= oldest} == {
        c: k for c, k in fresh.levels.items() if c >= oldest
    }


def test_mirroring_twice_changes_nothing() -> None:
    assert [MIRRORED[MIRRORED[bits]] for bits in range(256)] == list(range(256))
    assert MIRRORED[0x01] == 0x08 and MIRRORED[0x40] == 0x80


# ----------------------------------------------------------------------------------- axes


def labels_of(scale: Scale) -> list[str]:
    return [label.strip() for _, label in scale.ticks]


def test_the_axis_of_memory_is_flat_no_more_it_fits_the_data_and_says_its_unit() -> None:
    """A curve between 80 and 84 GiB was a line without any shape on an axis from 0 to 140."""
    scale = value_scale("memory", (80.2 * GIB, 83.9 * GIB), 14, full=140.4 * GIB)
    assert labels_of(scale) == ["80", "81", "82", "83", "84 GiB"]
    assert "MiB" in value_scale("memory", (1.0, 140.4 * GIB), 14, memory_unit="MiB").ticks[-1][1]
    assert "TiB" in value_scale("memory", (1.0, 1400 * GIB), 14).ticks[-1][1]


def test_memory_that_hardly_moves_is_not_blown_up_to_a_mountain() -> None:
    scale = value_scale("memory", (80 * GIB, 80 * GIB + 2**21), 14, full=140.4 * GIB)
    assert scale.top - scale.low >= 0.02 * 140.4 * GIB


def test_a_leak_of_one_percent_of_memory_in_ten_minutes_is_visible() -> None:
    leak = {T0 + n: [{"memory_used_bytes": int((80 + 1.4 * n / 600) * GIB)}] for n in range(600)}
    pane = ChartPane("memory", 80, 9, 140.0 * GIB)
    rows = plot(painted(history_of(leak), T0 + 600, pane=pane, window=600.0))
    heights = [sum(row[x] != " " for row in rows) for x in range(len(rows[0]))]
    assert heights[-3] - heights[2] >= 2, heights


def test_the_total_is_marked_when_memory_comes_near_to_it() -> None:
    pane = ChartPane("memory", 80, 12, 140.4 * GIB)
    near = {T0 + n: [{"memory_used_bytes": 130 * GIB}] for n in range(60)}
    far = {T0 + n: [{"memory_used_bytes": 20 * GIB}] for n in range(60)}
    assert any("total 140.4G" in row for row in painted(history_of(near), T0 + 60, pane=pane))
    assert not any("total" in row for row in painted(history_of(far), T0 + 60, pane=pane))


def test_percent_is_always_0_to_100_with_four_labels_or_more() -> None:
    for rows in range(5, 30):
        labels = labels_of(value_scale("utilization", (3.0, 4.0), rows))
        assert (labels[0], labels[-1]) == ("0%", "100%") and len(labels) >= 4


def test_temperature_in_fahrenheit_has_round_fahrenheit_labels() -> None:
    labels = labels_of(value_scale("temperature", (50.0, 61.0), 14, temperature_unit="F"))
    assert labels == ["120°F", "130°F", "140°F", "150°F"] or all(label[:-2].isdigit() for label in labels), labels


@pytest.mark.parametrize(
    ("metric", "peak", "unit"),
    [
        ("pcie_rx", 5e3, "kB/s"),
        ("pcie_rx", 7.6e7, "MB/s"),
        ("pcie_tx", 5.5e10, "GB/s"),
        ("power", 694.0, " W"),
        ("clock_sm", 1980.0, "MHz"),
        ("temperature", 61.0, "°C"),
    ],
)
def test_other_axes_end_at_a_round_number_above_the_peak(metric: str, peak: float, unit: str) -> None:
    scale = value_scale(metric, (peak / 10, peak), 14)
    assert peak <= scale.top <= 2.01 * peak and scale.low == 0
    assert scale.ticks[-1][1].endswith(unit)


def test_an_axis_does_not_jump_about_with_its_peak() -> None:
    first = value_scale("power", (100.0, 580.0), 14)
    assert value_scale("power", (100.0, 310.0), 14, before=first) is first
    assert value_scale("power", (90.0, 100.0), 14, before=first).top < first.top
    assert value_scale("power", (100.0, first.top + 1), 14, before=first).top > first.top


@given(
    st.sampled_from(sorted(CHART_METRICS)),
    st.floats(1e-3, 1e15),
    st.floats(0, 1),
    st.none() | st.floats(1e6, 1e13),
    st.integers(1, 60),
    st.sampled_from("CF"),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_every_axis_has_rising_ticks_with_labels_of_one_width_and_holds_what_is_known(
    metric: str, peak: float, low: float, full: float | None, rows: int, degrees: str, ascii_only: bool
) -> None:
    if CHART_METRICS[metric].top is not None:
        peak = min(peak, 100.0)
    scale = value_scale(metric, (low * peak, peak), rows, full=full, temperature_unit=degrees, ascii_only=ascii_only)
    values = [value for value, _ in scale.ticks]
    assert values == sorted(set(values)) and len(values) >= 2
    assert len(values) <= max(2, rows)
    assert len({label for _, label in scale.ticks}) == len(values), "two ticks say the same"
    assert scale.low <= low * peak * (1 + 1e-9) and peak <= scale.top * (1 + 1e-9)
    assert {len(label) for _, label in scale.ticks} == {scale.label_width}
    assert rows < 7 or len(values) >= 4
    assert not ascii_only or all(label.isascii() for _, label in scale.ticks)


def test_time_labels_are_round_local_times_inside_the_plot() -> None:
    axis = TimeAxis.of(120, 600, T0 + 333, True)
    ticks = axis.ticks(zone=lambda at: 3600 * 5.5)
    assert len(ticks) >= 4
    for cell, label in ticks:
        at = axis.times(cell)[0] + 3600 * 5.5
        hours, minutes = label.split(":")
        assert abs(at % 86400 - (int(hours) * 3600 + int(minutes) * 60)) <= axis.seconds * 2
        assert cell - 2 >= 0 and cell + 3 <= 120
    cells = [cell for cell, _ in ticks]
    assert all(b - a > 8 for a, b in pairwise(cells))


@given(
    st.integers(4, 300),
    st.sampled_from([60, 300, 600, 1800, 3600]),
    st.floats(T0, T0 + 4000),
    st.booleans(),
    st.integers(1, 2),
    st.integers(1, 9),
    st.none() | st.floats(0, 5000),
)
@settings(max_examples=300, deadline=None)
def test_what_is_known_of_the_window_is_always_on_the_axis(
    columns: int, window: int, now: float, right: bool, across: int, step: int, known: float | None
) -> None:
    since = None if known is None else now - known
    axis = TimeAxis.of(columns, window, now, right, across=across, since=since, step=step)
    begin = now - window if since is None else max(since, now - window)
    assert axis.first * axis.seconds <= begin + 1e-5
    assert now < axis.end * axis.seconds + 1e-5
    assert all(0 <= axis.cell(n) < columns for n in range(axis.first, axis.end))
    axis.ticks()


def test_in_the_first_minute_the_axis_begins_at_what_is_known_and_grows_to_the_window() -> None:
    """A newcomer saw ten minutes of nothing and three columns of curve at the right."""
    spans = []
    for known in range(1, 620):
        axis = TimeAxis.of(90, 600, T0 + known, since=T0)
        used = (T0 + known - axis.first * axis.seconds) / (axis.dots * axis.seconds)
        assert known < 15 or used > 0.45, (known, used)
        spans.append(round(axis.dots * axis.seconds))
    assert spans == sorted(spans) and spans[0] <= 16 and spans[-1] >= 600
    assert len(set(spans)) < 15, "each growth draws everything anew"


def test_a_full_picture_moves_on_by_one_dot_not_by_five_columns() -> None:
    axes = [TimeAxis.of(90, 600, T0 + n / 2, names=False, across=1) for n in range(100)]
    assert {b.first - a.first for a, b in pairwise(axes)} == {0, 1}


# -------------------------------------------------------------------------------- picture


def test_the_newest_is_where_the_settings_say() -> None:
    history = utilization([0.0] * 50 + [100.0] * 10)
    right, left = (plot(painted(history, T0 + 60, newest_right=side))[0] for side in (True, False))
    assert right.rstrip(" ").rfind(" ") > 25, "the high end is at the right"
    assert len(left.rstrip()) < 25, "the high end is at the left"


def test_each_curve_has_its_gpus_hue_and_name_at_its_end() -> None:
    values = [{"utilization_gpu_percent": 10}, {"utilization_gpu_percent": 90}]
    history = history_of({T0 + n: values for n in range(60)})
    curves = (Curve("GPU-0", 0), Curve("GPU-1", 1))
    lines = Painter().paint(ChartPane("utilization", 60, 12), ChartStyle(60.0), curves, history, T0 + 60).lines
    ends = {style: span for line in lines for span, style in line if style.startswith("g")}
    assert set(ends) == {"g0", "g1"}
    assert ends["g0"].endswith("0") and ends["g1"].endswith("1")


def test_equal_curves_stay_tellable() -> None:
    """Eight ranks of one training had one colour, the first one's."""
    history = history_of({T0 + n: [{"utilization_gpu_percent": 50}] * 8 for n in range(60)})
    curves = tuple(Curve(f"GPU-{n}", n) for n in range(8))
    lines = Painter().paint(ChartPane("utilization", 90, 12), ChartStyle(60.0), curves, history, T0 + 60).lines
    assert {style for line in lines for _, style in line if style.startswith("g")} == {f"g{n}" for n in range(8)}


def test_one_gpu_is_an_area_in_the_colours_of_its_height_and_none_of_an_alarm() -> None:
    lines = (
        Painter()
        .paint(
            ChartPane("utilization", 60, 12), ChartStyle(60.0), (Curve("GPU-0", 0),), utilization([100.0] * 60), T0 + 60
        )
        .lines
    )
    styles = [[style for span, style in line if "█" in span] for line in lines[:-1]]
    assert styles[0] == ["u7"] and styles[-1] == ["u0"]
    assert all(len(row) == 1 and row[0].startswith("u") for row in styles)


def test_sixteen_idle_gpus_on_one_line_are_named_together() -> None:
    history = history_of({T0 + n: [{"utilization_gpu_percent": 0}] * 10 for n in range(60)})
    assert plot(painted(history, T0 + 60, curves=10))[-1].rstrip().endswith("0-9")


def test_ascii_is_ascii_and_tells_curves_apart_without_colour() -> None:
    values = [{"utilization_gpu_percent": 10}, {"utilization_gpu_percent": 90}]
    rows = painted(history_of({T0 + n: values for n in range(60)}), T0 + 60, curves=2, ascii_only=True)
    assert all(row.isascii() for row in rows)
    assert "0000" in "".join(rows) and "1111" in "".join(rows)


def test_the_terminals_size_does_not_limit_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "10")
    rows = painted(utilization([50.0] * 60), T0 + 60, pane=ChartPane("utilization", 250, 40))
    assert {len(row) for row in rows} == {250} and len(rows) == 40


_HISTORIES = {
    count: history_of(
        {
            T0 + n: [
                {
                    "utilization_gpu_percent": (n * 7 + g * 13) % 101,
                    "memory_used_bytes": (n + g) * GIB,
                    "power_watts": 100.0 + (n * g) % 600,
                    "pcie_rx_bytes_per_second": 10.0 ** ((n + g) % 11),
                }
                if count != 3
                else {}
                for g in range(count)
            ]
            for n in range(90)
        }
    )
    for count in (1, 3, 16)
} | {0: History()}


@given(
    st.integers(20, 300),
    st.integers(4, 40),
    st.sampled_from([0, 1, 3, 16]),
    st.sampled_from(sorted(CHART_METRICS)),
    st.sampled_from([60.0, 600.0, 3600.0]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_every_size_and_number_of_gpus_gives_exactly_that_many_cells(
    width: int, height: int, gpus: int, metric: str, window: float, right: bool, ascii_only: bool
) -> None:
    pane = ChartPane(metric, width, height, 140.0 * GIB if gpus else None)
    look = ChartStyle(window, right, ascii_only=ascii_only)
    curves = tuple(Curve(f"GPU-{n}", n) for n in range(gpus))
    painter = _PAINTER
    for lines in (
        painter.paint(pane, look, curves, _HISTORIES[gpus], T0 + 90).lines,
        painter.paint(pane, look, curves, _HISTORIES[gpus], T0 + 95).lines,
        empty_axes(pane, look).lines,
    ):
        assert len(lines) == height
        assert {line_width(line) for line in lines} == {width}
        assert not ascii_only or all(span.isascii() for line in lines for span, _ in line)


_PAINTER = Painter()  # one, as in the dashboard: what it keeps must never show


def test_celsius_turned_into_fahrenheit_gives_round_labels_again() -> None:
    history = history_of({T0 + n: [{"temperature_celsius": 61}] for n in range(60)})
    painter, pane, curve = Painter(), ChartPane("temperature", 60, 12), (Curve("GPU-0", 0),)
    tops = [
        text(painter.paint(pane, ChartStyle(60.0, temperature_unit=u), curve, history, T0 + 60).lines)[0] for u in "CFC"
    ]
    assert [top.split("┤")[0].strip() for top in tops] == ["66°C", "150°F", "66°C"]


# --------------------------------------------------------------------------------- thread


def request(width: int = 60, now: float = T0 + 60, history: History | None = None) -> ChartRequest:
    pane = ChartPane("utilization", width, 10)
    return ChartRequest((pane,), ChartStyle(60.0), (Curve("GPU-0", 0),), history or utilization([50.0] * 60), now)


class Pictures:
    """What a builder delivers."""

    def __init__(self) -> None:
        self.all: list[Picture] = []
        self._arrived = threading.Condition()

    def __call__(self, picture: Picture) -> None:
        with self._arrived:
            self.all.append(picture)
            self._arrived.notify_all()

    def wait(self, count: int, timeout: float = 10.0) -> bool:
        with self._arrived:
            return self._arrived.wait_for(lambda: len(self.all) >= count, timeout)


def test_a_new_size_is_drawn_at_once_and_the_same_again_only_when_due() -> None:
    pictures = Pictures()
    builder = ChartBuilder(pictures)
    builder.request(request())
    assert pictures.wait(1)
    started = time.monotonic()
    builder.request(request(now=T0 + 61))
    builder.request(request(now=T0 + 62))
    assert pictures.wait(2)
    assert time.monotonic() - started > 0.8
    assert pictures.all[1].request.now == T0 + 62, "the newest request counts"
    builder.request(request(width=80))
    assert pictures.wait(3, timeout=5)
    builder.stop()


def test_a_slow_build_lowers_its_own_rate() -> None:
    pictures = Pictures()
    builder = ChartBuilder(pictures, share=1e-6)  # as if a picture took far too long
    builder.request(request())
    assert pictures.wait(1)
    builder.request(request(now=T0 + 61))
    assert not pictures.wait(2, timeout=1.5)
    builder.stop()


def test_a_hidden_chart_is_not_built() -> None:
    pictures = Pictures()
    builder = ChartBuilder(pictures)
    builder.request(request())
    assert pictures.wait(1)
    builder.request(request(now=T0 + 61))
    builder.cancel()
    assert not pictures.wait(2, timeout=1.5)
    builder.stop()


def test_whatever_plotext_raises_is_said_in_words_and_the_next_picture_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("no room")

    pictures = Pictures()
    builder = ChartBuilder(pictures)
    with monkeypatch.context() as patch:
        patch.setattr(Painter, "_draw_axes", broken)
        builder.request(request())
        assert pictures.wait(1)
    assert pictures.all[0].error is not None and "no room" in pictures.all[0].error
    builder.request(request(width=80))
    assert pictures.wait(2)
    assert pictures.all[1].error is None
    builder.stop()


def test_stopping_ends_the_thread() -> None:
    pictures = Pictures()
    builder = ChartBuilder(pictures)
    builder.request(request())
    assert pictures.wait(1)
    thread = builder._thread
    assert thread is not None and thread.daemon
    builder.stop()
    thread.join(5)
    assert not thread.is_alive()
    builder.request(request())
    assert not pictures.wait(2, timeout=0.2)
