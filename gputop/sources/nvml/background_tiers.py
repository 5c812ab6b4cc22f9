"""The medium and the slow tier of one GPU, which run in the background and leave what they find for the fast tier."""

from __future__ import annotations

import time
from pathlib import Path

from gputop.model import replace
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.calls import Handle
from gputop.sources.nvml.fast_tier import BackgroundReadings, FastTier
from gputop.sources.nvml.readings.identity import Identity
from gputop.sources.nvml.readings.mig import MigInstances
from gputop.sources.nvml.readings.nvlink import NO_PEERS, LinkCounters, NvLinks, Peers
from gputop.sources.nvml.readings.pcie import PcieSampler
from gputop.sources.nvml.readings.utilization import ProcessUtilization
from gputop.sources.nvml.static_facts import Fans, SlowFacts, read_static


class BackgroundTiers:
    """The medium and the slow tier. Replaces ``readings`` as a whole, for the fast tier's thread to pick up."""

    def __init__(
        self,
        handle: Handle,
        identity: Identity,
        mig: MigInstances,
        fast: FastTier,
        readings: BackgroundReadings,
        root: Path,
    ) -> None:
        self._handle, self._identity, self._mig, self._fast, self._root = handle, identity, mig, fast, root
        self.utilization = ProcessUtilization(handle)
        self.pcie = PcieSampler(handle)
        self.readings = readings
        self._fans: Fans | None = None
        self._slow: SlowFacts | None = None
        self._links: NvLinks | None = None
        self._link_totals: LinkCounters | None = None

    @property
    def peers(self) -> Peers:
        """Who is at the other ends of its NVLinks."""
        return self._links.peers if self._links is not None else NO_PEERS

    @property
    def wants_pcie_sample(self) -> bool:
        fast = self._fast
        return not fast.pcie_by_gpm and fast.pcie.serves is False and not self.pcie.unsupported

    def read_medium(self) -> None:
        """At most once a second; the first time also what never changes. Raises NvmlError."""
        if self._mig.stale:
            self._mig.enumerate()
        if self._mig.enabled:
            self.utilization.samples = None
            self._mig.read_activity(time.monotonic())
        else:
            self.utilization.read(self._fast.processes.pids)
        if self._fans is None or not self._fans.counted:
            self._fans = Fans(self._handle)
            facts = read_static(self._handle, self._identity.pci_bus_id, self._fast.has_gpm, self._root)
            self.readings = replace(self.readings, facts=replace(facts, mig_mode=self._mig.enabled))
        rx, tx = self._nvlink_totals()
        self.readings = replace(
            self.readings,
            fans_percent=self._fans.percent(),
            nvlink_rx_bytes_per_second=rx,
            nvlink_tx_bytes_per_second=tx,
        )

    def _nvlink_totals(self) -> tuple[float | None, float | None]:
        """Of all links together, by counters, where GPM does not have them."""
        gpm = self._fast.gpm
        if self._links is None or not self._links.peers.any or (gpm is not None and gpm.has(abi.GPM_NVLINK_RX)):
            return None, None
        if self._link_totals is None:
            self._link_totals = LinkCounters(self._handle, (abi.ALL_LINKS,))
        return self._link_totals.read()[abi.ALL_LINKS]

    @property
    def topology(self) -> tuple[tuple[str, str], ...] | None:
        """How the GPU is connected to others: (UUID, word)."""
        return self.readings.facts.topology

    @topology.setter
    def topology(self, topology: tuple[tuple[str, str], ...] | None) -> None:
        facts = self.readings.facts
        if topology != facts.topology:
            self.readings = replace(self.readings, facts=replace(facts, topology=topology))

    def read_slow(self) -> None:
        """Every 5 to 30 s. Raises NvmlError."""
        self._slow = self._slow or SlowFacts(self._handle)
        if self._links is None or not self._links.counted:
            self._links = NvLinks(self._handle)  # either may be the one during which the GPU is lost
        self._mig.enumerate()
        facts = self._slow.read(self.readings.facts)
        facts = replace(
            facts,
            mig_mode=self._mig.enabled,
            nvlinks=self._links.read(),
            fan_rpm=self._fans.rpm() if self._fans is not None else None,
        )
        self.readings = replace(
            self.readings,
            facts=facts,
            power_limit_watts=self._slow.power_limit_watts,
            temperature_margin_celsius=self._slow.margin_celsius,
            notes=self._slow.notes,
        )

    def close(self) -> None:
        self._mig.close()
