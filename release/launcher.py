"""`python3 gputop.pyz`: unpacks itself once into a folder of the user's own, then runs from there.

Compiled modules cannot be imported from a zip file, and unpacked Python starts as fast as an installed one. This file
is ``__main__`` of the archive and imports nothing but the standard library.
"""

import os
import stat
import sys

MINIMUM = (3, 11)
BUILD = ""  # written by pyz.py: tells one build's folder from another's


def main() -> None:
    if sys.version_info < MINIMUM:
        running = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"gputop needs Python {MINIMUM[0]}.{MINIMUM[1]} or later; this is {running} ({sys.executable})")
    sys.path[0] = folder(f"{BUILD}-{sys.implementation.cache_tag}", os.path.realpath(sys.path[0]))
    sys.argv[0] = "gputop"
    from gputop.cli import main as run

    run()


def folder(name: str, archive: str) -> str:
    """Where *archive* is unpacked: the first place that we can write to and run from, and nobody else can write to."""
    refused = []
    for parent in places():
        target = os.path.join(parent, name)
        try:
            if os.path.exists(os.path.join(target, "COMPLETE")) and private(parent):
                return target
            os.makedirs(parent, mode=0o700, exist_ok=True)
            if not private(parent):
                refused.append(f"{parent}: others can write to it")
                continue
            if os.statvfs(parent).f_flag & os.ST_NOEXEC:
                refused.append(f"{parent}: mounted noexec, so compiled modules cannot be loaded from it")
                continue
            unpack(archive, parent, target)
            return target
        except OSError as error:
            refused.append(f"{parent}: {error.strerror or error}")
    reasons = "\n  ".join(refused)
    sys.exit(f"gputop.pyz cannot be unpacked anywhere (set XDG_CACHE_HOME to a folder of yours):\n  {reasons}")


def places() -> list[str]:
    found = []
    if cache := os.environ.get("XDG_CACHE_HOME"):
        found.append(os.path.join(cache, "gputop"))
    home = os.path.expanduser("~")
    if os.path.isabs(home) and os.path.isdir(home) and home != "/":
        found.append(os.path.join(home, ".cache", "gputop"))
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        found.append(os.path.join(runtime, "gputop"))
    for base in (os.environ.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"):
        if base:
            found.append(os.path.join(base, f"gputop-{os.geteuid()}"))
    return found


def private(path: str) -> bool:
    """Whether only we can put something there: what lies in it is going to be run."""
    about = os.lstat(path)
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o022


def unpack(archive: str, parent: str, target: str) -> None:
    """All at once or not at all: two that start together must not see each other's halves."""
    import io
    import shutil
    import tempfile
    import zipfile

    machine, python = os.uname().machine, f"cp{sys.version_info[0]}{sys.version_info[1]}"
    wanted = {"site/": "", f"native/{machine}/any/": "", f"native/{machine}/{python}/": ""}
    with zipfile.ZipFile(archive) as outer:
        content = zipfile.ZipFile(io.BytesIO(outer.read("payload.zip")))
    temporary = tempfile.mkdtemp(prefix=".unpacking-", dir=parent)
    try:
        for name in content.namelist():
            prefix = next((prefix for prefix in wanted if name.startswith(prefix)), None)
            if prefix is not None:
                path = os.path.join(temporary, name[len(prefix) :])
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(content.read(name))
        open(os.path.join(temporary, "COMPLETE"), "w").close()
        try:
            os.rename(temporary, target)
        except OSError:
            if os.path.exists(os.path.join(target, "COMPLETE")):
                return  # another one was faster
            shutil.rmtree(target, ignore_errors=True)  # what an interrupted start left
            os.rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


main()
