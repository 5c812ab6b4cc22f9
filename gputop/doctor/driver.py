"""The driver: kernel module, library, versions, and what it says of each GPU."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from gputop.doctor import FAIL, OK, WARN, Check
from gputop.model import Driver
from gputop.sources.nvml.driver.errors import in_container
from gputop.sources.nvml.driver.library import Library, kernel_module_version, loaded_library
from gputop.sources.nvml.query import APP_FIELDS, GPU_FIELDS, Query
from gputop.sources.nvml.query.queried_gpu import ASLEEP
from gputop.sources.query_fields import Answer, Unanswered
from gputop.sources.source import SourceError

T = TypeVar("T")

PATIENCE: Final = 5.0  # seconds for the driver to answer at all
_MODULE: Final = "sys/module/nvidia"

#: Where distributions and container runtimes put the library when the loader does not look there.
_PLACES: Final = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "usr/lib/wsl/lib",
    "run/opengl-driver/lib",  # NixOS
)
_LIBRARY: Final = "libnvidia-ml.so.1"

_ASKED: Final = (
    "index",
    "name",
    "persistence_mode",
    "mig.mode.current",
    "mig.mode.pending",
    "remapped_rows.pending",
    "remapped_rows.failure",
    "retired_pages.pending",
    "gpu_recovery_action",
    "clocks_event_reasons.hw_slowdown",
)


def look(root: Path = Path("/")) -> Iterator[Check]:
    """All about the driver. Takes no longer than the driver's patience allows, hung or not."""
    module = kernel_module_version(root)
    try:
        library = _within(Library)
    except (TimeoutError, SourceError) as error:
        yield _kernel_module(module, root, answers=isinstance(error, TimeoutError))
        yield from _refused(error, root)
        return
    yield _kernel_module(module, root, answers=True)
    try:
        yield from _within(lambda: list(_told(library, module, root)))
    except (TimeoutError, SourceError) as error:
        yield from _refused(error, root)


def _told(library: Library, module: str | None, root: Path) -> Iterator[Check]:
    """What a driver that answers says."""
    yield _library(library.driver(), module, root)
    if not library.count():
        yield Check("GPUs", FAIL, "the driver runs but counts none", _with_container("see `nvidia-smi -L`, `lspci`"))
    yield from _gpus(Query(root))


def _within(function: Callable[[], T]) -> T:
    """What *function* returns or raises. Raises TimeoutError where it hangs; its thread is then left behind."""
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(function())
        except Exception as error:  # raised by the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]


def _kernel_module(version: str | None, root: Path, answers: bool) -> Check:
    if version is not None:
        text = (root / "proc/driver/nvidia/version").read_text(errors="replace")
        kind = " (open)" if "Open Kernel Module" in text else ""
        return Check("kernel module", OK, f"nvidia {version}{kind}")
    if _wsl(root):
        return Check("kernel module", OK, "none: this is WSL, where Windows has the driver")
    if (root / _MODULE).exists():
        return Check("kernel module", WARN, "loaded, but /proc/driver/nvidia/version cannot be read")
    if answers:
        return Check("kernel module", OK, "not visible from here, but the driver answers")
    return Check(
        "kernel module",
        FAIL,
        "nvidia is not loaded",
        _with_container("`modprobe nvidia` as root; after a kernel update the driver may need to be rebuilt"),
    )


def _wsl(root: Path) -> bool:
    try:
        return "microsoft" in (root / "proc/version").read_text().lower()
    except OSError:
        return False


def _refused(error: TimeoutError | SourceError, root: Path) -> Iterator[Check]:
    """Why NVML is not to be had."""
    if isinstance(error, TimeoutError):
        fix = "see `dmesg` for NVRM and Xid; reset the GPU or reboot"
        yield Check("driver", FAIL, f"no answer within {PATIENCE:g} s", fix)
        return
    if error.exit_status != 3:
        fix = {
            4: "`modprobe nvidia` as root, or start the container with `--gpus all`",
            5: "reboot, or unload and load the nvidia modules",
            6: "run as root, or request access to /dev/nvidia*",
        }.get(error.exit_status, "try `nvidia-smi`, and see `dmesg` for NVRM")
        yield Check("driver", FAIL, str(error), fix)
        return
    here = [place for place in _PLACES if (root / place / _LIBRARY).exists()]
    if here:
        fix = f"the loader does not search there: set LD_LIBRARY_PATH=/{here[0]}, or add it to /etc/ld.so.conf.d"
        yield Check("library", FAIL, f"{error}; it is in /{here[0]}", fix)
    else:
        searched = ", ".join(f"/{place}" for place in _PLACES)
        fix = _with_container("install the driver's library (Debian: libnvidia-ml1)")
        yield Check("library", FAIL, f"{error}; nor is it in {searched}", fix)


