"""What is not needed is not imported: start-up is part of what a user feels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from tests.driver import SimulatedDriver

ROOT = Path(__file__).resolve().parents[2]

#: Runs gputop with its arguments and then names the modules that were imported.
LIST_MODULES = """
import atexit, sys
atexit.register(lambda: print("\\n".join(sorted(sys.modules)), file=sys.stderr))
from gputop.cli import run
raise SystemExit(run(sys.argv[1:]))
"""


def imported(*arguments: str, env: dict[str, str] | None = None) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LIST_MODULES, *arguments],
        env={**os.environ, **(env or {}), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return set(done.stderr.split())


HEAVY = ("textual", "rich", "plotext", "asyncio")


def test_version_imports_nothing_of_ours_but_the_command_line() -> None:
    modules = imported("--version")
    assert {module for module in modules if module.startswith("gputop")} == {
        *(
            "gputop",
            "gputop.cli",
            "gputop.commands",
            "gputop.commands.shared",
            "gputop.commands.shared.options",
            "gputop.commands.shared.output",
            "gputop.commands.shared.parsers",
            "gputop.commands.shared.refusal",
        )
    }
    assert not modules & {*HEAVY, "pynvml", "psutil", "tomllib", "platformdirs", "ctypes"}


@pytest.mark.parametrize("arguments", [["--demo", "--once"], ["--demo", "--once", "--json"]])
def test_once_needs_no_screen(arguments: list[str]) -> None:
    modules = imported(*arguments)
    assert "gputop.sampling.one_shot" in modules
    found = modules & {*HEAVY, "pynvml", "gputop.ui", "gputop.sampling.poller"}
    assert not found


def test_once_on_a_driver_needs_no_screen_either(driver: SimulatedDriver) -> None:
    modules = imported("--once", env=driver.env)
    assert "pynvml" in modules
    assert not modules & {*HEAVY, "psutil", "gputop.ui", "gputop.sampling.poller"}


def test_a_refusal_needs_no_screen() -> None:
    assert not imported("--demo") & {*HEAVY, "gputop.ui", "pynvml"}


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("gputop")
    left = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    while leaves := [module for module, imports in left.items() if not imports & left.keys()]:
        for module in leaves:
            del left[module]
    assert not left, f"in circles, or importing one: {sorted(left)}"
