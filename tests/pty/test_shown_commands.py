"""Every gputop command that README.md and docs/ show, run in a terminal: on simulated machines or the simulated driver.

Those that would go on for ever are looked at for a moment. What installs (pipx, uv, make, scp) was tried by hand in
bare roots: docs/install.md says where.
"""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from gputop.commands import COMMANDS
from gputop.commands.shared.parsers import command_module, command_parser, main_parser
from tests.documents import ENGLISH, PAGES, ROOT, arguments_of, commands_in
from tests.driver import GIB, DriverUnavailable, SimulatedDriver

LONGEST_SECONDS = 2.0
DATA = ROOT / "tests" / "data" / "h200"
#: 1: a leak was found, a condition holds, no host is free; something that doctor looked at fails here.
ANSWERS = {"leaks": {0, 1, 2}, "watch": {0, 1}, "fleet": {0, 1}, "doctor": {0, 1}}
CHINESE = set(ENGLISH.values())  # have the same commands as the English pages (tests/unit/test_documents.py)
SHOWN = list(dict.fromkeys(command for page in PAGES if page not in CHINESE for command in commands_in(page)))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with the files that the commands name, and the environment to run them in."""
    folder = tmp_path_factory.mktemp("shown")
    for name in ("snapshot.pickle", "rank0.pickle", "rank1.pickle"):
        (folder / name).write_bytes(gzip.decompress((DATA / "leak.pickle.gz").read_bytes()))
    for name in ("trace.json", "before.json", "after.json"):
        (folder / name).write_bytes(gzip.decompress((DATA / "torch_trace_stacks.json.gz").read_bytes()))
    shutil.copy(DATA / "torch_trace_stacks.json.gz", folder / "trace.json.gz")
    shutil.copy(DATA / "torch_trace_stacks.timeline.raw.json.gz", folder / "timeline.raw.json.gz")
    home = {"HOME": str(folder), "TERM": "xterm-256color", "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
    try:
        driver = SimulatedDriver(folder / "driver", gpus=3)
    except DriverUnavailable as error:
        if os.environ.get("GPUTOP_REQUIRE_DRIVER") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))
    with driver:
        driver.gpu(0).process(os.getpid(), memory=GIB)
        simulated = {name: value for name, value in driver.env.items() if value != os.environ.get(name)}
        environment = {**home, **simulated, "PYTHONPATH": str(ROOT)}
        record = [sys.executable, "-m", "gputop", "record", "node7.rec", "--demo", "--for", "2s", "-q"]
        subprocess.run(record, cwd=folder, env=environment, check=True, timeout=30)
        yield folder, environment


def on_a_simulated_machine(arguments: list[str]) -> list[str]:
    """With --demo where the command has it, and does not say which."""
    name = arguments[0] if arguments and arguments[0] in COMMANDS else ""
    parser = command_parser(name, command_module(name)) if name else main_parser()
    known = any("--demo" in action.option_strings for action in parser._actions)
    given = any(argument.startswith("--demo") for argument in arguments) or {"--help", "--version"} & set(arguments)
    return [*arguments, "--demo"] if known and not given else arguments


@pytest.mark.parametrize("command", SHOWN)
def test_a_shown_command_runs(command: str, place: tuple[Path, dict[str, str]]) -> None:
    folder, environment = place
    arguments = on_a_simulated_machine(arguments_of(command)[1:])
    child = pexpect.spawn(
        sys.executable, ["-m", "gputop", *arguments],
        cwd=str(folder), env=environment, dimensions=(40, 120), encoding="utf-8", codec_errors="replace",
    )  # fmt: skip
    printed, until = "", time.monotonic() + LONGEST_SECONDS
    while True:
        try:
            printed += child.read_nonblocking(1 << 16, timeout=max(0.01, until - time.monotonic()))
        except pexpect.TIMEOUT:
            break
        except pexpect.EOF:
            child.close()
            break
        if time.monotonic() > until:
            break
    goes_on = child.isalive()
    if goes_on:
        child.kill(signal.SIGTERM)
        child.close(force=True)
    assert "Traceback" not in printed and "usage: gputop" not in printed, printed
    assert printed.strip() or goes_on
    if not goes_on:
        allowed = ANSWERS.get(arguments[0] if arguments else "", {0})
        assert child.exitstatus in allowed, printed
