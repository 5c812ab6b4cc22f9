"""This machine with its real driver, under the harness of benchmarks/: the programs, their environment, nvidia-smi."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import places  # noqa: E402  (it also makes gputop importable)
from session import Setup  # noqa: E402

OUT = Path(os.environ.get("OUT") or places.CACHE / "hardware")
LOAD = Path(os.environ.get("GPUTOP_LOAD") or OUT / "load.json")
GPUTOP = [sys.executable, "-m", "gputop"]
# The programs started from here find this checkout's gputop, installed or not.
os.environ["PYTHONPATH"] = os.pathsep.join([str(places.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


@dataclass
class RealMachine(Setup):
    """The terminal of benchmarks/session.py; the driver is whatever this process finds."""

    def environment(self, folder: Path, pids: Path) -> dict[str, str]:
        dropped = ("XDG_", "PYTHON", "TMUX", "STY", "LC_", "COLUMNS", "LINES", "NO_COLOR", "GPUTOP_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        config = folder / "home" / ".config" / "gputop"
        config.mkdir(parents=True, exist_ok=True)
        if self.settings is not None:
            (config / "config.toml").write_text(self.settings)
        return {
            **env,
            "TERM": self.term,
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "HOME": str(folder / "home"),
            "PYTHONPATH": os.environ["PYTHONPATH"],
            **self.env,
        }


def monitors() -> dict[str, list[str]]:
    """What is measured beside gputop, of what is here: {name: command for half a second}."""
    found = {}
    if subprocess.run([sys.executable, "-c", "import nvitop"], capture_output=True).returncode == 0:
        found["nvitop"] = [sys.executable, "-m", "nvitop", "--interval", "{refresh}"]
    nvtop = places.ROOT / ".nvtop" / "nvtop"
    if command := str(nvtop) if nvtop.exists() else shutil.which("nvtop"):
        found["nvtop"] = [command, "-d", "{ds}"]
    return found


# ------------------------------------------------------------------------------- the load


def load() -> list[dict[str, Any]]:
    """What load.py runs: {"pid", "role", "gpus"} of each process."""
    return list(json.loads(LOAD.read_text())["processes"])


def load_pids(folder: Path) -> Path:
    """A file of the load's pids, as the harness takes it."""
    file = folder / "pids"
    file.write_text("".join(f"{process['pid']}\n" for process in load()))
    return file


# ----------------------------------------------------------------------------- nvidia-smi


class Smi:
    """`nvidia-smi --query-WHAT=FIELDS`, without the fields that this nvidia-smi does not know (``unknown``)."""

    def __init__(self, what: str, fields: Sequence[str]) -> None:
        self._what, self._fields, self.unknown = what, list(fields), list[str]()

    def start(self) -> subprocess.Popen[str]:
        command = ["nvidia-smi", f"--query-{self._what}={','.join(self._fields)}", "--format=csv,noheader,nounits"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def rows(self, started: subprocess.Popen[str]) -> list[dict[str, str]]:
        """A row for each GPU or process. Raises RuntimeError with nvidia-smi's words."""
        said, _ = started.communicate(timeout=30)
        if started.returncode:
            field = re.search(r'Field "([^"]+)"', said)
            if field is None or field[1] not in self._fields:
                raise RuntimeError(f"nvidia-smi: {said.strip()}")
            self._fields.remove(field[1])
            self.unknown.append(field[1])
            return self.read()
        rows = csv.reader(said.splitlines(), skipinitialspace=True)
        return [dict(zip(self._fields, row, strict=True)) for row in rows if len(row) == len(self._fields)]

    def read(self) -> list[dict[str, str]]:
        return self.rows(self.start())


def number(text: str) -> float | None:
    """What nvidia-smi wrote, as a number; None for [N/A] and its like."""
    try:
        return float(int(text, 16)) if text.startswith("0x") else float(text)
    except ValueError:
        return None


# --------------------------------------------------------------------------------- results


def keep(name: str, results: Any) -> None:
    """Write results to $OUT/name."""
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / name).write_text(json.dumps(results, indent=1) + "\n")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns aligned for reading; None is a dash."""
    cells = [list(head), *[["—" if cell is None else str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
