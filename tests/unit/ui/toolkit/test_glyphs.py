"""With --ascii one sign stood for several things."""

from __future__ import annotations

from collections import Counter

from gputop.text import to_ascii
from gputop.ui.toolkit.glyphs import ASCII


def test_plus_stands_for_corners_dead_pids_and_success() -> None:
    box, dead, success = {*ASCII.corners}, ASCII.dead_pid, to_ascii("✓")
    assert box == {"+"} and dead == ASCII.dagger == to_ascii("†")
    assert len({"+", dead, success}) == 3
    assert not {dead, success, "+"} & {*ASCII.levels}


def test_parts_of_the_memory_bar_look_alike() -> None:
    bar = (ASCII.full, ASCII.cached, ASCII.dead_pid, ASCII.unattributed, ASCII.reserved, ASCII.track, ASCII.peak)
    assert max(Counter(bar).values()) == 1


def test_a_sort_arrow_is_a_letter_of_the_columns_name() -> None:
    assert len({ASCII.arrow_down, ASCII.arrow_up, ASCII.down, ASCII.up, ASCII.unfolded}) == 4  # "v" twice: no arrow
    assert not ASCII.arrow_down.isalnum() and not ASCII.arrow_up.isalnum()


def test_a_difference_of_temperature_loses_its_unit() -> None:
    assert to_ascii("58°C 31° to limit · HBM 49° · 80 °F") == "58 C 31' to limit - HBM 49' - 80  F"
