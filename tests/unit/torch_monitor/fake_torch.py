"""A stand-in for torch with an allocator that the test fills and empties. Installed in ``sys.modules``."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

MIB = 1024**2
GIB = 1024**3


class FakeTorch(ModuleType):
    """torch as :mod:`gputop.torch_monitor` uses it. *version* takes away what that version lacks."""

    def __init__(self, devices: int = 1, total: int = 10 * GIB, version: str = "2.11.0") -> None:
        super().__init__("torch")
        self.__version__ = version
        new = tuple(map(int, version.split(".")[:2]))
        self.initialized = True
        self.memory = [{"allocated": 0, "reserved": 0, "peak": 0, "retries": 0, "ooms": 0} for _ in range(devices)]
        self.observers: list[Any] = []
        self.recording: list[Any] = []
        self.calls: list[str] = []
        properties = [
            SimpleNamespace(
                total_memory=total,
                **({"uuid": f"{n:08x}-0000-4000-8000-000000000000"} if new >= (2, 5) else {}),
                **({"pci_bus_id": 0x18 + n, "pci_device_id": 0, "pci_domain_id": 0} if new >= (2, 8) else {}),
            )
            for n in range(devices)
        ]
        self._C = SimpleNamespace(_cuda_memoryStats=self._stats)
        if new >= (2, 0):
            self._C._cuda_attach_out_of_memory_observer = self.observers.append
        memory = SimpleNamespace(_record_memory_history=self._record, _snapshot=self._snapshot)
        self.cuda = SimpleNamespace(
            is_initialized=lambda: self.initialized,
            device_count=lambda: devices,
            get_device_properties=properties.__getitem__,
            memory_stats_as_nested_dict=self._stats,
            reset_peak_memory_stats=self._reset,
            memory=memory,
        )
        if new < (2, 1):
            memory._record_memory_history = self._record_old

    def allocate(self, bytes_: int, device: int = 0) -> None:
        """Negative: free."""
        memory = self.memory[device]
        memory["allocated"] += bytes_
        memory["peak"] = max(memory["peak"], memory["allocated"])
        memory["reserved"] = max(memory["reserved"], memory["allocated"])

    def out_of_memory(self, asked: int, device: int = 0, limit: int = 10 * GIB, free: int = 5 * MIB) -> None:
        for observer in self.observers:
            observer(device, asked, limit, free)

    def _stats(self, device: int) -> dict[str, Any]:
        if not self.initialized:
            raise AssertionError("asked before CUDA was initialised")
        memory = self.memory[device]

        def stat(current: int, peak: int = 0) -> dict[str, Any]:
            return {"all": {"current": current, "peak": peak, "allocated": 0, "freed": 0}}

        return {
            "allocated_bytes": stat(memory["allocated"], memory["peak"]),
            "reserved_bytes": stat(memory["reserved"]),
            "active_bytes": stat(memory["allocated"]),
            "inactive_split_bytes": stat(0),
            "num_alloc_retries": memory["retries"],
            "num_ooms": memory["ooms"],
        }

    def _reset(self, device: int) -> None:
        self.calls.append("reset")
        self.memory[device]["peak"] = self.memory[device]["allocated"]

    def _record(self, enabled: Any = "all", context: Any = "all", stacks: Any = "all", max_entries: Any = None) -> None:
        self.recording.append(enabled)

    def _record_old(self, enabled: bool, trace_alloc_max_entries: int = 1, trace_alloc_record_context: Any = 0) -> None:
        self.recording.append(enabled)

    def _snapshot(self) -> dict[str, Any]:
        return {"segments": [], "device_traces": [[] for _ in self.memory]}
