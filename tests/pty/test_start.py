"""From the shell to the first screen, or to a sentence that says why there is none."""

from __future__ import annotations

import getpass
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.driver import GIB, MIB, SimulatedDriver
from tests.pty.conftest import GPUTOP, Start, StartWorker, environment
from tests.pty.terminal import PATIENCE


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (200, 60)])
def test_what_the_driver_and_the_host_say_is_on_the_screen(
    gputop: Start, driver: SimulatedDriver, worker: StartWorker, columns: int, rows: int
) -> None:
    first, second = worker("", "--config", "llama70b.yaml"), worker("", "serve.py")
    with driver.together():
        driver.gpu(0).set(name="NVIDIA H200", memory_total=140.4 * GIB, memory_used=int(90.3 * GIB), temperature=61)
        driver.gpu(1).set(name="NVIDIA H200", memory_total=140.4 * GIB, memory_used=int(12.06 * GIB), power_watts=312.4)
        driver.gpu(0).process(first.pid, memory=int(81.3 * GIB), sm=97)
        driver.gpu(1).process(second.pid, memory=int(5.5 * GIB))
        driver.gpu(1).process(NOBODYS_PID, memory=1536 * MIB)
    terminal = gputop(columns=columns, rows=rows, driver=driver)
    terminal.wait_for(re.compile(rf" {first.pid} .* 97 "))  # samples of utilization come with the second reading
    text = terminal.text()
    assert text.count("H200") >= 2 and "580." in text
    assert re.search(r"90\.3 ?/ ?140\.4", text) and re.search(r"12\.1 ?/ ?140\.4", text)
    assert "61°" in text and re.search(r"312 ?(W|/)", text)
    row = terminal.line(f" {first.pid} ")
    assert getpass.getuser() in row and "81.3G" in row
    assert "5.5G" in terminal.line(f" {second.pid} ")
    if columns >= 120:
        assert "python" in row.lower()
    assert re.search(rf"† +1 +{NOBODYS_PID} .* 1\.5G .*\(dead\)", text)
    assert "SIMULATED" not in text


@pytest.mark.parametrize(("columns", "rows"), [(60, 12), (80, 24), (200, 60)])
def test_a_simulation_says_so_at_every_size(gputop: Start, columns: int, rows: int) -> None:
    terminal = gputop("--demo", columns=columns, rows=rows, drawn="SIMULATED")
    assert "SIMULATED" in terminal.lines()[0]


# ------------------------------------------------------------------------------ no driver to read

NOBODYS_PID = 2**22 - 1  # the highest there can be

FAULTS = {
    "driver and library differ": ("init driver_mismatch", 5, "differ"),
    "driver not loaded": ("init no_driver", 4, "not running"),
    "no library": ("init no_library", 3, "libnvidia-ml.so.1"),
    "no permission": ("init no_permission", 6, "permission"),
    "unknown error": ("init unknown", 8, "unknown error"),
}


@pytest.mark.parametrize(("fault", "status", "words"), FAULTS.values(), ids=FAULTS)
def test_a_driver_that_cannot_be_read_is_a_sentence_and_a_status(
    gputop: Start, driver: SimulatedDriver, fault: str, status: int, words: str
) -> None:
    driver.fault(fault)
    terminal = gputop(driver=driver, drawn=None)
    assert terminal.wait_end() == status
    assert words in terminal.words() and "gputop --demo" in terminal.words()
    assert "SIMULATED" not in terminal.text(), "it must not fall back to a simulation by itself"
    assert b"\x1b" not in terminal.raw, "the terminal was touched"


