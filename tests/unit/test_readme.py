"""The README tells what the program does: options, keys, settings, exit statuses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.model.chart_metrics import CHART_METRICS
from gputop.model.columns import COLUMNS
from gputop.settings import CHART_WINDOWS, DEFAULTS, NAMES, help_of

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def as_toml(name: str) -> str:
    default = getattr(DEFAULTS, name)
    match default:
        case None:
            return "unset" if name == "ascii" else "`[]`"
        case bool():
            return f"`{str(default).lower()}`"
        case str():
            return f'`"{default}"`'
        case tuple():
            return "`[" + ", ".join(f'"{x}"' if isinstance(x, str) else f"{x:g}" for x in default) + "]`"
    return '`"1s"`' if name == "refresh" else f"`{default}`"


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_told_with_its_default(name: str) -> None:
    assert f"| `{name}` | {as_toml(name)} | {help_of(name)} |" in README


def test_every_column_metric_and_window_is_told() -> None:
    words = set(re.findall(r"[\w]+", README))
    assert {*COLUMNS, *CHART_METRICS, *map(str, CHART_WINDOWS)} <= words


def test_every_option_is_told() -> None:
    done = subprocess.run([sys.executable, "-m", "gputop", "--help"], cwd=ROOT, capture_output=True, text=True)
    options = set(re.findall(r"--[a-z][a-z-]+", done.stdout)) - {"--seed"}
    assert {option for option in options if option not in README} == set()


def test_every_key_is_told() -> None:
    from gputop.ui.keys import KEYS

    section = README.split("## Keys")[1].split("## Command line")[0].replace("Ctrl+", "^")
    told = set(re.findall(r"`([^`]+)`", section))
    missing = {key.shown for key in KEYS if not told & set(key.shown.split())}
    assert missing == set()
