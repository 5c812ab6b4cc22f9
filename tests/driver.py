"""The simulated NVIDIA driver, from Python: build it, script it, put it under this process or another.

    with SimulatedDriver(tmp_path, gpus=2) as driver:
        driver.gpu(0).set(memory_used=12 * GIB, power_watts=312.5, temperature_memory=NOT_SUPPORTED)
        driver.gpu(0).process(4711, memory=5 * GIB, kind="C", sm=50)
        subprocess.run(["nvitop", "-1"], env=driver.env)    # another process reads it, or
        driver.load()                                       # pynvml in this one
        driver.fault("gpu 1 lost")                          # while they run

Every change is in the scenario file when the call returns: a library loaded by `load()` has
read it then, other processes read it within `SEEN_WITHIN` seconds (`settle()` waits that long).
Names of values, and what a fault may say: tests/simulated_driver/README.md.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "simulated_driver"
CACHE = SOURCES.parents[1] / ".cache" / "simulated_driver"
SONAME = "libnvidia-ml.so.1"
SEEN_WITHIN = 0.06  # the library looks at the scenario file every 50 ms

MIB = 1024**2
GIB = 1024**3
NOT_AVAILABLE = "n/a"  # what NVML calls NVML_VALUE_NOT_AVAILABLE: 2^64 - 1

# Errors in the place of a value; any other name of nvmlReturn_t does too: "!timeout".
NOT_SUPPORTED = "!not_supported"
NO_PERMISSION = "!no_permission"
UNKNOWN = "!unknown"
LOST = "!gpu_is_lost"

Value = int | float | str


class DriverUnavailable(Exception):
    """The simulated driver cannot be built here; the text says why."""


# ----------------------------------------------------------------------------- building


def _header_folder() -> Path:
    """Where nvml.h is: PyPI's nvidia-nvml-dev, a test dependency."""
    try:
        files = importlib.metadata.files("nvidia-nvml-dev") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "nvml.h":
            return Path(str(file.locate())).resolve().parent
    raise DriverUnavailable("no nvml.h: PyPI's nvidia-nvml-dev is not installed")


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{done.stdout}\nfailed: {' '.join(map(str, command))}")


def _once(folder: Path, make: Callable[[Path], object]) -> Path:
    """`folder`, filled by make(temporary folder) unless it is there: by one process, while others wait."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            temporary = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
            try:
                make(temporary)
                temporary.rename(folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return folder


def build(missing_symbols: Sequence[str] = ()) -> Path:
    """The folder of a libnvidia-ml.so.1 that lacks `missing_symbols`, as an older driver's does.

    Compiled once for each content of tests/simulated_driver (4 s), linked once for each set of
    symbols (0.1 s). Raises DriverUnavailable where there is no C compiler or no nvml.h.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if not compiler:
        raise DriverUnavailable("no C compiler (cc)")
    header = _header_folder()
    sources = sorted(SOURCES.glob("*.c"))
    content = hashlib.sha256(compiler.encode())
    for file in [*sources, SOURCES / "gen.py", SOURCES / "simulated_nvml.h", header / "nvml.h", Path(__file__)]:
        content.update(file.read_bytes())

    def compile_object(folder: Path) -> None:
        _run([compiler, "-E", "-P", "-DNVML_NO_UNVERSIONED_FUNC_DEFS", header / "nvml.h", "-o", folder / "nvml.i"])
        _run([sys.executable, SOURCES / "gen.py", folder / "nvml.i", folder / "gen.c"])
        _run([compiler, "-std=gnu11", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror",
              "-Wno-deprecated-declarations", "-Wno-unused-parameter", "-I", SOURCES, "-isystem", header,
              "-r", "-nostdlib", "-o", folder / "driver.o", *sources, folder / "gen.c"])  # fmt: skip
        (folder / "gen.c").unlink()
        (folder / "nvml.i").unlink()

    def link(folder: Path) -> None:
        hidden = "".join(f"{name}; " for name in sorted(missing_symbols))
        script = folder / "symbols"
        script.write_text(f"{{ global: nvml*; simnvml_*; local: {hidden}*; }};\n")
        _run([compiler, "-shared", f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={script}",
              "-o", folder / SONAME, objects / "driver.o", "-lm", "-lpthread"])  # fmt: skip
        (folder / "libnvidia-ml.so").symlink_to(SONAME)

    objects = _once(CACHE / content.hexdigest()[:16], compile_object)
    variant = hashlib.sha256(" ".join(sorted(missing_symbols)).encode()).hexdigest()[:8] if missing_symbols else "all"
    return _once(objects / variant, link)


