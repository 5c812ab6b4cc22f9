"""gputop.pyz's launcher, with a small program in gputop's place (release/pyz.py packs the real one)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = b"import sys, gputop\ndef main(): print('ran', sys.argv[1:], gputop.__file__)\n"
MACHINE, PYTHON = os.uname().machine, f"cp{sys.version_info[0]}{sys.version_info[1]}"


@pytest.fixture(scope="module")
def pyz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pyz", ROOT / "release" / "pyz.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def file(pyz: ModuleType, tmp_path: Path) -> Path:
    path = tmp_path / "gputop.pyz"
    entries = {
        "site/gputop/__init__.py": b"",
        "site/gputop/cli.py": PROGRAM,
        f"native/{MACHINE}/any/compiled.py": b"",
        f"native/{MACHINE}/{PYTHON}/ours.py": b"",
        f"native/{MACHINE}/cp399/others.py": b"",
        f"native/other/{PYTHON}/others.py": b"",
    }
    path.write_bytes(pyz.archive(entries))
    return path


def run(file: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    known = {"PATH": os.environ["PATH"], **env}
    return subprocess.run([sys.executable, file, *arguments], env=known, capture_output=True, text=True, timeout=30)


def test_it_unpacks_what_fits_this_machine_once_and_runs(file: Path, tmp_path: Path) -> None:
    done = run(file, "--once", HOME=str(tmp_path))
    assert done.stdout.startswith("ran ['--once']"), done.stderr
    (folder,) = (tmp_path / ".cache" / "gputop").iterdir()
    assert (folder / "compiled.py").exists() and (folder / "ours.py").exists() and not (folder / "others.py").exists()
    before = (folder / "COMPLETE").stat().st_mtime_ns
    assert run(file, HOME=str(tmp_path)).stdout.startswith("ran []")
    assert (folder / "COMPLETE").stat().st_mtime_ns == before


def test_it_runs_where_there_is_no_home(file: Path, tmp_path: Path) -> None:
    done = run(file, HOME=str(tmp_path / "none"), TMPDIR=str(tmp_path))
    assert done.stdout.startswith("ran []") and str(tmp_path) in done.stdout, done.stderr


def test_code_is_never_run_from_a_folder_that_others_can_write_to(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gputop"
    folder.mkdir()
    folder.chmod(0o777)
    done = run(file, XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path / "none"))
    assert str(folder) not in done.stdout and not list(folder.iterdir())


def test_an_interrupted_first_start_does_not_break_the_next_one(file: Path, tmp_path: Path) -> None:
    assert run(file, HOME=str(tmp_path)).returncode == 0
    (folder,) = (tmp_path / ".cache" / "gputop").iterdir()
    (folder / "COMPLETE").unlink()
    (folder / "gputop" / "cli.py").write_text("half")
    assert run(file, HOME=str(tmp_path)).stdout.startswith("ran []")


def test_many_that_start_at_once_for_the_first_time_all_run(file: Path, tmp_path: Path) -> None:
    programs = [
        subprocess.Popen([sys.executable, file], env={"HOME": str(tmp_path)}, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    assert all(program.communicate(timeout=30)[0].startswith("ran []") for program in programs)
    assert len(list((tmp_path / ".cache" / "gputop").iterdir())) == 1, "nothing half is left"


def test_a_folder_that_is_mounted_noexec_is_passed_over(file: Path, tmp_path: Path) -> None:
    noexec, home = tmp_path / "noexec", tmp_path / "home"
    noexec.mkdir()
    home.mkdir()
    mount = f"mount -t tmpfs -o noexec tmpfs {noexec}"
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*alone, mount], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    done = subprocess.run(
        [*alone, f"{mount} && exec {sys.executable} {file} --once"],
        env={"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(noexec), "HOME": str(home)},
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.stdout.startswith("ran ['--once']") and str(home) in done.stdout, done.stderr
