"""What the process table's cells say, and that every line is exactly as wide as it must be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.model import GpuProcess, HostFacts, ProcessKey, clean_text, replace
from gputop.model.columns import COLUMNS
from gputop.settings import DEFAULTS
from gputop.ui.processes.column_layout import lay_out
from gputop.ui.processes.command import clip, command_spans, spans_width
from gputop.ui.processes.lines import RowPainter, heading, message, status
from gputop.ui.processes.listing.filter import ProcessFilter
from gputop.ui.processes.listing.order import Order
from gputop.ui.processes.listing.row import ProcessRow
from gputop.ui.processes.listing.rows import ProcessRows
from gputop.ui.toolkit.cells import Line, asciify, line_width
from gputop.ui.toolkit.glyphs import ASCII, UNICODE
from gputop.ui.toolkit.line_widget import changed_regions
from gputop.ui.toolkit.view import View
from tests.unit.ui.process_data import GIB, TAKEN_AT, facts, gpu, process, snapshot

NAMES = tuple(COLUMNS)
VIEW = View(DEFAULTS, UNICODE)
WIDE = "推理/评测.py --模型 qwen3-8b"
HOSTILE = clean_text("\x1b]0;owned\x07 [/bold] [red]x \u202e gnp.exe e\u0301\u200d👩‍🚀 🇩🇪 ｆｕｌｌ")


def text(line: Line) -> str:
    return "".join(span for span, _ in line)


def painted(
    row: ProcessRow, cells: int = 80, names: tuple[str, ...] = DEFAULTS.columns, view: View = VIEW, **how: bool
) -> str:
    painter = RowPainter(lay_out(names, cells, "gpu_mem"), view)
    line = painter.line(row, TAKEN_AT, **how)
    assert line_width(line) == cells
    return text(line)


def row_of(*processes: GpuProcess, order: Order | None = None) -> ProcessRow:
    return ProcessRows().arrange(snapshot(*processes), ProcessFilter(), order or Order()).rows[0]


# ------------------------------------------------------------------------ layout


def test_the_default_columns_leave_twenty_cells_for_the_command_at_80() -> None:
    layout = lay_out(DEFAULTS.columns, 80, "gpu_mem")
    assert [column.id for column in layout.left_out] == ["where"]
    assert layout.command_cells >= 20


def test_the_heading_is_the_designs_sketch() -> None:
    line = text(heading(lay_out(DEFAULTS.columns, 80, "gpu_mem"), VIEW, "gpu_mem", True, True))
    assert line.split() == ["GPU", "PID", "USER", "GPU-MEM▾", "SM%", "CPU%", "HOST", "AGE", "COMMAND"]
    assert line_width(((line, ""),)) == 80


def test_the_headings_background_reaches_the_end_of_the_line() -> None:
    for names in (DEFAULTS.columns, ("gpu", "pid")):
        line = heading(lay_out(names, 80, "gpu_mem"), VIEW, "gpu_mem", True, True)
        assert all(style.endswith("@bar") for _, style in line)


@given(
    names=st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple),
    cells=st.integers(1, 250),
    sort=st.sampled_from(NAMES),
    digits=st.integers(0, 10),
)
def test_columns_lie_side_by_side_and_the_sorted_one_stays(
    names: tuple[str, ...], cells: int, sort: str, digits: int
) -> None:
    layout = lay_out(names, cells, sort, digits)
    x = 1
    for column, at, width in layout.placed:
        assert at == x and width >= 1
        assert layout.at(at) is column and layout.at(at + width - 1) is column
        x += width + 1
    assert {column.id for column, _, _ in layout.placed} | {column.id for column in layout.left_out} == set(names)
    if sort in names:
        assert sort in [column.id for column, _, _ in layout.placed]
    for descending in (True, False):
        assert line_width(heading(layout, VIEW, sort, descending, False)) == cells


def test_what_there_is_no_room_for_is_said() -> None:
    layout = lay_out(DEFAULTS.columns, 60, "gpu_mem")
    assert {column.id for column in layout.left_out} == {"host_mem", "age", "where"}
    assert layout.command_cells >= 20


def test_every_column_has_help() -> None:
    assert all(column.help and column.heading for column in COLUMNS.values())


# ------------------------------------------------------------------------- cells


def test_a_row_reads_as_in_the_sketch() -> None:
    row = row_of(
        process(
            41832, 0, 81.2, sm_percent=97, cpu_percent=104.2, host_memory_bytes=int(12.1 * GIB),
            start_time=TAKEN_AT - 3 * 3600 - 12 * 60, command="/usr/bin/python train.py --config llama.yaml",
        )
    )  # fmt: skip
    words = painted(row).split()
    assert words[:8] == ["0", "41832", "ml", "81.2G", "97", "104", "12.1G", "3h12"]
    assert " ".join(words[8:]) == "python train.py --config l›"


def test_a_dead_process_is_said_to_be_dead_and_shows_nothing_stale() -> None:
    row = ProcessRow(replace(process(50211, 1, 38), host=None, exists=False), facts(50211, user="cv"), 140 * GIB)
    words = painted(row).split()
    assert words[:5] == ["†", "1", "50211", "cv", "38.0G"]
    assert words[6:8] == ["—", "—"]  # CPU and memory of a process that is no more
    assert "(dead)" in words


def test_a_pid_of_another_namespace_is_said_to_be_one() -> None:
    assert "host pid" in painted(row_of(process(1, host=None, exists=None)), 120)


@pytest.mark.parametrize(("state", "words"), [("Z", "(zombie)"), ("T", "(stopped)"), ("D", "(in the kernel)")])
def test_an_unusual_state_is_said_without_its_column(state: str, words: str) -> None:
    assert words in painted(row_of(process(1, state=state)), 120)


def test_a_sum_line_counts_gpus_and_its_parts_repeat_nothing_of_the_host() -> None:
    made = ProcessRows().arrange(snapshot(process(41, 0, 3), process(41, 1, 4)), ProcessFilter(), Order())
    assert painted(made.rows[0]).split()[:4] == ["×2", "41", "ml", "7.0G"]
    assert painted(made.rows[1]).split() == ["0", "41", "3.0G", "10", "├", "on", "GPU", "0"]


def test_unknown_is_a_dash_and_zero_is_not() -> None:
    row = row_of(process(1, 0, None, sm_percent=0, cpu_percent=None))
    assert painted(row).split()[3:6] == ["—", "0", "—"]


def test_large_values_fit_their_columns() -> None:
    big = process(
        4194304, 15, 140, sm_percent=100, cpu_percent=25600.0, host_memory_bytes=3 * 1024 * GIB, threads=99999,
        gpu_instance_id=13, compute_instance_id=6, start_time=TAKEN_AT - 399 * 86400,
    )  # fmt: skip
    in_mib = replace(DEFAULTS, memory_unit="MiB")
    for view in (VIEW, View(in_mib, UNICODE)):
        painter = RowPainter(lay_out(NAMES, 200, "gpu_mem", 7, 9), view)
        assert "…" not in text(painter.line(row_of(big), TAKEN_AT))


def test_the_tag_is_a_mark_as_well_as_a_colour() -> None:
    row = row_of(process(1))
    assert painted(row, tagged=True)[0] == "*"
    assert painted(row)[0] == " "


def test_the_cursor_and_tag_colours_reach_the_end_of_the_line() -> None:
    for names in (DEFAULTS.columns, ("gpu", "pid")):
        painter = RowPainter(lay_out(names, 120, "gpu_mem"), VIEW)
        line = painter.line(row_of(process(1)), TAKEN_AT, cursor=True)
        assert line_width(line) == 120
        assert all(style.endswith("@cursor") for _, style in line)


# ----------------------------------------------------------------------- command


@pytest.mark.parametrize(
    ("command", "standing_out"),
    [
        ("/usr/bin/python3.11 -u /home/ml/train.py --lr 1", "python3.11 train.py"),
        ("python -m torch.distributed.run --nproc 8", "python torch.distributed.run"),
        ("python -X dev -O train.py", "python train.py"),
        ("python -c import(x)", "python"),
        ("/opt/conda/bin/vllm serve m", "vllm"),
        ("python", "python"),
        ("bash run.sh", "bash run.sh"),
        ("[kworker/0:1]", ""),
        ("/", "/"),
        ("a/ b", "a/"),
    ],
)
def test_the_programs_name_stands_out_of_its_arguments(command: str, standing_out: str) -> None:
    spans = command_spans(command)
    assert " ".join(span for span, role in spans if role == "text") == standing_out


@given(st.text(max_size=60).map(clean_text))
def test_nothing_of_a_command_is_lost_but_directories_of_its_program(command: str) -> None:
    shown = "".join(span for span, _ in command_spans(command))
    assert command.endswith(shown)


@given(
    st.lists(
        st.sampled_from(["abc", "推理", WIDE, HOSTILE, " ", "x" * 50]) | st.text(max_size=9).map(clean_text), max_size=5
    ),
    st.integers(0, 90),
    st.integers(0, 60),
)
def test_a_clipped_command_is_exactly_as_wide_as_its_cell(texts: list[str], offset: int, cells: int) -> None:
    clipped = clip([(part, "text") for part in texts], offset, cells)
    assert spans_width(clipped) == cells


def test_marks_say_that_a_command_goes_on_at_either_end() -> None:
    spans = [("python", "text"), (" train.py", "dim")]
    assert "".join(span for span, _ in clip(spans, 0, 8)) == "python ›"
    assert "".join(span for span, _ in clip(spans, 8, 5)) == "‹ain›"
    assert "".join(span for span, _ in clip(spans, 8, 8)) == "‹ain.py "
    assert "".join(span for span, _ in clip(spans, 0, 15)) == "python train.py"


# ------------------------------------------------------------------- exact widths

_NUMBERS = st.none() | st.integers(0, 2**45)
_PERCENT = st.none() | st.integers(0, 100)
_TEXTS = st.sampled_from(["ml", "推理用户的名字很长", HOSTILE, WIDE]) | st.text(max_size=40).map(clean_text)


@st.composite
def _processes(draw: st.DrawFn) -> GpuProcess:
    pid = draw(st.integers(1, 2**31))
    index = draw(st.integers(0, 31))
    host = draw(
        st.none()
        | st.builds(
            HostFacts,
            key=st.just(ProcessKey(pid, 1)),
            read_at=st.just(TAKEN_AT),
            start_time=st.none() | st.floats(0, TAKEN_AT + 9),
            parent_pid=st.none() | st.integers(0, 9),
            uid=st.none() | st.integers(0, 2000),
            user=st.none() | _TEXTS,
            name=st.none() | _TEXTS,
            command=st.none() | _TEXTS,
            state=st.none() | st.sampled_from("RSDZTtI"),
            threads=st.none() | st.integers(0, 10**6),
            cpu_percent=st.none() | st.floats(0, 10**6),
            host_memory_bytes=_NUMBERS,
        )
    )
    return GpuProcess(
        pid=pid,
        gpu_uuid=gpu(index).uuid,
        kind=draw(st.sampled_from(("C", "G", "C+G", "M"))),
        gpu_index=index,
        gpu_instance_id=draw(st.none() | st.integers(0, 13)),
        compute_instance_id=draw(st.none() | st.integers(0, 6)),
        memory_bytes=draw(_NUMBERS),
        sm_percent=draw(_PERCENT),
        memory_bandwidth_percent=draw(_PERCENT),
        encoder_percent=draw(_PERCENT),
        decoder_percent=draw(_PERCENT),
        exists=draw(st.sampled_from((True, False, None))),
        host=host,
    )


@settings(max_examples=50, deadline=None)
@given(
    st.lists(_processes(), max_size=6).map(tuple),
    st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple),
    st.sampled_from(NAMES),
    st.booleans(),
    st.booleans(),
    st.integers(1, 220),
    st.integers(0, 5),
    st.booleans(),
)
def test_every_line_is_exactly_as_wide_as_the_table(
    processes: tuple[GpuProcess, ...],
    names: tuple[str, ...],
    sort: str,
    reverse: bool,
    tree: bool,
    cells: int,
    offset: int,
    ascii_only: bool,
) -> None:
    made = ProcessRows().arrange(snapshot(*processes, gpus=32), ProcessFilter(), Order(sort, reverse, tree))
    assert {row.process.pid for row in made.rows if not row.is_launcher} == {process.pid for process in processes}
    layout = lay_out(names, cells, sort, 10, 8)
    painter = RowPainter(layout, View(DEFAULTS, ASCII if ascii_only else UNICODE), offset * 8)
    needed = layout.placed[-1].x + layout.placed[-1].width
    for n, row in enumerate(made.rows):
        line = painter.line(row, TAKEN_AT, n == 0, n == 1)
        assert line_width(line) == max(cells, needed)
        if ascii_only:
            line = asciify(line)
            assert text(line).isascii()
            assert line_width(line) == max(cells, needed)
        assert painter.line(row, TAKEN_AT, n == 0, n == 1) is not None
    for words in ("no process uses a GPU", HOSTILE):
        assert line_width(message(words, "dim", cells)) == cells
        assert line_width(status(cells, [(words, "dim")], [("↓ 3 more ", "dim")])) == cells


# -------------------------------------------------------------------------- cost


def test_a_row_that_did_not_change_is_the_same_line_again() -> None:
    painter = RowPainter(lay_out(DEFAULTS.columns, 80, "gpu_mem"), VIEW)
    row = row_of(process(1, start_time=TAKEN_AT - 7200))
    line = painter.line(row, TAKEN_AT)
    assert painter.line(row, TAKEN_AT + 30) is line
    assert painter.line(row, TAKEN_AT + 60) is not line  # a minute older
    assert painter.line(row, TAKEN_AT + 60, cursor=True) is not line


def test_a_tick_redraws_the_digits_that_changed_and_not_the_line() -> None:
    painter = RowPainter(lay_out(DEFAULTS.columns, 80, "gpu_mem"), VIEW)
    before = painter.line(row_of(process(1, sm_percent=97)), TAKEN_AT)
    after = painter.line(row_of(process(1, sm_percent=8)), TAKEN_AT)
    assert sum(region.width for region in changed_regions(0, before, after, 80)) <= 2
