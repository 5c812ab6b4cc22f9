"""Text measured in cells, as a terminal would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.model import clean_text
from gputop.text import cells, left, right, shorten, to_ascii, wrap

texts = st.text(alphabet=st.sampled_from("ab ·…—é日本語👍한ｱ/-"), max_size=60)


@pytest.mark.parametrize(
    ("text", "width"),
    [("abc", 3), ("日本", 4), ("ｱ", 1), ("한", 2), ("é", 1), ("e\u0301", 1), ("👍", 2), ("—…×°█▏·", 7), ("नि", 2)],
)
def test_characters_take_the_cells_a_terminal_gives_them(text: str, width: int) -> None:
    assert cells(text) == width


@given(text=texts, width=st.integers(1, 40))
def test_what_is_fitted_has_exactly_that_width(text: str, width: int) -> None:
    assert cells(left(text, width)) == cells(right(text, width)) == width
    assert cells(shorten(text, width)) <= width


def test_what_is_cut_off_says_so() -> None:
    assert shorten("python train.py", 8) == "python …"
    assert shorten("日本語", 5) == "日本…" and shorten("日本語", 4) == "日…" and shorten("日本語", 6) == "日本語"
    assert shorten("abc", 0) == ""


@given(text=texts, width=st.integers(2, 40))
def test_wrapping_loses_nothing_and_keeps_to_the_width(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(0 < cells(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(text=st.text())
def test_ascii_takes_as_many_cells(text: str) -> None:
    text = clean_text(text)
    assert to_ascii(text).isascii() and cells(to_ascii(text)) == cells(text)
