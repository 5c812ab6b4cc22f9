"""`gputop leaks`: exit status, words and JSON, on simulated machines and on a real dead process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.driver import GIB, SimulatedDriver
from tests.unit.children import child


def leaks(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gputop", "leaks", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env={**(env or os.environ), "XDG_CONFIG_HOME": "/nonexistent"},
    )


def test_leaks_are_found_and_explained() -> None:
    done = leaks("--demo=leak")
    assert done.returncode == 1 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("LEAK        pid 61020 (dead)  70.0G on GPU 0  cv  ")
    assert any("holds /dev/nvidia0 (fd 36) opened by 61020; process group 61020" in line for line in lines)
    assert any(line.split() == ["frees", "it", "kill", "58543", "58544"] for line in lines)
    assert lines[-1].startswith("2 LEAK (92.0G), 1 SUSPECT")


def test_json_has_verdicts_rules_targets_and_bytes() -> None:
    done = leaks("--demo=leak", "--json")
    assert done.returncode == 1
    report: dict[str, Any] = json.loads(done.stdout)
    first = report["verdicts"][0]
    assert (first["verdict"], first["rules"], first["pid"]) == ("LEAK", ["R1", "R2"], 61020)
    assert first["memory_bytes"] == 70 * GIB and first["memory"][0]["gpu_index"] == 0
    assert len(first["targets"]) == 4 and all(target["start_ticks"] for target in first["targets"])
    assert first["holders"][0]["devices"][0]["path"] == "/dev/nvidia0"
    for parts in report["memory"]:
        assert parts["living_bytes"] + parts["dead_bytes"] + parts["unattributed_bytes"] == parts["used_bytes"]


@pytest.mark.parametrize(
    ("machine", "status", "said"),
    [("empty", 0, "no leak found"), ("h200", 0, "no leak found"), ("8xh200", 2, "unsure")],
)
def test_no_leak_and_not_to_be_told_have_their_own_status(machine: str, status: int, said: str) -> None:
    done = leaks(f"--demo={machine}")
    assert done.returncode == status, done.stdout + done.stderr
    assert said in done.stdout


def test_only_the_gpus_asked_for() -> None:
    done = leaks("--demo=leak", "--gpus", "1")
    assert done.returncode == 1 and "58377" in done.stdout and "61020" not in done.stdout


def test_too_short_a_look_is_refused() -> None:
    done = leaks("--demo=leak", "--for", "1s")
    assert done.returncode == 2 and "at least 6 s" in done.stderr


def test_a_really_dead_process_on_the_simulated_driver(driver: SimulatedDriver) -> None:
    with child() as process:
        pid = process.pid
    driver.gpu(0).process(pid, memory=5 * GIB)
    done = leaks(env=driver.env)
    if "not visible" in done.stdout or "cannot be told" in done.stdout:
        pytest.skip("in a PID namespace of its own")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"the driver lists {pid} with 5.0 GiB on GPU 0, but no such process exists" in done.stdout
