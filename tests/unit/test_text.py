"""Text measured in cells, as a terminal would."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gputop.model import clean_text
from gputop.text import cut, fit, head, is_narrow, shorten, skip, to_ascii, width, wrap

texts = st.one_of(
    st.text(alphabet=st.sampled_from("ab ·…—é日本語👍한ｱ/-\u0301\u093f\u3099"), max_size=60),
    st.text(max_size=60).map(clean_text),
)
cells = st.integers(0, 40)


@pytest.mark.parametrize(
    ("text", "taken"),
    [("abc", 3), ("日本", 4), ("ｱ", 1), ("한", 2), ("é", 1), ("e\u0301", 1), ("👍", 2), ("—…×°█▏·", 7), ("नि", 1)],
)
def test_characters_take_the_cells_a_terminal_gives_them(text: str, taken: int) -> None:
    assert width(text) == taken


@given(text=texts)
def test_text_is_as_wide_as_textual_takes_it_for(text: str) -> None:
    assert width(text) == cell_len(text)
    assert not is_narrow(text) or width(text) == len(text)


@given(text=texts, cells=cells)
def test_what_is_fitted_has_exactly_that_width(text: str, cells: int) -> None:
    assert width(fit(text, cells)) == width(fit(text, cells, right=True)) == cells
    assert width(shorten(text, cells)) <= cells


@given(text=texts, cells=cells)
def test_what_is_cut_is_as_wide_as_there_is_room(text: str, cells: int) -> None:
    assert text.startswith(head(text, cells))
    assert min(width(text), cells - 1) <= width(head(text, cells)) <= cells
    assert width(cut(text, cells)) == cells
    assert width(skip(text, cells)) == max(0, width(text) - cells)


def test_what_is_cut_off_says_so() -> None:
    assert shorten("python train.py", 8) == "python …"
    assert shorten("日本語", 5) == "日本…" and shorten("日本語", 4) == "日…" and shorten("日本語", 6) == "日本語"
    assert shorten("abc", 0) == fit("abc", 0) == ""
    assert fit("日本語", 4) == "日… " and fit("日本語", 4, right=True) == " 日…"


@given(text=texts, cells=st.integers(2, 40))
def test_wrapping_loses_nothing_and_keeps_to_the_width(text: str, cells: int) -> None:
    lines = wrap(text, cells)
    assert lines and all(width(line) <= cells for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_wrapping_keeps_the_room_between_columns() -> None:
    assert wrap("pid 4711  ml  python train.py", 20) == ["pid 4711  ml  python", "train.py"]
    assert wrap("", 20) == [""]


@given(text=st.text().map(clean_text))
def test_ascii_takes_as_many_cells(text: str) -> None:
    assert to_ascii(text).isascii() and width(to_ascii(text)) == width(text)


def test_what_gputop_draws_with_is_measured_without_rich() -> None:
    script = (
        "import sys; from gputop.text import fit, to_ascii; "
        "to_ascii(fit('▏▎█ 88.1G · ↓76M — 61°C…', 40)); sys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