# ------------------------------------------------------------------------------ scripting


def _word(value: object) -> str:
    """One word of the scenario's language."""
    if isinstance(value, bool):
        return str(int(value))
    return _escaped(str(value)).replace(" ", "\\x20")


def _escaped(text: str) -> str:
    """A text as the scenario's language has it: nothing in it can end the line or start a comment."""
    plain = {*range(0x20, 0x7F)} - {ord("\\"), ord("#")}
    data = text.encode(errors="surrogateescape")
    out = "".join(chr(b) if b in plain else f"\\x{b:02x}" for b in data)
    return f"\\x20{out[1:]}" if out.startswith(" ") else out


def _pairs(**words: object) -> str:
    return "".join(f" {name.replace('_', '-')} {_word(value)}" for name, value in words.items() if value is not None)


class Gpu:
    """What the scenario says about one GPU. Every method applies at once and returns the GPU."""

    TEXTS = frozenset({"name", "uuid", "serial", "vbios", "part_number", "bus_id"})

    def __init__(self, driver: SimulatedDriver, index: int) -> None:
        self.index = index
        self._driver = driver
        self._lines: dict[tuple[object, ...], str] = {}

    def _say(self, key: tuple[object, ...], line: str) -> Gpu:
        self._lines[key] = f"gpu {self.index} {line}"
        self._driver.write()
        return self

    def set(self, **values: Value | Sequence[int] | None) -> Gpu:
        """Values by the names of README.md, each a number, a text or an error; None: automatic again.

        `fan_percent` may be a list, one entry a fan.
        """
        for name, value in values.items():
            if value is None:
                self._lines.pop((name,), None)
            elif name == "fan_percent" and isinstance(value, Sequence) and not isinstance(value, str):
                self._lines["fans",] = f"gpu {self.index} fans {len(value)}"
                for i, percent in enumerate(value):
                    self._lines[f"{name}_{i}",] = f"gpu {self.index} {name}_{i} {percent}"
            else:
                word = _escaped(str(value)) if name in self.TEXTS else _word(value)
                self._lines[name,] = f"gpu {self.index} {name} {word}"
        self._driver.write()
        return self

    def process(
        self,
        pid: int,
        *,
        memory: int | str = 0,
        kind: str = "C",
        sm: int | None = None,
        mem: int | None = None,
        enc: int | None = None,
        dec: int | None = None,
        gi: int | None = None,
        ci: int | None = None,
        while_alive: bool = False,
        holds: str | os.PathLike[str] | None = None,
    ) -> Gpu:
        """List `pid` (dead or alive) with `memory` bytes; said again, it replaces what was said.

        kind: "C", "G", "M" or some of them ("C+G"). sm, mem, enc, dec: percent, in its utilization
        sample; all None or 0: no sample, as for an idle process. while_alive: listed only as long
        as the process lives. holds: only as long as any living process has this file open.
        """
        line = f"process {pid} kind {kind}" + _pairs(memory=memory, sm=sm, mem=mem, enc=enc, dec=dec, gi=gi, ci=ci)
        if while_alive:
            line += " while-alive"
        if holds is not None:
            line += _pairs(holds=os.fspath(holds))
        return self._say(("process", pid, gi, ci), line)

    def no_process(self, pid: int) -> Gpu:
        """Take `pid` from the list again."""
        for key in [key for key in self._lines if key[:2] == ("process", pid)]:
            del self._lines[key]
        return self._say(("processes",), "processes scripted")

    def no_processes(self) -> Gpu:
        """An empty list, and no raw samples."""
        self._lines = {key: line for key, line in self._lines.items() if key[0] not in ("process", "sample")}
        return self._say(("processes",), "processes scripted")

    def sample(self, *, pid: int = 0, sm: int = 0, mem: int = 0, enc: int = 0, dec: int = 0,
               timestamp: int = 0, repeat: int = 1) -> Gpu:  # fmt: skip
        """A raw utilization sample, given out as it is at every call: garbage (nvtop#110)."""
        line = "sample" + _pairs(pid=pid, sm=sm, mem=mem, enc=enc, dec=dec, timestamp=timestamp, repeat=repeat)
        return self._say(("sample", len(self._lines)), line)

    def mig(self, slot: int, *, profile: str = "1g.18gb", gi: int, ci: int = 0, memory_total: Value | None = None,
            memory_used: Value | None = None, uuid: str | None = None) -> Gpu:  # fmt: skip
        """A MIG instance at index `slot`; the first one switches MIG mode on."""
        line = f"mig {slot}" + "".join(
            f" {name} {_word(value)}"
            for name, value in {"profile": profile, "gi": gi, "ci": ci, "memory_total": memory_total,
                                "memory_used": memory_used, "uuid": uuid}.items()
            if value is not None
        )  # fmt: skip
        return self._say(("mig", slot), line)

    def no_mig(self, slot: int) -> Gpu:
        """Destroy the instance: its handle turns invalid."""
        del self._lines["mig", slot]
        self._driver.write()
        return self

    def gpm(self, metrics: dict[int, Value] | bool = True, *, gi: int | None = None) -> Gpu:
        """GPM on or off, or on with values by metric id (2: SM active, 3: occupancy, ...), of an instance with `gi`."""
        if isinstance(metrics, bool):
            return self._say(("gpm",), f"gpm {'on' if metrics else 'off'}")
        for metric, value in metrics.items():
            self._lines["gpm", metric, gi] = f"gpu {self.index} gpm {metric} {_word(value)}" + _pairs(gi=gi)
        self._driver.write()
        return self

    def field(self, field_id: int, value: Value, *, scope: int | str | None = None, kind: int | None = None) -> Gpu:
        """What nvmlDeviceGetFieldValues says for an id. scope: a link's number or "all"; kind: nvmlValueType_t."""
        line = f"field {field_id} {_word(value)}" + _pairs(scope=scope, type=kind)
        return self._say(("field", field_id, scope), line)

    def automatic(self) -> Gpu:
        """Forget everything said about this GPU."""
        self._lines.clear()
        self._driver.write()
        return self


