"""One opened GPU: its fast tier, and its background tiers."""

from __future__ import annotations

from ctypes import c_void_p
from pathlib import Path

from gputop.model import Xid
from gputop.sources.nvml.background_tiers import BackgroundTiers
from gputop.sources.nvml.driver.calls import Handle
from gputop.sources.nvml.driver.library import Library
from gputop.sources.nvml.fast_tier import BackgroundReadings, FastTier, watts
from gputop.sources.nvml.readings.identity import identify
from gputop.sources.nvml.readings.mig import MigInstances
from gputop.sources.nvml.readings.processes import EntryLayoutProbe
from gputop.sources.source import Reading


class NvmlDevice:
    """An opened GPU. ``read`` belongs to one thread at a time, ``background`` to another.

    Raises NvmlError where the GPU cannot be used.
    """

    def __init__(self, library: Library, pointer: c_void_p, index: int, layouts: EntryLayoutProbe, root: Path) -> None:
        self.pointer = pointer
        fast_handle, slow_handle = Handle(library, pointer), Handle(library, pointer)
        self.identity = identify(fast_handle, index)
        self.mig = MigInstances(slow_handle)
        self._mig_at_first = self.mig.enabled
        limit = slow_handle.uint("nvmlDeviceGetEnforcedPowerLimit").read()
        self._fast = FastTier(fast_handle, self.identity, index, layouts, self.mig)
        readings = BackgroundReadings(power_limit_watts=watts(limit))
        self.background = BackgroundTiers(slow_handle, self.identity, self.mig, self._fast, readings, root)

    def read(self, xids: tuple[Xid, ...]) -> Reading:
        """The fast tier, with what the other tiers found last."""
        tiers = self.background
        return self._fast.read(tiers.readings, tiers.utilization.samples, tiers.pcie.throughput, xids)

    @property
    def outdated(self) -> bool:
        """Whether MIG was switched on or off since: then much of what was not supported is, or the reverse."""
        return bool(self.mig.enabled) != bool(self._mig_at_first)

    def close_fast(self) -> None:
        """Give back what the fast tier holds; from its thread."""
        self._fast.close()

    def close_background(self) -> None:
        """Give back what the other tiers hold; from their thread."""
        self.background.close()
