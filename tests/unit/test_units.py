"""How quantities are written and read: every form of a quantity side by side."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop import units
from gputop.text import width
from gputop.units import GIB, KIB, MIB, fine


def test_unknown_is_the_dash_and_not_zero() -> None:
    for write in (units.size, units.rate, units.percent, units.temperature, units.duration, units.number, units.watts):
        assert write(None) == "—" != write(0)
    assert fine.size(None) == units.power(None, None) == fine.percent(1, 0) == "—"
    assert units.power(None, 700) == "—/700W" and units.used_of_total(None, 0) == "—/—G"
    assert units.size_in_words(None) == "an unknown amount"
    assert units.percent_of(None, 5) is units.percent_of(5, 0) is None


@given(st.floats(0, 900 * units.TIB))
def test_columns_have_room_for_every_size(bytes_: float) -> None:
    assert width(units.size(bytes_)) <= 6 and width(units.rate(bytes_)) <= 5 and width(fine.size(bytes_)) <= 7


@given(st.floats(0, 10_000 * 86400))
def test_columns_have_room_for_every_duration(seconds: float) -> None:
    assert width(units.duration(seconds)) <= 5
    assert width(fine.duration(seconds * 1e6 % 900e6)) <= 8


@pytest.mark.parametrize(
    ("bytes_", "column", "inside", "sentence", "limit"),
    [
        (512, "0M", "512B", "0 MiB", "0 MiB"),
        (612 * MIB, "612M", "612.0M", "612 MiB", "612 MiB"),
        (80 * GIB, "80.0G", "80.00G", "80.0 GiB", "80 GiB"),
        (88.1 * GIB, "88.1G", "88.10G", "88.1 GiB", "88.1 GiB"),
    ],
)
def test_sizes(bytes_: float, column: str, inside: str, sentence: str, limit: str) -> None:
    assert units.size(bytes_) == column
    assert fine.size(bytes_) == inside
    assert units.size_in_words(bytes_) == sentence
    assert units.short_size(bytes_) == limit


@pytest.mark.parametrize(
    ("seconds", "column", "label", "sentence", "estimate", "set_"),
    [
        (42, "42s", "0m", "42 s", "42 s", "42 s"),
        (600, "10m00", "10m", "10 min", "10 min", "10 min"),
        (7980, "2h13", "2h13m", "2 h 13 min", "2 h", "2.2 h"),
        (360_000, "4d04", "4d", "4 d 4 h", "100 h", "100 h"),
    ],
)
def test_durations(seconds: float, column: str, label: str, sentence: str, estimate: str, set_: str) -> None:
    assert units.duration(seconds) == column
    assert units.coarse_duration(seconds) == label
    assert units.duration_in_words(seconds) == sentence
    assert units.rough_duration(seconds) == estimate
    assert units.short_duration(seconds) == set_


def test_two_sizes_share_their_unit() -> None:
    assert units.used_of_total(88.1 * GIB, 140.4 * GIB) == "88.1/140.4G"
    assert units.used_of_total(612 * MIB, 140.4 * GIB, "MiB") == "612/143770M"
    assert units.used_of_total_in_words(88.1 * GIB, 140.4 * GIB) == "88.1 / 140.4 GiB"


def test_changes_have_a_sign() -> None:
    assert (fine.signed(1536), fine.signed(-20 * MIB), fine.signed(0)) == ("+1.5K", "-20.0M", "0B")
    assert fine.size(-3 * KIB) == "-3.0K"


def test_what_is_long_ago_says_the_day() -> None:
    now = time.time()
    assert units.clock_or_day(now) == units.clock(now) and len(units.clock(now, seconds=False)) == 5
    year_ago = now - 365 * 86400
    assert units.clock_or_day(year_ago) == time.strftime("%b %d %H:%M", time.localtime(year_ago))
    assert units.timestamp(now).endswith(units.clock(now))


def test_durations_are_read_with_their_unit() -> None:
    assert units.parse_duration("1.5h") == 5400 and units.parse_duration("2 d") == 172800
    for text in ("5", "0s", "2 weeks"):
        with pytest.raises(ValueError, match=r"is not a time such as|is no time at all"):
            units.parse_duration(text)


@given(st.sampled_from([80 * GIB, 512 * MIB, 3 * GIB // 2]))
def test_what_is_written_of_a_limit_is_read_as_the_same_limit(bytes_: int) -> None:
    assert units.parse_size(units.short_size(bytes_)) == bytes_
