"""Which rows the process table has, in which order, and where its cursor goes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.leaks.report import DeadPid, LeakReport
from gputop.model import GpuProcess, LeakVerdict, ProcessKey, RowKey, Snapshot, Verdict, replace
from gputop.model.columns import COLUMNS
from gputop.ui.processes.annotations import ProcessAnnotations
from gputop.ui.processes.cursor import Cursor, closest_row
from gputop.ui.processes.listing.filter import ProcessFilter
from gputop.ui.processes.listing.order import SORT_INTERVAL_SECONDS, Order
from gputop.ui.processes.listing.row import ALL_GPUS, ProcessRow
from gputop.ui.processes.listing.rows import ProcessRows, TableRows
from gputop.ui.processes.mark import Mark
from gputop.ui.processes.tags import Tags, targets
from tests.unit.ui.process_data import GIB, facts, gpu, process, snapshot

MANY = 512


def listing(shot: Snapshot, text: str = "", order: Order | None = None) -> TableRows:
    return ProcessRows().arrange(shot, ProcessFilter.parse(text), order or Order())


def pids(made: TableRows) -> list[int]:
    return [row.process.pid for row in made.rows]


def shape(made: TableRows) -> list[tuple[int, str]]:
    """(pid, GPU) of the rows; "all" for a sum line."""
    return [(row.process.pid, "all" if row.parts else str(row.process.gpu_index)) for row in made.rows]


# ------------------------------------------------------------------------ order


def test_numbers_come_largest_first_and_names_ascending() -> None:
    shot = snapshot(process(1, gib=2, user="bob"), process(2, gib=9, user="Alice"), process(3, gib=5, user="carol"))
    assert pids(listing(shot)) == [2, 3, 1]
    assert pids(listing(shot, order=Order("user"))) == [2, 1, 3]
    assert pids(listing(shot, order=Order("pid"))) == [1, 2, 3]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("column", COLUMNS)
def test_rows_of_which_the_value_is_unknown_are_last_either_way(column: str, reverse: bool) -> None:
    unknown = GpuProcess(pid=7, gpu_uuid=gpu(0).uuid, kind="C")
    engines = {"memory_bandwidth_percent": 3, "encoder_percent": 2, "decoder_percent": 1}
    shot = snapshot(process(1, **engines), unknown, process(9, **engines))
    if column not in ("gpu", "pid", "type"):  # always known
        assert pids(listing(shot, order=Order(column, reverse)))[-1] == 7


def test_equal_rows_keep_one_order_whatever_order_the_driver_lists_them_in() -> None:
    rows = [process(pid, index=pid % 2, gib=4) for pid in (5, 3, 9, 4)]
    expected = [4, 3, 5, 9]  # GPU 0, then GPU 1, each by pid
    assert pids(listing(snapshot(*rows))) == expected
    assert pids(listing(snapshot(*reversed(rows)))) == expected
    assert pids(listing(snapshot(*rows), order=Order(reverse=True))) == expected


def test_values_that_change_at_every_tick_do_not_swap_rows_at_every_tick() -> None:
    rows = ProcessRows()
    order = Order("sm")

    def at(seconds: float, first: int, second: int, *more: GpuProcess) -> list[int]:
        shot = snapshot(process(1, sm_percent=first), process(2, sm_percent=second), *more, at=seconds)
        return pids(rows.arrange(shot, ProcessFilter(), order))

    assert at(0.0, 90, 10) == [1, 2]
    assert at(0.5, 10, 90) == [1, 2]
    assert at(1.0, 10, 90, process(3, sm_percent=100)) == [3, 1, 2]  # a new row finds its place at once
    assert at(1.5, 10, 90) == [1, 2]
    assert at(SORT_INTERVAL_SECONDS, 10, 90) == [2, 1]


def test_a_value_that_becomes_known_takes_its_place_at_once() -> None:
    rows = ProcessRows()
    before = snapshot(process(1, gib=1), process(2, gib=None))
    assert pids(rows.arrange(before, ProcessFilter(), Order())) == [1, 2]
    assert pids(rows.arrange(snapshot(process(1, gib=1), process(2, gib=3), at=0.5), ProcessFilter(), Order())) == [
        2,
        1,
    ]


def test_another_order_is_applied_at_once() -> None:
    rows = ProcessRows()
    shot = snapshot(process(1, gib=1), process(2, gib=3))
    assert pids(rows.arrange(shot, ProcessFilter(), Order())) == [2, 1]
    assert pids(rows.arrange(shot, ProcessFilter(), Order(reverse=True))) == [1, 2]
    assert pids(rows.arrange(shot, ProcessFilter(), Order("pid"))) == [1, 2]


# ------------------------------------------------------------------ several GPUs


def test_a_process_on_two_gpus_is_a_sum_line_with_one_line_for_each_gpu_under_it() -> None:
    both = process(1, 0, 3, sm_percent=20), process(1, 1, 4, sm_percent=70)
    made = listing(snapshot(process(2, gib=5), *both))
    assert shape(made) == [(1, "all"), (1, "0"), (1, "1"), (2, "0")]
    total = made.rows[0].process
    assert total.memory_bytes == 7 * GIB and total.sm_percent == 70
    assert made.rows[0].key.gpu_uuid == ALL_GPUS
    assert made.total == 2


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    made = listing(snapshot(process(1, 0, 3), process(1, 1, None)))
    assert made.rows[0].process.memory_bytes is None


def test_sorted_by_gpu_each_gpu_has_its_own_rows_and_there_is_no_sum() -> None:
    made = listing(snapshot(process(1, 1, 4), process(1, 0, 3), process(2, 0, 5)), order=Order("gpu"))
    assert shape(made) == [(2, "0"), (1, "0"), (1, "1")]
    assert not any(row.is_part for row in made.rows)


def test_a_folded_sum_line_hides_its_gpus() -> None:
    rows = ProcessRows()
    shot = snapshot(process(1, 0), process(1, 1))
    assert len(rows.arrange(shot, ProcessFilter(), Order()).rows) == 3
    rows.folded.add(1)
    made = rows.arrange(shot, ProcessFilter(), Order())
    assert [row.folded for row in made.rows] == [True]


def test_a_filter_for_one_gpu_leaves_a_plain_row_of_a_process_on_two() -> None:
    made = listing(snapshot(process(1, 0, 3), process(1, 1, 4)), "gpu:1")
    assert shape(made) == [(1, "1")]
    assert not made.rows[0].is_part


def test_mig_instances_of_one_gpu_are_rows_of_their_own() -> None:
    parts = [process(1, 0, gpu_instance_id=g, compute_instance_id=0) for g in (2, 1)]
    made = listing(snapshot(*parts), order=Order("gpu"))
    assert [row.process.gpu_instance_id for row in made.rows] == [1, 2]
    assert len({row.key for row in made.rows}) == 2


# ------------------------------------------------------------------------- tree


def test_children_stand_under_their_listed_parent_sorted_among_siblings() -> None:
    shot = snapshot(
        process(10, gib=1),
        process(11, gib=2, parent_pid=10),
        process(12, gib=3, parent_pid=10),
        process(13, gib=9, parent_pid=12),
        process(20, gib=5, parent_pid=777),
    )
    made = listing(shot, order=Order(tree=True))
    assert [(row.process.pid, row.branch) for row in made.rows] == [
        (20, ""),
        (10, ""),
        (12, "├ "),
        (13, "│ └ "),
        (11, "└ "),
    ]


def test_ranks_of_one_launcher_stand_under_a_line_for_it() -> None:
    rows = ProcessRows()
    ranks = [process(pid, pid % 2, pid, parent_pid=777) for pid in (10, 11, 12)]
    shot = snapshot(process(5, gib=11.5), *ranks, process(6, gib=1, parent_pid=888))
    made = rows.arrange(shot, ProcessFilter(), Order(tree=True))
    assert [(row.process.pid, row.branch) for row in made.rows] == [
        (777, ""), (12, "├ "), (11, "├ "), (10, "└ "), (5, ""), (6, ""),
    ]  # fmt: skip
    launcher = made.rows[0]
    assert launcher.is_launcher and launcher.process.memory_bytes == 33 * GIB and launcher.pids == (12, 11, 10)
    assert made.total == 5
    refused = targets(made, Tags(), launcher)
    assert not refused.chosen and "uses no GPU" in refused.refused[0][1]

    again = rows.arrange(replace(shot, processes=tuple(shot.processes)), ProcessFilter(), Order(tree=True))
    assert again.rows[0] is launcher
    rows.folded.add(777)
    assert [(row.process.pid, row.hidden) for row in rows.arrange(shot, ProcessFilter(), Order(tree=True)).rows] == [
        (777, 3), (5, 0), (6, 0),
    ]  # fmt: skip


def test_folding_in_the_tree_says_how_many_it_hides() -> None:
    rows = ProcessRows()
    rows.folded.add(10)
    shot = snapshot(process(10), process(11, parent_pid=10), process(12, parent_pid=11))
    made = rows.arrange(shot, ProcessFilter(), Order(tree=True))
    assert [(row.process.pid, row.folded, row.hidden) for row in made.rows] == [(10, True, 2)]
    assert set(made.shown) == {10, 11, 12}


def test_parents_in_a_ring_lose_no_row() -> None:
    shot = snapshot(
        process(1, parent_pid=2, start_ticks=5), process(2, parent_pid=1, start_ticks=5), process(3, parent_pid=3)
    )
    assert sorted(pids(listing(shot, order=Order(tree=True)))) == [1, 2, 3]


def test_a_process_is_no_child_of_a_later_bearer_of_its_parents_pid() -> None:
    shot = snapshot(process(10, start_ticks=900), process(11, parent_pid=10, start_ticks=100))
    assert {row.branch for row in listing(shot, order=Order(tree=True)).rows} == {""}


# ------------------------------------------------------------------------- dead


def test_a_dead_process_keeps_its_last_known_name_while_the_driver_lists_it() -> None:
    rows = ProcessRows()
    rows.arrange(snapshot(process(1, user="cv")), ProcessFilter(), Order())
    dead_pid = snapshot(process(1, host=None, exists=False), at=1)
    row = rows.arrange(dead_pid, ProcessFilter(), Order()).rows[0]
    assert row.dead and row.facts is not None and row.facts.user == "cv"
    assert row.key.process == ProcessKey(1, 10)
    assert pids(rows.arrange(dead_pid, ProcessFilter.parse("train_1"), Order())) == [1]

    rows.arrange(snapshot(at=2), ProcessFilter(), Order())
    again = rows.arrange(snapshot(process(1, host=None, exists=False), at=3), ProcessFilter(), Order()).rows[0]
    assert again.facts is None  # gone from the list in between: whose pid it is now, nobody knows


# ----------------------------------------------------------------------- filter


PEOPLE = (
    process(123, 0, 12, user="ml", command="/opt/python train.py", sm_percent=90, cpu_percent=120.0),
    process(124, 1, 0.25, user="Mlops", name="serve", command="python SERVE.py", kind="G", sm_percent=0),
    process(
        35,
        1,
        None,
        user="bob",
        name="x",
        command="ns:x http://host:80/a",
        kind="C+G",
        sm_percent=None,
        cpu_percent=None,
    ),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {123, 124, 35}),
        ("python", {123, 124}),
        ("PYTHON train", {123}),
        ("12", {123, 124}),
        ("!python", {35}),
        ("!python !bob", set()),
        ("user:ml", {123, 124}),
        ("user:bob,mlo", {124, 35}),
        ("!user:ml", {35}),
        ("gpu:0", {123}),
        ("gpu:0,1", {123, 124, 35}),
        ("!gpu:0", {124, 35}),
        ("gpu:GPU-00000001", {124, 35}),
        ("gpu:00000001-1111", {124, 35}),
        ("gpu:7", set()),
        ("pid:12", {123, 124}),
        ("pid:123", {123}),
        ("type:C", {123, 35}),
        ("type:g", {124, 35}),
        ("type:M", set()),
        ("mem>10G", {123}),
        ("mem<512M", {124}),
        ("mem<=0.25G", {124}),
        ("!mem>10G", {124}),  # of 35 nothing is known
        ("MEM>10g", {123}),
        ("sm>50", {123}),
        ("sm<50%", {124}),
        ("cpu>=50", {123, 124}),
        ("host>512M python", {123, 124}),
        ("http://host:80/a", {35}),
        ("ns:x", {35}),
        ("user:ml mem>10G !serve", {123}),
        ("memory > 10 GiB", {123}),
        ("process memory > 10GiB and utilization > 50%", {123}),
        ("!memory > 10GiB", {124}),
        ("mem>20%", set()),
        ("mem<1%", {124}),
        ("host memory > 512MiB python", {123, 124}),
        ("command:TRAIN", {123}),
        ("mem>300", {123}),  # MiB
        ("a>b", set()),
    ],
)
def test_filter(text: str, expected: set[int]) -> None:
    parsed = ProcessFilter.parse(text)
    assert not parsed.problems
    assert set(pids(listing(snapshot(*PEOPLE), text))) == expected


@pytest.mark.parametrize(
    "text",
    ["user:", "gpu:", "gpu:GP", "pid:", "pid:x", "type:", "type:Q", "mem>", "mem>x", "sm>a", "cpu<", "!", "!pid:"],
)
def test_a_half_typed_or_wrong_term_is_said_in_words_and_hides_nothing(text: str) -> None:
    parsed = ProcessFilter.parse(text)
    assert len(parsed.problems) == 1 and parsed.problems[0].startswith(text)
    assert set(pids(listing(snapshot(*PEOPLE), text))) == {123, 124, 35}
    assert pids(listing(snapshot(*PEOPLE), f"train {text}")) == [123]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("memry > 10G", "memry > 10G: memry: no such quantity (did you mean memory?)"),
        ("free memory > 10G", "free memory > 10G: free memory is a GPU's, not a process's"),
        ("mem > 1G or sm > 5", "or: 'or' is not supported: all terms must match"),
        ("mem > 1G and sm > ", "sm >: a value is missing, such as sm > 90%"),
        ("sm>5G", "sm>5G: '5G' is not a value such as 90%"),
    ],
)
def test_a_term_that_is_no_filter_is_said_with_what_may_be_meant(text: str, said: str) -> None:
    assert ProcessFilter.parse(text).problems == (said,)


def test_the_user_and_kind_chosen_by_key_are_exact_and_add_to_the_text() -> None:
    def kept(**chosen: str) -> list[int]:
        return pids(ProcessRows().arrange(snapshot(*PEOPLE), ProcessFilter.parse("python", **chosen), Order()))

    assert kept(user="ml") == [123]
    assert kept(kind="G") == [124]


@given(st.text(max_size=30) | st.from_regex(r"!?(user|gpu|pid|type|mem|sm|cpu|host)[:<>=]{0,2}\S{0,6}", fullmatch=True))
def test_no_text_breaks_the_filter(text: str) -> None:
    listing(snapshot(*PEOPLE), text)


def test_memory_is_compared_over_all_gpus_however_the_table_is_sorted() -> None:
    shot = snapshot(process(1, 0, 6), process(1, 1, 6), process(2, 0, 8))
    for column in ("gpu", "gpu_mem"):
        assert set(pids(listing(shot, "mem>10G", Order(column)))) == {1}


# ----------------------------------------------------------------------- cursor


def rows_of(*processes: GpuProcess) -> tuple[ProcessRow, ...]:
    return listing(snapshot(*processes), order=Order("pid")).rows


def test_the_cursor_follows_its_row() -> None:
    old, new = rows_of(process(1), process(2), process(3)), rows_of(process(2), process(3))
    assert closest_row(old[1].key, 1, old, new) == 0


def test_the_cursor_stays_when_the_start_time_becomes_known_and_when_the_process_dies() -> None:
    unread = rows_of(process(1), process(2, host=None))
    read = rows_of(process(1), process(2))
    assert closest_row(unread[1].key, 1, unread, read) == 1
    assert closest_row(read[1].key, 1, read, unread) == 1


def test_another_bearer_of_the_pid_is_another_process() -> None:
    old = rows_of(process(1), process(2, start_ticks=5), process(3))
    new = rows_of(process(2, start_ticks=6), process(3))
    assert new[closest_row(old[1].key, 1, old, new)].process.pid == 3


@pytest.mark.parametrize(("left", "expected"), [((1, 2, 4, 5), 4), ((1, 2, 5), 5), ((1, 2), 2), ((1,), 1), ((8, 9), 9)])
def test_when_the_row_vanishes_the_cursor_goes_to_the_nearest_that_was_there(
    left: tuple[int, ...], expected: int
) -> None:
    old = rows_of(*(process(pid) for pid in range(1, 6)))
    new = rows_of(*(process(pid) for pid in left))
    assert new[closest_row(old[2].key, 2, old, new)].process.pid == expected


def test_folding_takes_the_cursor_from_a_gpu_line_to_its_sum() -> None:
    rows = ProcessRows()
    shot = snapshot(process(1, 0), process(1, 1), process(2, 0))
    old = rows.arrange(shot, ProcessFilter(), Order("pid")).rows
    rows.folded.add(1)
    new = rows.arrange(shot, ProcessFilter(), Order("pid")).rows
    assert closest_row(old[2].key, 2, old, new) == 0


def test_the_cursor_returns_to_the_chosen_row_that_a_filter_hid() -> None:
    rows = rows_of(*(process(pid) for pid in range(1, 6)))
    cursor = Cursor()
    cursor.follow((), rows, 9)
    cursor.move(2, rows)
    assert cursor.follow(rows, rows[3:], 9) and rows[3:][cursor.at].process.pid == 4
    assert cursor.follow(rows[3:], (), 9)
    assert cursor.follow((), rows, 9) and rows[cursor.at].process.pid == 3


def test_the_cursor_does_not_return_to_a_pid_that_could_be_anothers() -> None:
    before = rows_of(process(1), process(2, host=None), process(3))
    cursor = Cursor()
    cursor.follow((), before, 9)
    cursor.move(1, before)
    gone = rows_of(process(1), process(3))
    cursor.follow(before, gone, 9)
    again = rows_of(process(1), process(2, start_ticks=99), process(3))
    cursor.follow(gone, again, 9)
    assert again[cursor.at].process.pid == 3


# --------------------------------------------------------------- tags and targets


def test_a_tag_takes_the_start_time_when_it_is_read() -> None:
    tags = Tags()
    unread = listing(snapshot(process(1, host=None)))
    tags.toggle(unread.rows[0])
    assert tags.holds(unread.rows[0])
    tags.update(listing(snapshot(process(1, start_ticks=5))))
    assert list(tags) == [ProcessKey(1, 5)]
    other = listing(snapshot(process(1, start_ticks=6)))
    assert not tags.holds(other.rows[0])
    tags.update(other)
    assert not tags


def test_a_tag_without_a_start_time_ends_with_the_process() -> None:
    tags = Tags()
    tags.toggle(listing(snapshot(process(1, host=None))).rows[0])
    tags.update(listing(snapshot(process(1, host=None, exists=False))))
    tags.update(listing(snapshot(process(1, start_ticks=6))))
    assert not tags


def test_a_tag_stays_while_its_gpu_is_lost() -> None:
    tags = Tags()
    tags.toggle(listing(snapshot(process(1))).rows[0])
    tags.update(listing(snapshot()))
    assert list(tags) == [ProcessKey(1, 10)]


def test_targets_are_the_tagged_ones_over_all_their_gpus_and_hidden_ones_are_left_out() -> None:
    made = listing(snapshot(process(1, 0, 3), process(1, 1, 4), process(2, command="serve")), "train")
    tags = Tags()
    tags.toggle(made.rows[0])
    tags.toggle(ProcessRow(process(2), facts(2)))
    found = targets(made, tags, made.rows[0])
    assert [(target.key, target.memory_bytes) for target in found.chosen] == [(ProcessKey(1, 10), 7 * GIB)]
    assert found.chosen[0].gpu_uuids == (gpu(0).uuid, gpu(1).uuid)
    assert [target.key.pid for target in found.hidden] == [2]


def test_where_a_filter_hides_all_tagged_processes_the_one_at_the_cursor_is_no_target() -> None:
    made = listing(snapshot(process(1), process(2, command="serve")), "train")
    tags = Tags()
    tags.toggle(ProcessRow(process(2), facts(2)))
    found = targets(made, tags, made.rows[0])
    assert not found.chosen and [target.key.pid for target in found.hidden] == [2]


def test_a_gpu_filter_does_not_make_a_target_smaller_than_its_process() -> None:
    made = listing(snapshot(process(1, 0, 3), process(1, 1, 4)), "gpu:0")
    assert targets(made, Tags(), made.rows[0]).chosen[0].memory_bytes == 7 * GIB


@pytest.mark.parametrize(("exists", "word"), [(False, "dead"), (None, "namespace")])
def test_what_cannot_be_signalled_is_refused_in_words(exists: bool | None, word: str) -> None:
    made = listing(snapshot(process(1, host=None, exists=exists)))
    found = targets(made, Tags(), made.rows[0])
    assert not found.chosen
    assert word in found.refused[0][1]


# ------------------------------------------------------------------------- cost


def test_nothing_is_arranged_again_for_the_same_processes() -> None:
    rows = ProcessRows()
    shot = snapshot(process(1), process(2))
    first = rows.arrange(shot, ProcessFilter(), Order())
    assert rows.arrange(replace(shot, taken_at=shot.taken_at + 9), ProcessFilter(), Order()) is first
    assert rows.arrange(shot, ProcessFilter.parse("x"), Order()) is not first


@pytest.mark.parametrize("order", [Order(), Order(tree=True), Order("gpu")])
def test_an_unchanged_process_gives_the_same_row_object(order: Order) -> None:
    rows = ProcessRows()
    same = process(1, 0), process(1, 1), process(2, parent_pid=1)
    first = rows.arrange(snapshot(*same, process(3, sm_percent=1)), ProcessFilter(), order)
    second = rows.arrange(snapshot(*same, process(3, sm_percent=2), at=1), ProcessFilter(), order)
    kept = [a is b for a, b in zip(first.rows, second.rows, strict=True)]
    assert [row.process.pid != 3 for row in second.rows] == kept


def test_the_cost_grows_no_faster_than_the_number_of_processes() -> None:
    def seconds(count: int) -> float:
        shots = [
            snapshot(
                *(process(n, n % 8, n % 13, sm_percent=(n * at) % 100) for n in range(1, count + 1)), gpus=8, at=at
            )
            for at in range(5)
        ]
        rows, best = ProcessRows(), 9.0
        for shot in shots:
            begin = time.thread_time()
            rows.arrange(shot, ProcessFilter(), Order("sm"))
            best = min(best, time.thread_time() - begin)
        return best

    assert seconds(4 * MANY) < 12 * seconds(MANY)


def test_row_keys_name_process_gpu_and_instance() -> None:
    row = listing(snapshot(process(1, 1, gpu_instance_id=3, compute_instance_id=0))).rows[0]
    assert row.key == RowKey(ProcessKey(1, 10), gpu(1).uuid, 3, 0)


def test_whose_a_dead_pid_was_is_what_filters_and_groups_go_by_too() -> None:
    """As its row shows it: found out by the leak watch, where the host says nothing any more."""
    verdict = LeakVerdict(Verdict.LEAK, ProcessKey(9, None), (), (), (), (), user="cv", command="python ddp.py")
    report = LeakReport(0.0, verdicts=(verdict,), dead_pids=(DeadPid(9, (), 0.0),))
    shot = snapshot(process(9, host=None, exists=False), process(1, user="ml"))

    def arranged(text: str, order: Order) -> TableRows:
        rows = ProcessRows()
        rows.annotations = ProcessAnnotations(report)
        return rows.arrange(shot, ProcessFilter.parse(text), order)

    assert pids(arranged("user:cv", Order())) == [9]
    assert pids(arranged("ddp", Order())) == [9]
    groups = [row.annotation.group for row in arranged("", Order(group="user")).rows if row.annotation.group]
    assert sorted(groups) == ["cv", "ml"]


def test_memory_told_as_a_change_is_sorted_as_a_change() -> None:
    before = snapshot(process(1, gib=30), process(2, gib=20), process(3, gib=2), process(4, gib=None))
    now = snapshot(process(1, gib=30), process(2, gib=19), process(3, gib=12), process(4, gib=8))
    rows = ProcessRows()
    assert pids(rows.arrange(now, ProcessFilter.parse(""), Order())) == [1, 2, 3, 4]
    order = Order(mark=Mark(before))
    assert pids(rows.arrange(now, ProcessFilter.parse(""), order)) == [3, 1, 2, 4]
    assert pids(rows.arrange(now, ProcessFilter.parse(""), order._replace(reverse=True))) == [2, 1, 3, 4]
