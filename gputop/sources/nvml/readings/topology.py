"""How two GPUs are connected, in the words of ``nvidia-smi topo -m``."""

from __future__ import annotations

from ctypes import byref, c_uint, c_void_p
from typing import Final

from gputop.sources.nvml.driver.library import Library
from gputop.sources.nvml.readings.nvlink import Peers

#: nvmlGpuTopologyLevel_t
_LEVEL: Final = {
    0: "INT",  # on one board
    10: "PIX",  # one PCIe switch
    20: "PXB",  # several PCIe switches
    30: "PHB",  # a host bridge
    40: "NODE",  # host bridges of one NUMA node
    50: "SYS",  # across NUMA nodes
}


def ancestor(library: Library, one: c_void_p, other: c_void_p) -> str | None:
    """The word for where the PCIe paths of two GPUs meet; None where the driver does not say."""
    level = c_uint()
    if library.call("nvmlDeviceGetTopologyCommonAncestor", one, other, byref(level)):
        return None
    return _LEVEL.get(level.value)


def nvlinks_between(one: Peers, other: Peers, other_bus_id: str | None) -> int:
    """Active links that connect two GPUs, directly or by NVSwitches (all links of both go to those then)."""
    direct = one.gpus.get(other_bus_id or "", 0)
    return direct or min(one.switches, other.switches)
