"""One opened GPU."""

from __future__ import annotations

from ctypes import c_void_p
from pathlib import Path

from gputop.model import Xid
from gputop.sources.nvml.driver.calls import Handle
from gputop.sources.nvml.driver.library import Library
from gputop.sources.nvml.fast_tier import Background, FastTier, watts
from gputop.sources.nvml.readings.identity import identify
from gputop.sources.nvml.readings.mig import MigInstances
from gputop.sources.nvml.readings.processes import EntryLayoutProbe
from gputop.sources.nvml.slow_tier import SlowTier
from gputop.sources.source import Reading


class NvmlDevice:
    """An opened GPU. ``read`` belongs to one thread at a time, ``upkeep`` to another.

    Raises Fault where the GPU cannot be used.
    """

    def __init__(self, library: Library, pointer: c_void_p, index: int, strides: EntryLayoutProbe, root: Path) -> None:
        self.pointer = pointer
        fast_handle, slow_handle = Handle(library, pointer), Handle(library, pointer)
        self.identity = identify(fast_handle, index)
        self.mig = MigInstances(slow_handle)
        self._mig_at_first = self.mig.enabled
        limit = slow_handle.uint("nvmlDeviceGetEnforcedPowerLimit").read()
        self._fast = FastTier(fast_handle, self.identity, index, strides, self.mig)
        background = Background(power_limit_watts=watts(limit))
        self.upkeep = SlowTier(slow_handle, self.identity, self.mig, self._fast, background, root)

    def read(self, xids: tuple[Xid, ...]) -> Reading:
        """The fast tier, with what the other tiers found last."""
        upkeep = self.upkeep
        return self._fast.read(upkeep.background, upkeep.utilization.shares, upkeep.pcie.throughput, xids)

    @property
    def outdated(self) -> bool:
        """Whether MIG was switched on or off since: then much of what was not supported is, or the reverse."""
        return bool(self.mig.enabled) != bool(self._mig_at_first)

    def close_fast(self) -> None:
        """Give back what the fast tier holds; from its thread."""
        self._fast.close()

    def close_upkeep(self) -> None:
        """Give back what the other tiers hold; from their thread."""
        self.upkeep.close()
