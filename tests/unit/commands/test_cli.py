"""The command line as a shell sees it: what is printed where, exit status, and never a traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pexpect
import pytest

from tests.driver import GIB, SimulatedDriver

ROOT = Path(__file__).resolve().parents[3]
GPUTOP = [sys.executable, "-m", "gputop"]


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)


def gputop(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*GPUTOP, *arguments], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def in_terminal(arguments: Sequence[str], env: Mapping[str, str] | None = None, columns: int = 100) -> tuple[str, int]:
    """What *arguments* print to a terminal, and the exit status."""
    child = pexpect.spawn(
        sys.executable,
        ["-m", "gputop", *arguments],
        env={**os.environ, **(env or {})},
        dimensions=(40, columns),
        timeout=30,
        encoding="utf-8",
    )
    output = child.read()
    child.close()
    assert "Traceback" not in output, output
    assert child.exitstatus is not None, f"ended by signal {child.signalstatus}"
    return output.replace("\r\n", "\n"), child.exitstatus


# ------------------------------------------------------------------------- asking


def test_version_and_help_name_themselves() -> None:
    assert re.fullmatch(r"gputop \d+\.\d+\.\d+\n", gputop("--version").stdout)
    text = gputop("--help").stdout
    for option in ("--demo", "--refresh", "--gpus", "--config", "--ascii", "--no-color", "--no-mouse", "--read-only"):
        assert option in text


def test_help_shows_the_subcommands_first_grouped_and_on_one_line_each() -> None:
    from gputop.commands import COMMANDS, GROUPS

    text = gputop("--help", env={**os.environ, "COLUMNS": "80"}).stdout
    assert text.index("usage:") < text.index("this machine:") < text.index("options:")
    assert all(re.search(rf"^  {name} +{re.escape(words)}$", text, re.MULTILINE) for name, words in COMMANDS.items())
    assert [line for line in text.split("options:")[0].splitlines() if line.rstrip(":") in GROUPS] == [
        f"{group}:" for group in GROUPS
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-d", "5"], "the unit is required"),
        (["-d", "10ms"], "10 ms is not between 100 ms and 60 s"),
        (["--refresh=2h"], "is not between"),
        (["--refresh", "soon"], "is not a time"),
        (["--json"], "--json needs --once"),
        (["--onc"], "unrecognized"),
        (["--demo=nonsense", "--once"], "called 'nonsense'; there are"),
        (["--demo", "--once", "--gpus", "7"], "7: no such GPU"),
        (["--demo", "--once", "--gpus", "GPU-d95b"], "no such GPU, or more than one matches. Available: 0 (GPU-"),
    ],
)
def test_a_wrong_argument_is_told_in_words(arguments: list[str], said: str) -> None:
    done = gputop(*arguments)
    assert done.returncode == 2
    assert said in done.stderr and done.stdout == ""


def test_the_demos_are_listed() -> None:
    done = gputop("--demo=help")
    assert done.returncode == 0
    assert "--demo=leak" in done.stdout and "--demo=mig" in done.stdout and "NxMODEL" in done.stdout


# ----------------------------------------------------------------- without a terminal


def test_no_keyboard_is_told_and_does_not_spin() -> None:
    done = gputop("--demo")
    assert done.returncode == 2
    assert "stdin" in done.stderr and "gputop --once" in done.stderr and len(done.stderr.splitlines()) == 1


def test_no_screen_is_told() -> None:
    keyboard = os.openpty()
    try:
        done = subprocess.run([*GPUTOP, "--demo"], stdin=keyboard[1], capture_output=True, text=True, timeout=30)
    finally:
        os.close(keyboard[0])
        os.close(keyboard[1])
    assert done.returncode == 2 and "stderr" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_draw_is_told(term: str) -> None:
    output, status = in_terminal(["--demo"], {"TERM": term})
    assert status == 2 and "TERM" in output and "\x1b" not in output


# -------------------------------------------------------------------------- once


def test_one_table_from_a_demo() -> None:
    done = gputop("--demo=8xh200", "--once")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith("SIMULATED") and done.stdout.count("NVIDIA H200") == 8
    assert "\x1b" not in done.stdout


def test_one_json_object_from_a_demo() -> None:
    done = gputop("--demo", "--once", "--json")
    assert done.returncode == 0 and done.stdout.count("\n") == 1
    assert len(json.loads(done.stdout)["gpus"]) == 2


def test_only_the_gpus_asked_for() -> None:
    top = json.loads(gputop("--demo=8xh200", "--once", "--json", "--gpus", "5, 2").stdout)
    assert [gpu["index"] for gpu in top["gpus"]] == [2, 5]
    assert {process["gpu_index"] for process in top["processes"]} <= {2, 5}


def test_the_same_seed_gives_the_same_processes() -> None:
    def commands(seed: str) -> list[tuple[int, str]]:
        top = json.loads(gputop("--demo=4xh200", "--once", "--json", "--seed", seed).stdout)
        return sorted((process["pid"], process["command"]) for process in top["processes"])

    assert commands("1") == commands("1") != commands("2")


def test_a_wrong_settings_file_is_told_and_the_table_is_there(tmp_path: Path) -> None:
    file = tmp_path / "config" / "gputop" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("refresh = =\n")
    done = gputop("--demo", "--once")
    assert done.returncode == 0 and "NVIDIA H200" in done.stdout
    assert "line 1" in " ".join(done.stdout.split())
    file.write_text('memory_unit = "MiB"\ngpus = ["1", "9"]\n')
    done = gputop("--demo", "--once")
    assert "settings: gpus: 9: no such GPU" in " ".join(done.stdout.split()) and re.search(r"\d{5}M", done.stdout)
    assert done.stdout.count("NVIDIA H200") == 1


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('gpus = ["1"]\nascii = true\n')
    top = json.loads(gputop("--demo", "--once", "--json", "--config", str(file), "--gpus", "0").stdout)
    assert [gpu["index"] for gpu in top["gpus"]] == [0]
    assert gputop("--demo", "--once", "--config", str(file)).stdout.isascii()


def test_colours_on_a_terminal_only_and_not_against_the_users_will() -> None:
    output, status = in_terminal(["--demo", "--once"])
    assert status == 0 and "\x1b[" in output
    for arguments, env in ((["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"})):
        output, _ = in_terminal(["--demo", "--once", *arguments], env)
        assert "\x1b" not in output


def test_the_table_fits_the_terminal() -> None:
    output, _ = in_terminal(["--demo=8xh200", "--once", "--no-color", "--ascii"], columns=80)
    assert max(map(len, output.splitlines())) <= 80
    done = gputop("--demo=8xh200", "--once", "--ascii", env={**os.environ, "COLUMNS": "80"})
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"LC_ALL": "C"},  # under which Python itself writes UTF-8
        {"LC_ALL": "", "LC_CTYPE": "", "LANG": "POSIX"},
        {"PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "ascii"},
    ],
)
def test_a_locale_without_unicode_gets_ascii(env: dict[str, str]) -> None:
    done = subprocess.run(
        [*GPUTOP, "--demo=hostile", "--once"], env={**os.environ, **env}, capture_output=True, timeout=30
    )
    assert done.returncode == 0 and done.stdout.isascii() and done.stderr == b""


def test_hostile_names_do_not_reach_the_terminal() -> None:
    output, _ = in_terminal(["--demo=hostile", "--once", "--no-color"])
    assert "\x1b" not in output and "\x07" not in output


# ------------------------------------------------------------------------- endings


def test_a_reader_that_leaves_early_gets_no_traceback() -> None:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m gputop --demo=thousand --once | head -1"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert len(done.stdout.splitlines()) == 1 and done.stderr == ""
    assert done.returncode in (0, 141)


def test_a_full_disk_is_told() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*GPUTOP, "--demo", "--once"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=30)
    assert done.returncode == 74 and done.stderr == "gputop: stdout cannot be written: No space left on device\n"


def test_closed_streams_are_no_crash() -> None:
    for close in (">&-", "2>&-", "<&-", ">&- 2>&-"):
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m gputop --demo --once {close}"],
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 0 and "Traceback" not in done.stderr, close


# --------------------------------------------------------------- on a (simulated) driver


def test_the_driver_is_read_as_it_is(driver: SimulatedDriver) -> None:
    mine = os.getpid()
    driver.gpu(0).set(memory_used=12 * GIB, memory_total=80 * GIB, power_watts=312.5)
    driver.gpu(0).process(mine, memory=5 * GIB, kind="C")
    driver.settle()
    done = gputop("--once", "--json", env=driver.env)
    assert done.returncode == 0, done.stderr
    top = json.loads(done.stdout)
    assert top["gpus"][0]["memory_used_bytes"] == 12 * GIB and top["gpus"][0]["power_watts"] == 312.5
    (process,) = top["processes"]
    assert process["pid"] == mine and process["memory_bytes"] == 5 * GIB and process["exists"] is True
    assert process["cpu_percent"] is not None and process["start_time"] <= time.time()


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("init driver_mismatch", 5, "differ"),
        ("init no_driver", 4, "not running"),
        ("init no_library", 3, "libnvidia-ml.so.1"),
        ("init no_permission", 6, "permission"),
    ],
)
def test_what_ails_the_driver_is_told_with_a_status_of_its_own(
    driver: SimulatedDriver, fault: str, status: int, words: str
) -> None:
    driver.fault(fault)
    driver.settle()
    done = gputop("--once", env=driver.env)
    assert done.returncode == status and words in done.stderr and done.stdout == ""
    output, dashboard_status = in_terminal([], driver.env)
    assert dashboard_status == status and words in " ".join(output.split())
    assert "gputop --demo" in output and "SIMULATED" not in output and "\x1b[?1049h" not in output


def test_no_gpus_have_a_status_of_their_own(driver: SimulatedDriver) -> None:
    driver.gpus = 0
    driver.settle()
    for arguments in (["--once"], ["--once", "--json"]):
        done = gputop(*arguments, env=driver.env)
        assert done.returncode == 7 and "no GPU" in done.stderr and done.stdout == ""


def test_a_lost_gpu_is_one_row_with_its_cause(driver: SimulatedDriver) -> None:
    driver.fault("gpu 1 lost")
    driver.settle()
    done = gputop("--once", "--json", env=driver.env)
    good, lost = json.loads(done.stdout)["gpus"]
    assert done.returncode == 8 and good["error"] is None and "lost" in lost["error"]


def test_a_gpu_that_hangs_does_not_hang_once(driver: SimulatedDriver) -> None:
    driver.fault("gpu 1 hang")
    driver.settle()
    started = time.monotonic()
    done = gputop("--once", "--json", env=driver.env)
    assert time.monotonic() - started < 15
    top = json.loads(done.stdout)
    assert done.returncode == 8
    assert top["gpus"][0]["error"] is None and "did not answer" in top["gpus"][1]["error"]
    assert top["problems"]


def test_no_driver_at_all_is_told(tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a driver")
    done = gputop("--once")
    assert done.returncode == 3 and "libnvidia-ml.so.1" in done.stderr


def test_ctrl_c_is_quiet_even_while_the_driver_hangs(driver: SimulatedDriver) -> None:
    driver.fault("gpu 1 hang")
    driver.settle()
    child = subprocess.Popen([*GPUTOP, "--once"], env=driver.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1.5)  # it waits for GPU 1, up to 3 s
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=30)
    assert (child.returncode, output, errors) == (130, b"", b"")


# --------------------------------------------------------------------- the dashboard's ends


def test_the_last_table_stays_in_the_scrollback_where_asked() -> None:
    child = pexpect.spawn(
        sys.executable,
        ["-m", "gputop", "--demo", "--print-on-exit"],
        dimensions=(40, 120),
        timeout=30,
        encoding="utf-8",
    )
    child.expect("H200")  # the screen may skip blanks it need not write
    time.sleep(1.0)
    child.send("q")
    output = child.read()
    child.close()
    assert child.exitstatus == 0
    scrollback = output.rpartition("\x1b[?1049l")[2]  # what follows the alternate screen
    assert "SIMULATED" in scrollback and scrollback.count("NVIDIA H200") == 2


def test_a_gpu_that_is_not_there_is_told_before_the_screen_opens() -> None:
    output, status = in_terminal(["--demo", "--gpus", "9"])
    assert status == 2 and "9: no such GPU" in output and "\x1b[?1049h" not in output


def test_a_dashboard_without_gpus_says_what_to_try() -> None:
    output, status = in_terminal(["--demo=no-gpus"])
    assert status == 7 and "nvidia-smi -L" in output and "gputop --demo" in output
