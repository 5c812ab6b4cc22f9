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

from gputop.model import Gpu, Snapshot
from gputop.model.chart_metrics import CHART_METRICS
from gputop.sampling.history import History
from gputop.ui.chart.builder import ChartBuilder, ChartRequest, Picture
from gputop.ui.chart.curves import MIRRORED, Decimated, Raster
from gputop.ui.chart.picture import ChartPane, ChartStyle, Curve, Painter, empty_axes
from gputop.ui.chart.scale import TimeAxis, axis_top, value_scale
from gputop.ui.toolkit.cells import Line, line_width

GIB = 1024**3
T0 = 1_796_000_000.0


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
    return text(Painter().paint(pane, ChartStyle(**look), curve, history, now))


def plot(rows: list[str]) -> list[str]:
    """The part right of the value axis, without the time axis."""
    return [row.replace("┤", "│", 1).split("│", 1)[1] for row in rows[:-2]]


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
    st.sampled_from([1, 2]),
)
@settings(max_examples=150, deadline=None)
def test_a_picture_kept_up_to_date_is_the_one_drawn_anew(
    steps: list[tuple[float, float]], chunks: list[int], across: int
) -> None:
    points, at = [], T0
    for distance, value in steps:
        at += distance
        points.append((at, value))
    up = 4 if across == 2 else 1
    kept = Raster(Decimated(0.7), across, up)
    first = int(T0 / 0.7) // across * across
    position = 0
    for chunk in chunks:
        kept.curve.take(points[position : position + chunk])
        position += chunk
        first += across
        kept.curve.forget(first)
        kept.update(10, 100.0)
    fresh = Raster(Decimated(0.7), across, up)
    fresh.curve.take(points[:position])
    fresh.curve.forget(first)
    fresh.update(10, 100.0)
    oldest = min(fresh.curve.highest, default=0) // across + 1  # a line from a forgotten bucket may still lead in
    assert {c: k for c, k in kept.columns.items() if c >= oldest} == {
        c: k for c, k in fresh.columns.items() if c >= oldest
    }


def test_mirroring_twice_changes_nothing() -> None:
    assert [MIRRORED[MIRRORED[bits]] for bits in range(256)] == list(range(256))
    assert MIRRORED[0x01] == 0x08 and MIRRORED[0x40] == 0x80


# ----------------------------------------------------------------------------------- axes


def test_memory_ends_at_the_largest_gpu_and_says_its_unit() -> None:
    scale = value_scale("memory", axis_top("memory", 3 * GIB, 140.4 * GIB, None), 14)
    labels = [label.strip() for _, label in scale.ticks]
    assert labels == ["0", "50", "100", "140 GiB"]
    assert "MiB" in value_scale("memory", 140.4 * GIB, 14, memory_unit="MiB").ticks[-1][1]
    assert "TiB" in value_scale("memory", 1400 * GIB, 14).ticks[-1][1]


def test_percent_is_always_0_to_100() -> None:
    assert axis_top("utilization", 3.0, None, None) == 100
    labels = [label.strip() for _, label in value_scale("utilization", 100, 14).ticks]
    assert (labels[0], labels[-1]) == ("0%", "100%")


def test_temperature_in_fahrenheit_has_round_fahrenheit_labels() -> None:
    top = axis_top("temperature", 61.0, None, None, "F")
    labels = [label for _, label in value_scale("temperature", top, 14, temperature_unit="F").ticks]
    assert labels[-1].strip() == "150°F" and labels[0].strip() == "32°F"
    assert top == pytest.approx((150 - 32) / 1.8)


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
    top = axis_top(metric, peak, None, None)
    assert peak <= top <= 2.01 * peak
    assert value_scale(metric, top, 14).ticks[-1][1].endswith(unit)


def test_an_axis_does_not_jump_about_with_its_peak() -> None:
    top = axis_top("power", 580.0, None, None)
    assert axis_top("power", 310.0, None, top) == top
    assert axis_top("power", 100.0, None, top) < top
    assert axis_top("power", top + 1, None, top) > top


@given(
    st.sampled_from(sorted(CHART_METRICS)),
    st.floats(1e-3, 1e15),
    st.integers(1, 60),
    st.sampled_from("CF"),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_every_axis_has_rising_ticks_with_labels_of_one_width(
    metric: str, peak: float, rows: int, degrees: str, ascii_only: bool
) -> None:
    top = axis_top(metric, peak, None, None, degrees)
    scale = value_scale(metric, top, rows, "GiB", degrees, ascii_only)
    values = [value for value, _ in scale.ticks]
    assert values == sorted(set(values)) and len(values) >= 2
    assert {len(label) for _, label in scale.ticks} == {scale.label_width}
    assert not ascii_only or all(label.isascii() for _, label in scale.ticks)


def test_time_labels_are_round_local_times_inside_the_plot() -> None:
    axis = TimeAxis.of(120, 600, T0 + 333, True)
    ticks = axis.ticks(zone=lambda at: 3600 * 5.5)
    assert len(ticks) >= 4
    for cell, label in ticks:
        at = (axis.first + cell) * axis.seconds + 3600 * 5.5
        hours, minutes = label.split(":")
        assert abs(at % 86400 - (int(hours) * 3600 + int(minutes) * 60)) <= axis.seconds
        assert cell - 2 >= 0 and cell + 3 <= 120
    cells = [cell for cell, _ in ticks]
    assert all(b - a > 8 for a, b in pairwise(cells))


@given(st.integers(4, 300), st.sampled_from([60, 300, 600, 1800, 3600]), st.floats(T0, T0 + 4000), st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_whole_window_is_always_on_the_axis(columns: int, window: int, now: float, right: bool) -> None:
    axis = TimeAxis.of(columns, window, now, right)
    assert axis.first * axis.seconds <= now - window + 1e-5
    assert now < axis.end * axis.seconds
    assert all(0 <= axis.cell(n) < columns for n in range(axis.first, axis.end))
    axis.ticks()


def test_the_picture_stands_still_until_its_margin_is_full() -> None:
    firsts = [TimeAxis.of(190, 600, T0 + n, True).first for n in range(100)]
    assert len(set(firsts)) <= 5


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
    lines = Painter().paint(ChartPane("utilization", 60, 12), ChartStyle(60.0), curves, history, T0 + 60)
    ends = {style: span for line in lines for span, style in line if style.startswith("g")}
    assert set(ends) == {"g0", "g1"}
    assert ends["g0"].endswith("0") and ends["g1"].endswith("1")


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
        painter.paint(pane, look, curves, _HISTORIES[gpus], T0 + 90),
        painter.paint(pane, look, curves, _HISTORIES[gpus], T0 + 95),
        empty_axes(pane, look),
    ):
        assert len(lines) == height
        assert {line_width(line) for line in lines} == {width}
        assert not ascii_only or all(span.isascii() for line in lines for span, _ in line)


_PAINTER = Painter()  # one, as in the dashboard: what it keeps must never show


def test_celsius_turned_into_fahrenheit_gives_round_labels_again() -> None:
    history = history_of({T0 + n: [{"temperature_celsius": 61}] for n in range(60)})
    painter, pane, curve = Painter(), ChartPane("temperature", 60, 12), (Curve("GPU-0", 0),)
    tops = [text(painter.paint(pane, ChartStyle(60.0, temperature_unit=u), curve, history, T0 + 60))[0] for u in "CFC"]
    assert [top.split("┤")[0].strip() for top in tops] == ["80°C", "150°F", "80°C"]


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
        patch.setattr(Painter, "_draw", broken)
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
