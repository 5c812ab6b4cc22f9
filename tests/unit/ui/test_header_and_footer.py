"""Keys that matter fell off the footer, a leak was cut, and the header counted GPUs wrong."""

from __future__ import annotations

import dataclasses

import pytest

from gputop.model import Gpu, Host, Snapshot
from gputop.settings import DEFAULTS
from gputop.ui.footer import footer_line
from gputop.ui.header import header_line
from gputop.ui.keys import EVERYDAY, KEYS, REPLAY_KEYS
from gputop.ui.toolkit.glyphs import UNICODE
from gputop.ui.toolkit.view import View

FOOTER = [key for key in KEYS if key.footer]
VIEW = View(DEFAULTS, UNICODE)
H200, L40S = "NVIDIA H200", "NVIDIA L40S"


def text(line) -> str:
    return "".join(text for text, _ in line)


@pytest.mark.parametrize("cells", range(20, 140))
@pytest.mark.parametrize("leaked", ["", "▲38G", "▲1130G"])
def test_a_narrow_footer_loses_kill_and_quit(cells: int, leaked: str) -> None:
    line, places = footer_line(FOOTER, cells, leaked)
    assert {"kill", "quit"} <= {key.action for _, _, key in places}
    assert len(text(line)) == cells
    for start, end, key in places:
        assert key.fkey in text(line)[start:end] and key.footer in text(line)[start:end]


@pytest.mark.parametrize("cells", range(40, 140))
def test_a_leak_is_cut_to_one_and_a_half_figures(cells: int) -> None:
    line, _ = footer_line(FOOTER, cells, "▲38G")
    assert "Leaks▲38G" in text(line)


def test_a_click_on_the_leak_is_the_leaks_key() -> None:
    line, places = footer_line(FOOTER, 80, "▲38G")
    at = text(line).index("▲38G")
    assert next(key.action for start, end, key in places if start <= at < end) == "leaks"


def header(names: list[str], cells: int, lost: int = 0) -> str:
    gpus = [Gpu(n, f"GPU-{n}", name, read_at=0.0) for n, name in enumerate(names)]
    for n in range(lost):
        gpus[n] = dataclasses.replace(gpus[n], error="GPU is lost: reset it")
    snapshot = Snapshot(0.0, Host("gpu01", 1.0, 8, 1, 1, None, None), gpus=tuple(gpus))
    return text(header_line(snapshot, VIEW, cells, 1.0))


def test_a_lost_gpu_is_not_counted() -> None:
    assert "8 × NVIDIA H200, 1 lost" in header([H200] * 8, 120, lost=1)
    assert "8 × H200, 1 lost" in header([H200] * 8, 60, lost=1)
    assert "8 × NVIDIA H200, 1 lost" in header(["", *[H200] * 7], 120, lost=1)


def test_of_two_models_the_second_is_not_told() -> None:
    assert "4 × NVIDIA H200, 2 × NVIDIA L40S" in header([*[H200] * 4, *[L40S] * 2], 120)
    assert "4 × H200, 2 × L40S" in header([*[H200] * 4, *[L40S] * 2], 60)
    assert "3 GPUs" in header([H200, L40S, "NVIDIA A100"], 120)
    assert "2 GPUs" in header([H200, "NVIDIA RTX 6000 Ada Generation Laptop"], 50)


def test_no_key_is_bound_twice() -> None:
    for keys in (KEYS, REPLAY_KEYS):
        bound = [name for key in keys for name in key.keys]
        assert len(bound) == len(set(bound))


def test_the_eight_everyday_keys_are_keys() -> None:
    assert len(EVERYDAY) == 8 and set(EVERYDAY) <= {key.action for key in KEYS}