def test_no_library_at_all_is_a_sentence(gputop: Start, tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a driver")
    terminal = gputop(env={"LD_LIBRARY_PATH": str(tmp_path)}, drawn=None)
    assert terminal.wait_end() == 3
    assert "libnvidia-ml.so.1" in terminal.words() and "SIMULATED" not in terminal.text()
    assert b"\x1b" not in terminal.raw


def test_no_gpus_are_a_sentence(gputop: Start, driver: SimulatedDriver) -> None:
    driver.gpus = 0
    terminal = gputop(driver=driver, drawn=None)
    assert terminal.wait_end() == 7
    assert "no GPU" in terminal.words() and b"\x1b" not in terminal.raw


def test_a_driver_that_hangs_from_the_start_is_told_and_can_be_left(gputop: Start, driver: SimulatedDriver) -> None:
    """Either way is good: a sentence in the shell, or a screen that says it, answers and can be quit at once."""
    driver.fault("call nvmlInit* delay_ms 3600000")
    terminal = gputop(driver=driver, drawn=None)
    terminal.wait_for(lambda: "answer" in terminal.words() or terminal.process.poll() is not None)
    if terminal.process.poll() is None:
        pressed = time.monotonic()
        terminal.press("q")
        assert terminal.wait_end(5) == 0
        assert time.monotonic() - pressed < 2
        terminal.assert_restored()
    else:
        assert terminal.wait_end() == 8 and "answer" in terminal.words()


# ------------------------------------------------------------------------- no terminal to draw on


def _cpu_seconds(usage_before: os.times_result) -> float:
    now = os.times()
    return now.children_user + now.children_system - usage_before.children_user - usage_before.children_system


@pytest.mark.parametrize("redirection", ["</dev/null", "<&-", "2>/dev/null", "2>&-", "</dev/null 2>&1 | cat"])
def test_streams_that_are_no_terminal_are_refused_and_never_spun_on(
    gputop: Start, home: Path, redirection: str
) -> None:
    before = os.times()
    with_shell = ("bash", "-o", "pipefail", "-c", f'"$@" {redirection}', "bash")
    terminal = gputop("--demo", prefix=with_shell, drawn=None)
    assert terminal.wait_end(PATIENCE) == 2
    assert b"\x1b[?1049h" not in terminal.raw and b"\x1b" not in terminal.raw
    if "2>" not in redirection or "2>&1" in redirection:
        assert "not a terminal" in terminal.words() and "gputop --once" in terminal.words()
    assert _cpu_seconds(before) < 5


def test_without_any_terminal_there_is_a_sentence(home: Path) -> None:
    done = subprocess.run(
        [*GPUTOP, "--demo"], env=environment(home), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 2 and "not a terminal" in done.stderr and done.stdout == ""


def test_a_pipe_behind_stdout_does_not_matter(gputop: Start) -> None:
    """The dashboard draws on stderr, so that ``gputop --print-on-exit | tee`` works."""
    with open(os.devnull, "wb") as nowhere:
        terminal = gputop("--demo", streams={"stdout": nowhere})
        terminal.press("q")
        assert terminal.wait_end() == 0


@pytest.mark.parametrize("term", ["dumb", "", "unknown"])
def test_a_terminal_that_cannot_draw_is_a_sentence(gputop: Start, term: str) -> None:
    terminal = gputop("--demo", env={"TERM": term}, drawn=None)
    assert terminal.wait_end() == 2
    assert "TERM" in terminal.words() and "--once" in terminal.words() and b"\x1b" not in terminal.raw


# ------------------------------------------------------------------------------ settings at start


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("refresh = = 3\n", "is not TOML"),
        ('refresh = "soon"\n', "refresh"),
        ('theme = "gputop"\nrefesh = "1s"\n', "refesh: no such setting"),
    ],
)
def test_a_broken_settings_file_is_told_on_the_screen(
    gputop: Start, settings_file: Path, content: str, words: str
) -> None:
    terminal = gputop("--demo", settings=content)
    terminal.wait_for(words)
    terminal.press("F2")
    terminal.wait_for("Refresh ─")
    terminal.press("end")
    terminal.wait_for(words.split(":")[0])
    terminal.press("esc", "q")
    terminal.wait_end()
    assert settings_file.read_text() == content


def test_a_settings_file_that_is_not_toml_is_never_overwritten_silently(gputop: Start, settings_file: Path) -> None:
    content = "# my notes\nrefresh = = 3\n"
    terminal = gputop("--demo", settings=content)
    terminal.press("F2")
    terminal.wait_for("Every")
    terminal.press("left")
    terminal.wait_for("Not saved")
    terminal.wait_for("[500 ms]")  # it holds until the end of the program all the same
    assert settings_file.read_text() == content
