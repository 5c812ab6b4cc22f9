"""A dashboard that stays open on a node that runs thousands of short jobs: what it remembers of them is bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_processes_that_come_and_go_do_not_make_it_grow() -> None:
    """benchmarks/endurance.py has the whole day; here it is 1 800 processes, of which the first 1 000 fill what there
    is."""
    command = [sys.executable, "endurance.py", "churn", "1800", "1800"]
    done = subprocess.run(command, cwd=REPOSITORY / "benchmarks", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["processes"] == 1800
    assert result["growth_kib"] < 5 * 1024, result
