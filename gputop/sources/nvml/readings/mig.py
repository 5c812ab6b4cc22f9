"""MIG: the instances a GPU is cut into, and their memory.

Instances are enumerated by the slow tier, their memory is read by the fast one. Compute instances of one GPU instance
share its memory. Handles turn invalid when instances change: then they are enumerated again.
"""

from __future__ import annotations

from ctypes import byref, c_uint, c_void_p
from typing import Final

from gputop.model import MigInstance
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Handle
from gputop.sources.nvml.readings.gpm import Gpm
from gputop.sources.nvml.readings.memory import NO_MEMORY, memory_quantity

_STALE: Final = frozenset({abi.INVALID_ARGUMENT, abi.NOT_FOUND, abi.UNKNOWN})


class MigReader:
    """An enumerated instance. ``read`` belongs to the fast tier."""

    def __init__(self, handle: Handle, uuid: str, gi: int, ci: int, name: str) -> None:
        self.handle, self.uuid, self.gi, self.ci, self.name = handle, uuid, gi, ci, name
        self._memory = memory_quantity(handle)
        self.stale = False

    def read(self, sm_active: float | None) -> MigInstance:
        failures = self.handle.failures
        failures.clear()
        total, used, reserved, free = self._memory.read() or NO_MEMORY
        self.stale = not failures.isdisjoint(_STALE)
        return MigInstance(
            uuid=self.uuid,
            gpu_instance_id=self.gi,
            compute_instance_id=self.ci,
            name=self.name,
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_free_bytes=free,
            memory_reserved_bytes=reserved,
            sm_active_percent=sm_active,
            error=self.handle.library.explain(max(failures)) if failures else None,
        )


class MigInstances:
    """The instances of one GPU. ``instances`` and ``sm_active`` are replaced as a whole.

    ``enabled`` is None where the GPU has no MIG; (0, 0) from the driver means that it has it and it is off, and then
    utilization works as on any GPU (nvtop#470).
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._mode = handle.numbers("nvmlDeviceGetMigMode", 2)
        self._gpm: dict[int, Gpm] = {}  # by GPU instance
        self.enabled: bool | None = None
        self.instances: tuple[MigReader, ...] = ()
        self.sm_active: dict[int, float] = {}  # by GPU instance
        self.enumerate()

    def enumerate(self) -> None:
        """Look which instances there are (slow tier). Raises NvmlError when the GPU or the driver is gone."""
        mode = self._mode.read()
        if mode is not None or self._mode.unsupported:
            self.enabled = None if mode is None else mode[0] == 1
        if not self.enabled:
            self.instances = ()
            return
        known = {(instance.uuid, instance.handle.pointer.value): instance for instance in self.instances}
        found = []
        for pointer in self._handles():
            uuid = self._handle.library.text("nvmlDeviceGetUUID", 96, pointer) or f"MIG:{pointer.value}"
            instance = known.get((uuid, pointer.value)) or self._instance(pointer, uuid)
            if instance is not None:
                found.append(instance)
        self.instances = tuple(found)

    def _handles(self) -> list[c_void_p]:
        library, count = self._handle.library, c_uint()
        code = library.call("nvmlDeviceGetMaxMigDeviceCount", self._handle.pointer, byref(count))
        if code:
            self._handle.failed(code)
            return []
        handles = []
        for index in range(min(count.value, 64)):
            pointer = c_void_p()
            code = library.call(
                "nvmlDeviceGetMigDeviceHandleByIndex", self._handle.pointer, c_uint(index), byref(pointer)
            )
            if code == 0 and pointer.value:
                handles.append(pointer)
            elif code not in (0, abi.NOT_FOUND):  # NOT_FOUND is a gap, not the end
                self._handle.failed(code)
        return handles

    def _instance(self, pointer: c_void_p, uuid: str) -> MigReader | None:
        handle = Handle(self._handle.library, pointer)
        gi = handle.uint("nvmlDeviceGetGpuInstanceId").read()
        ci = handle.uint("nvmlDeviceGetComputeInstanceId").read()
        if gi is None or ci is None:
            return None
        name = handle.text("nvmlDeviceGetName").read() or "MIG"
        return MigReader(handle, uuid, gi, ci, name.rpartition("MIG ")[2])  # "NVIDIA H200 MIG 3g.71gb"

    def read_activity(self, now: float) -> None:
        """SM activity by GPU instance, where there is GPM (medium tier; nothing else tells how busy one is)."""
        wanted = {instance.gi for instance in self.instances}
        for gi in self._gpm.keys() - wanted:
            self._gpm.pop(gi).close()
        activity = {}
        for gi in wanted:
            gpm = self._gpm.get(gi)
            if gpm is None:
                gpm = self._gpm[gi] = Gpm(self._handle, (abi.GPM_SM,), gi)
            value = gpm.read(now).get(abi.GPM_SM)
            if value is not None:
                activity[gi] = value
        self.sm_active = activity

    def read(self) -> tuple[MigInstance, ...]:
        """The instances with their memory now (fast tier). Raises NvmlError when the GPU or the driver is gone."""
        sm_active = self.sm_active
        return tuple([instance.read(sm_active.get(instance.gi)) for instance in self.instances])

    @property
    def stale(self) -> bool:
        return any(instance.stale for instance in self.instances)

    def close(self) -> None:
        for gpm in self._gpm.values():
            gpm.close()
        self._gpm.clear()