class SimulatedDriver:
    """A scenario file in `folder` and the library that follows it. `gpus` with no processes at first.

    As a context manager it undoes `load()` and releases hung calls at the end.
    """

    def __init__(self, folder: Path, gpus: int = 1, missing_symbols: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.library = build(missing_symbols)
        self.scenario = folder / "scenario"
        self._gpus: dict[int, Gpu] = {}
        self._settings: dict[str, Value] = {"gpus": gpus}
        self._faults: list[str] = []
        self._events: list[str] = []
        self._loaded: ctypes.CDLL | None = None
        self._together = 0
        self.write()

    # ------------------------------------------------------------------------ what it says

    def gpu(self, index: int) -> Gpu:
        return self._gpus.setdefault(index, Gpu(self, index))

    @property
    def gpus(self) -> int:
        """How many GPUs the driver counts, 0 to 64."""
        return int(self._settings["gpus"])

    @gpus.setter
    def gpus(self, count: int) -> None:
        self.set(gpus=count)

    def set(self, **values: Value) -> None:
        """driver="535.54.03", nvml=..., cuda=12020, process_stride=16, 24 or 32, gpus=N."""
        self._settings |= values
        self.write()

    def reload_driver(self) -> None:
        """As if the kernel module were loaded anew: every call is UNINITIALIZED until the next init."""
        self.set(driver_loads=int(self._settings.get("driver_loads", 0)) + 1)

    def fault(self, line: str) -> None:
        """One more fault: "gpu 1 lost", "call nvmlDeviceGetName delay_ms 300", "init driver_mismatch"..."""
        self._faults.append(line)
        self.write()

    def clear_faults(self, line: str | None = None) -> None:
        """Take away one fault, or all of them."""
        self._faults = [fault for fault in self._faults if line is not None and fault != line]
        self.write()

    @contextlib.contextmanager
    def faulty(self, *lines: str) -> Iterator[None]:
        for line in lines:
            self.fault(line)
        try:
            yield
        finally:
            for line in lines:
                self.clear_faults(line)

    def xid(self, gpu: int, code: int, *, gi: int | None = None, ci: int | None = None) -> None:
        """An Xid event, for the event sets that exist now and have registered for it."""
        self._events.append(f"event {len(self._events) + 1} gpu {gpu} xid {code}" + _pairs(gi=gi, ci=ci))
        self.write()

    def event(self, gpu: int, kind: int, data: int = 0) -> None:
        """Any other event, by its nvmlEventType bit."""
        self._events.append(f"event {len(self._events) + 1} gpu {gpu} type {kind} data {data}")
        self.write()

    # ---------------------------------------------------------------------- where it is said

    def text(self) -> str:
        """The scenario as it stands."""
        lines = [f"{name} {_escaped(str(value))}" for name, value in self._settings.items()]
        for index in sorted({*self._gpus, *range(self.gpus)}):
            lines.append(f"gpu {index} processes scripted")
            lines += self.gpu(index)._lines.values()
        return "".join(f"{line}\n" for line in [*lines, *self._faults, *self._events])

    def write(self) -> None:
        """Write the scenario file, whole or not at all."""
        if self._together:
            return
        temporary = self.scenario.with_suffix(".new")
        temporary.write_text(self.text())
        temporary.rename(self.scenario)
        if self._loaded:
            self._loaded.simnvml_reload()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Several changes that are seen at one moment."""
        self._together += 1
        try:
            yield
        finally:
            self._together -= 1
            self.write()

    def settle(self) -> None:
        """Wait until every process that uses the driver answers by the scenario as it is now."""
        time.sleep(SEEN_WITHIN)

    # -------------------------------------------------------------------------- who reads it

    @property
    def env(self) -> dict[str, str]:
        """The environment of a process that shall see this driver."""
        path = os.environ.get("LD_LIBRARY_PATH")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("SIMNVML_")},
            "LD_LIBRARY_PATH": f"{self.library}:{path}" if path else str(self.library),
            "SIMNVML_SCENARIO": str(self.scenario),
            "SIMNVML_PROCS": "0",
        }

    def load(self) -> ctypes.CDLL:
        """Put this driver under pynvml in this process, uninitialized, as after the start of a program."""
        import pynvml

        self._loaded = _configure(self.library, self.scenario)
        pynvml.nvmlLib = self._loaded
        pynvml._nvmlLib_refcount = 0
        pynvml._nvmlGetFunctionPointer_cache.clear()
        return self._loaded

    def calls(self, function: str) -> int:
        """How often this process has called an NVML function, since the library was loaded."""
        assert self._loaded, "load() first"
        count = self._loaded.simnvml_calls
        count.restype = ctypes.c_ulonglong
        return int(count(function.encode()))

    def unload(self) -> None:
        """From here on nvmlInit finds no driver in this process."""
        if not self._loaded:
            return
        import pynvml

        none = _once(CACHE / "none", lambda folder: (folder / "scenario").write_text("init no_library\n"))
        _configure(self.library, none / "scenario")
        self._loaded = None
        pynvml.nvmlLib = None
        pynvml._nvmlLib_refcount = 0
        pynvml._nvmlGetFunctionPointer_cache.clear()

    def __enter__(self) -> SimulatedDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear_faults()
        self.unload()


def _configure(library: Path, scenario: Path) -> ctypes.CDLL:
    """Load by full path: later dlopen("libnvidia-ml.so.1") of this process finds it by its SONAME."""
    loaded = ctypes.CDLL(str(library / SONAME), mode=ctypes.RTLD_GLOBAL)
    loaded.simnvml_configure(os.fsencode(scenario))
    return loaded
