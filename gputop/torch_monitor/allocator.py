"""PyTorch's CUDA caching allocator, asked without side effects: torch 1.13 and later, whatever it has or lacks."""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

MAX_ENTRIES: Final = 100_000  # of history: some steps, and a dump of seconds
#: What stacks are recorded: with C++ ones a dump takes minutes instead of seconds (torchtitan#3628).
STACKS: Final = "python"


class DeviceMemory(NamedTuple):
    """One device at one moment, of this process only. Bytes are as ``torch.cuda.memory_stats()`` has them."""

    device: int  # torch's index
    allocated_bytes: int  # in tensors (rounded up to 512)
    reserved_bytes: int  # taken from the driver: allocated, and cached
    active_bytes: int  # allocated, and freed but waited for by a stream
    inactive_split_bytes: int  # cached in segments that are in use: empty_cache() cannot release it
    retries: int  # times the cache was flushed to make an allocation fit: the early warning
    ooms: int
    peak_bytes: int  # torch's own: most allocated since its peaks were reset


class Allocator:
    """The allocator of the torch that the process has imported, if any. Never imports it, never initialises CUDA."""

    def __init__(self) -> None:
        self._torch: Any = None
        self._stats: Any = None
        self._initialized: Any = None

    @property
    def torch(self) -> Any:
        return self._torch

    def ready(self) -> bool:
        """Whether torch is there and CUDA initialised by somebody (not in a forked child of such a process)."""
        if self._initialized is None:
            torch = sys.modules.get("torch")
            cuda = getattr(torch, "cuda", None)
            initialized = getattr(cuda, "is_initialized", None)
            if initialized is None:  # no torch, or only half imported yet
                return False
            self._torch, self._initialized = torch, initialized
            # One call of torch's C layer; memory_stats() flattens and sorts what it gives, five times as dear.
            self._stats = getattr(getattr(torch, "_C", None), "_cuda_memoryStats", None) or getattr(
                cuda, "memory_stats_as_nested_dict", None
            )
        return bool(self._initialized())

    def count(self) -> int:
        return int(self._torch.cuda.device_count())

    def read(self, device: int) -> DeviceMemory | None:
        """None where this backend (cudaMallocAsync, a pluggable one) or torch says nothing."""
        if self._stats is None:
            return None
        try:
            stats = self._stats(device)
            allocated = stats["allocated_bytes"]["all"]
            return DeviceMemory(
                device,
                allocated["current"],
                stats["reserved_bytes"]["all"]["current"],
                stats["active_bytes"]["all"]["current"],
                stats["inactive_split_bytes"]["all"]["current"],
                stats["num_alloc_retries"],
                stats["num_ooms"],
                allocated["peak"],
            )
        except (KeyError, TypeError, RuntimeError):
            return None

    def reset_peaks(self, device: int) -> bool:
        """Reset torch's own peaks, of everybody in the process."""
        reset = getattr(self._torch.cuda, "reset_peak_memory_stats", None)
        if reset is None:
            return False
        reset(device)
        return True

    def total_bytes(self, device: int) -> int | None:
        """What may be allocated: the device's memory, or the share that set_per_process_memory_fraction() left."""
        try:
            total = int(self._torch.cuda.get_device_properties(device).total_memory)
            fraction = getattr(self._torch.cuda, "get_per_process_memory_fraction", None)
            return int(total * fraction(device)) if fraction is not None else total
        except (AttributeError, AssertionError, RuntimeError, TypeError, ValueError):
            return None

    def identity(self, device: int) -> tuple[str | None, str | None]:
        """(UUID, PCI bus id) of the device as NVML writes them: its index is not torch's.

        From torch 2.5 (uuid) and 2.8 (PCI); older: cuDeviceGetPCIBusId of the driver library that is loaded already.
        """
        uuid = pci = None
        try:
            properties = self._torch.cuda.get_device_properties(device)
            if (found := getattr(properties, "uuid", None)) is not None:
                uuid = str(found)
                uuid = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
            if (bus := getattr(properties, "pci_bus_id", None)) is not None:
                domain, slot = getattr(properties, "pci_domain_id", 0), getattr(properties, "pci_device_id", 0)
                pci = f"{domain:08x}:{bus:02x}:{slot:02x}.0"
        except (AttributeError, AssertionError, RuntimeError, TypeError, ValueError):
            pass
        return uuid, pci or (_pci_of_driver(device) if uuid is None else None)

    @property
    def version(self) -> str | None:
        version = getattr(self._torch, "__version__", None)
        return None if version is None else str(version)

    @property
    def backend(self) -> str | None:
        """``native``, ``cudaMallocAsync``…; torch 2.0 and later."""
        ask = getattr(getattr(self._torch, "cuda", None), "get_allocator_backend", None)
        try:
            return None if ask is None else str(ask())
        except RuntimeError:
            return None

    # -- snapshots and history: private functions of torch, so each may be missing

    def snapshot(self) -> Any:
        """What ``_dump_snapshot()`` would write. Raises Unsupported in words."""
        memory = getattr(self._torch.cuda, "memory", None)
        take = getattr(memory, "_snapshot", None) or getattr(memory, "memory_snapshot", None)
        if take is None:
            raise Unsupported(f"torch {self.version} cannot take memory snapshots")
        return take()

    def dump(self, directory: Path, reason: str) -> Path:
        """Write a snapshot whole or not at all, readable by its owner only, named after *reason*, time, pid and rank.

        Raises Unsupported, OSError, RuntimeError in words.
        """
        snapshot = self.snapshot()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        stamp, rank = time.strftime("%Y%m%d-%H%M%S"), os.environ.get("RANK", "")
        of_rank = f"-rank{int(rank)}" if rank.isdigit() else ""
        path = directory / f"{reason}-{stamp}-{os.getpid()}{of_rank}.pickle"
        temporary = path.with_name(f".{path.name}.part")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            pickle.dump(snapshot, file, protocol=4)
        temporary.rename(path)
        return path

    def start_history(self, max_entries: int = MAX_ENTRIES) -> None:
        """Record allocations with Python stacks. Raises Unsupported in words."""
        start = getattr(getattr(self._torch.cuda, "memory", None), "_record_memory_history", None)
        if start is None:
            raise Unsupported(f"torch {self.version} cannot record allocation history (1.13 and later can)")
        try:
            start(enabled="all", context="all", stacks=STACKS, max_entries=max_entries)  # 2.1 and later
        except TypeError:
            try:
                start(True, trace_alloc_max_entries=max_entries, trace_alloc_record_context=True)
            except TypeError:
                start(True)  # 1.13

    def stop_history(self) -> None:
        """Raises Unsupported in words."""
        stop = getattr(getattr(self._torch.cuda, "memory", None), "_record_memory_history", None)
        if stop is None:
            raise Unsupported(f"torch {self.version} cannot record allocation history (1.13 and later can)")
        try:
            stop(enabled=None)
        except TypeError:
            stop(False)

    def on_oom(self, observer: Any) -> bool:
        """Have *observer(device, asked, limit, free)* called before an OOM is raised. Never to be taken back.

        Only after CUDA was initialised: torch crashed otherwise (pytorch#102796, #107330). False: torch before 2.0.
        """
        attach = getattr(getattr(self._torch, "_C", None), "_cuda_attach_out_of_memory_observer", None)
        if attach is None:
            return False
        try:
            attach(observer)
        except RuntimeError:  # another backend than the native allocator
            return False
        return True


class Unsupported(RuntimeError):
    """This torch has no such thing; ``str()`` says what."""


def _pci_of_driver(device: int) -> str | None:
    """cuDeviceGetPCIBusId of libcuda, where CUDA runs already."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        handle, text = ctypes.c_int(), ctypes.create_string_buffer(32)
        if library.cuDeviceGet(ctypes.byref(handle), device) or library.cuDeviceGetPCIBusId(text, 32, handle):
            return None
    except (OSError, AttributeError):
        return None
    domain, _, rest = text.value.decode("ascii", "replace").lower().partition(":")
    return f"{domain:0>8}:{rest}"
