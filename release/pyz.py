#!/usr/bin/env python3
"""Builds gputop.pyz: gputop and all it needs in one file, for Linux on x86-64 and aarch64, Python 3.11 to 3.14.

    release/pyz.py [--output dist/gputop.pyz]

Pure Python lies in site/, compiled wheels in native/MACHINE/{any,cp311,…}: the launcher unpacks those that fit.
Versions are those of the environment it is run in, so that what was tested is what is packed.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import distribution, requires
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
GLIBCS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_12", "manylinux2010", "manylinux1")
LEFT_OUT = ("/", "/RECORD", ".cdx.json")
SECOND_BACKEND = "zstandard/_cffi"  # as large as the one that is used


def needed(name: str, found: dict[str, str] | None = None) -> dict[str, str]:
    """The distributions that *name* needs, itself left out, and the versions installed here."""
    from packaging.requirements import Requirement

    found = {} if found is None else found
    for text in requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        key = requirement.name.lower()
        for extra in requirement.extras:  # markdown-it-py[linkify]
            for inner in map(Requirement, requires(key) or ()):
                if inner.marker is not None and inner.marker.evaluate({"extra": extra}) and inner.name not in found:
                    found[inner.name.lower()] = distribution(inner.name).version
                    needed(inner.name, found)
        if key not in found:
            found[key] = distribution(requirement.name).version
            needed(requirement.name, found)
    return found


def download(folder: Path, requirement: str, machine: str, python: str) -> Path:
    platforms = [f"--platform={glibc}_{machine}" for glibc in GLIBCS]
    if machine == "aarch64":
        platforms = [f"--platform={glibc}_{machine}" for glibc in GLIBCS[:3]]
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    wanted = ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}", *platforms]
    quiet = None if sys.stderr.isatty() else subprocess.DEVNULL
    subprocess.run([*pip, *wanted, f"--dest={folder}", requirement], check=True, stderr=quiet)
    return next(folder.glob("*.whl"))


def zipped(entries: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file that is the same for the same entries."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression, compresslevel=9) as archive:
        for name in sorted(entries):
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            info.compress_type = compression
            archive.writestr(info, entries[name])
    return file.getvalue()


def archive(entries: dict[str, bytes]) -> bytes:
    """The launcher and *entries*. These are one entry: Python reads the whole directory of an archive at each start."""
    payload = zipped(entries)
    launcher = (HERE / "launcher.py").read_text()
    number = hashlib.sha256(launcher.encode() + payload).hexdigest()[:16]
    launcher = launcher.replace('BUILD = ""', f'BUILD = "{number}"')
    outer = zipped({"__main__.py": launcher.encode(), "payload.zip": payload}, zipfile.ZIP_STORED)
    return b"#!/usr/bin/env python3\n" + outer


def build(output: Path) -> None:
    entries: dict[str, bytes] = {}

    def add(wheel: Path, prefix: str) -> None:
        with zipfile.ZipFile(wheel) as content:
            for name in content.namelist():
                if not name.endswith(LEFT_OUT) and ".data/" not in name and not name.startswith(SECOND_BACKEND):
                    entries[prefix + name] = content.read(name)

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", folder / "own", HERE.parent], check=True)
        add(next((folder / "own").glob("*.whl")), "site/")
        for name, version in sorted(needed("gputop-tui").items()):
            first = download(folder / name, f"{name}=={version}", MACHINES[0], PYTHONS[0])
            if first.name.endswith("-any.whl"):
                add(first, "site/")
                continue
            for machine in MACHINES:
                for python in PYTHONS:
                    wheel = download(folder / f"{name}-{machine}-{python}", f"{name}=={version}", machine, python)
                    stable = "-abi3-" in wheel.name
                    add(wheel, f"native/{machine}/{'any' if stable else 'cp' + python.replace('.', '')}/")
                    if stable:
                        break
            print(f"{name} {version}: compiled", file=sys.stderr)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(archive(entries))
    output.chmod(0o755)
    print(f"{output}: {output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=HERE.parent / "dist" / "gputop.pyz")
    build(parser.parse_args().output)
