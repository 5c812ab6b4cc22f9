#!/usr/bin/env python3
"""The monitors to compare with: nvtop from Debian, nvitop and gpustat from PyPI, all into the cache.

nvtop is unpacked, not installed: it runs with its own suite's libraries, so Debian 13's runs on
Debian 12 too. Needs apt-get and dpkg-deb; where a peer cannot be had, `install` says why and
goes on without it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from places import CACHE, quiet

FOLDER = CACHE / "peers"
VENV = FOLDER / "venv"
NVTOP = FOLDER / "nvtop"
SUITE = "trixie"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# What nvtop links to, to any depth.
LIBRARIES = ["libc6", "libgcc-s1", "libstdc++6", "libncursesw6", "libtinfo6", "libsystemd0", "libcap2",
             "libudev1", "libgcrypt20", "libgpg-error0", "liblzma5", "libzstd1", "liblz4-1"]  # fmt: skip

COMMANDS = {
    "nvtop": [str(FOLDER / "bin" / "nvtop"), "-d", "{ds}"],
    "nvitop": [str(VENV / "bin" / "nvitop"), "--interval", "{refresh}"],
    "gpustat": [str(VENV / "bin" / "gpustat"), "-a", "-i", "{refresh}"],
}


def _mirror() -> str:
    """The Debian mirror this machine is set up with."""
    folder = Path("/etc/apt/sources.list.d")
    for file in (Path("/etc/apt/sources.list"), *folder.glob("*.sources"), *folder.glob("*.list")):
        text = file.read_text() if file.is_file() else ""
        if found := re.search(r"^(?:deb|URIs:)\s.*?(https?://\S+/debian)/?\s", text, re.M):
            return found.group(1)
    raise RuntimeError("no Debian mirror among apt's sources")


def _install_nvtop() -> None:
    if (NVTOP / ".done").exists():
        return
    apt = FOLDER / "apt"
    for sub in ("lists/partial", "cache/archives/partial", "debs"):
        (apt / sub).mkdir(parents=True, exist_ok=True)
    (apt / "sources.list").write_text(f"deb [signed-by={KEYRING}] {_mirror()} {SUITE} main contrib\n")
    (apt / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{apt}/sources.list";\nDir::Etc::sourceparts "-";\n'
        f'Dir::State::Lists "{apt}/lists";\nDir::Cache "{apt}/cache";\nAPT::Sandbox::User "root";\n'
    )
    quiet(["apt-get", "-c", apt / "apt.conf", "update"])
    quiet(["apt-get", "-c", apt / "apt.conf", "download", "nvtop", *LIBRARIES], cwd=apt / "debs")
    for package in (apt / "debs").glob("*.deb"):
        quiet(["dpkg-deb", "-x", package, NVTOP])
    loader = next(NVTOP.glob("**/ld-linux-*.so.*"))
    libraries = ":".join(str(found) for top in ("lib", "usr/lib") for found in (NVTOP / top).glob("*-linux-gnu"))
    script = FOLDER / "bin" / "nvtop"
    script.parent.mkdir(exist_ok=True)
    script.write_text(
        f'#!/bin/sh\nexec {loader} --argv0 nvtop --library-path "{libraries}:$LD_LIBRARY_PATH" '
        f'{NVTOP}/usr/bin/nvtop "$@"\n'
    )
    script.chmod(0o755)
    (NVTOP / ".done").touch()


def _install_python() -> None:
    if not (VENV / ".done").exists():
        quiet([sys.executable, "-m", "venv", VENV])
        quiet([VENV / "bin" / "python", "-m", "pip", "install", "-q", "nvitop", "gpustat"])
        (VENV / ".done").touch()


def install() -> dict[str, str]:
    """Install what can be had: {peer that cannot be had: why}."""
    missing = {}
    for names, how in ((("nvtop",), _install_nvtop), (("nvitop", "gpustat"), _install_python)):
        try:
            how()
        except (RuntimeError, OSError, StopIteration) as e:
            missing |= dict.fromkeys(names, str(e).strip().splitlines()[-1] if str(e).strip() else repr(e))
    return missing


def versions() -> dict[str, str]:
    out = {}
    for package in (FOLDER / "apt" / "debs").glob("nvtop_*.deb"):
        out["nvtop"] = f"{quiet(['dpkg-deb', '-f', package, 'Version']).strip()} (Debian {SUITE})"
    if (VENV / ".done").exists():
        listed = quiet([VENV / "bin" / "python", "-m", "pip", "list", "--format=freeze"])
        for line in listed.splitlines():
            name, _, version = line.partition("==")
            if name in ("nvitop", "gpustat", "nvidia-ml-py"):
                out[name if name != "nvidia-ml-py" else "nvidia-ml-py (peers')"] = version
    return out


if __name__ == "__main__":
    for peer, why in install().items():
        print(f"{peer}: not available: {why}")
    for peer, version in versions().items():
        print(f"{peer} {version}")