def _library(driver: Driver, module: str | None, root: Path) -> Check:
    path = loaded_library(root)
    where = f" ({path})" if path else ""
    words = (
        f"NVML {driver.nvml_version or '?'}{where}, driver {driver.version or '?'}, CUDA {driver.cuda_version or '?'}"
    )
    if module and driver.version and module != driver.version:
        return Check(
            "library",
            WARN,
            f"{words}; the kernel module is {module}",
            "reboot, or load the modules of the same version",
        )
    return Check("library", OK, words)


def _with_container(fix: str) -> str:
    return f"{fix}; in this container: start it with `--gpus all`" if in_container() else fix


# ---------------------------------------------------------------------------- each GPU


def _gpus(query: Query) -> Iterator[Check]:
    query.select(())
    fields = {field.name: field for field in GPU_FIELDS if field.name in _ASKED}
    for row in query.gpu_rows(list(fields.values())):
        yield from _gpu(dict(zip(fields, row, strict=True)))
    pids = [field for field in APP_FIELDS if field.name == "pid"]
    failures = {row[0].message for row in query.app_rows(pids) if isinstance(row[0], Unanswered)}
    failures.discard(ASLEEP)
    if failures:
        words = f"the driver does not list them: {', '.join(sorted(failures))}"
        yield Check("processes", WARN, words, "with MIG or confidential computing, run as root")
    query.close()


def _gpu(told: dict[str, Answer]) -> Iterator[Check]:
    topic, name = f"GPU {told['index']}", told["name"]
    if isinstance(name, Unanswered) and name.message == ASLEEP:
        yield Check(topic, OK, "asleep to save power, and left asleep: nothing is known of it now")
        return
    if isinstance(name, Unanswered):
        fix = "see `dmesg` for Xid and NVRM; stop its processes and reset it (`nvidia-smi -r`), or reboot"
        yield Check(topic, FAIL, name.message, fix)
        return
    mig = told["mig.mode.current"]
    words = [str(name)]
    if mig is True:
        words.append("MIG on: utilization per instance only, if at all")
    elif mig is False:
        words.append("MIG off")
    worries = list(_worries(told))
    if told["persistence_mode"] is True:
        words.append("persistence on")
    yield Check(topic, OK, ", ".join(words))
    for status, problem, fix in worries:
        yield Check(topic, status, problem, fix)


def _worries(told: dict[str, Answer]) -> Iterator[tuple[str, str, str]]:
    reset = "stop its processes, then run `nvidia-smi -r` as root"
    if told["persistence_mode"] is False:
        yield (
            WARN,
            "persistence off: the driver unloads an unused GPU, and the next start takes seconds",
            "`nvidia-smi -pm 1` as root, or the nvidia-persistenced service",
        )
    if told["mig.mode.current"] != told["mig.mode.pending"] and isinstance(told["mig.mode.pending"], bool):
        wanted = "on" if told["mig.mode.pending"] else "off"
        yield WARN, f"MIG will be switched {wanted} at the next reset", reset
    if told["remapped_rows.failure"] is True:
        yield FAIL, "memory row remapping failed", "replace the board"
    if told["remapped_rows.pending"] is True:
        yield WARN, "memory row remapping is pending", reset
    if told["retired_pages.pending"] is True:
        yield WARN, "memory page retirement is pending", reset
    if told["clocks_event_reasons.hw_slowdown"] is True:
        yield (
            WARN,
            "the hardware has reduced its clocks (too hot, or too little power)",
            "check cooling and power supply",
        )
    action = told["gpu_recovery_action"]
    if isinstance(action, str) and action != "None":
        yield FAIL, f"the driver asks for: {action}", "see `nvidia-smi -q`"


def packages(required: Sequence[str]) -> Iterator[Check]:
    """The versions of gputop, Python and the distributions *required*."""
    import platform
    import sys
    from importlib.metadata import PackageNotFoundError, version

    from gputop import __version__

    python = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    found, missing = [f"gputop {__version__}", f"Python {python}"], []
    for name in required:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    found.append(f"Linux {re.sub(r'[^0-9.].*', '', platform.release())} {platform.machine()}")
    yield Check("versions", OK, ", ".join(found))
    if missing:
        fix = f"`pip install {' '.join(missing)}`"
        yield Check("versions", FAIL, f"not installed: {', '.join(missing)}", fix)
