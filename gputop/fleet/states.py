"""What free, held but idle and broken mean. Every source uses these, so that two sources agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gputop.fleet.model import FleetGpu, GpuState, GpuUsage, HostState
from gputop.model import Gpu, Severity
from gputop.units import GIB, MIB

#: Less memory in use than this and nobody has it: a CUDA context alone takes more, a driver's own residue less.
FREE_BELOW_BYTES: Final = 256 * MIB
#: A GPU somebody has is idle when it was not above this for IDLE_SECONDS.
IDLE_UTILIZATION_PERCENT: Final = 1
IDLE_SECONDS: Final = 600.0
#: Power so low at full utilization means that kernels wait for something: a hung collective, as a rule
#: (huggingface/accelerate#3104, microsoft/DeepSpeed#6524: 100 % at 115 W of 700 W).
HUNG_POWER_SHARE: Final = 0.25

#: Xids after which a GPU does no work until it is reset or the host is rebooted (NVIDIA, "XID Errors").
FATAL_XIDS: Final = {
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    64: "row remapping failed",
    74: "NVLink error",
    79: "fallen off the bus",
    95: "uncontained memory error",
    119: "GSP timeout",
    120: "GSP error",
    140: "unrecovered ECC error",
}
#: What an application may do to itself; the GPU goes on.
APPLICATION_XIDS: Final = {
    13: "graphics engine exception",
    31: "illegal memory access by a program",
    43: "a program's channel was stopped",
    45: "a program was ended",
    63: "row remapping recorded",
    92: "many corrected ECC errors",
    94: "contained memory error",
}


def problem_of(gpu: Gpu, xid: int | None = None) -> tuple[str | None, bool]:
    """The worst thing about *gpu* in words, and whether it is broken. *xid*: the last one, where only its number is
    known."""
    facts = gpu.facts
    codes = [one.code for one in gpu.xids] if xid is None else [xid] if xid else []
    if gpu.error:
        return gpu.error, True
    for code in codes:
        if code in FATAL_XIDS:
            return f"Xid {code}: {FATAL_XIDS[code]}", True
    if facts.rows_remap_failed:
        return "row remapping failed: the GPU must be replaced", True
    if facts.recovery_action:
        return f"the driver asks to {facts.recovery_action}", True
    for reason in gpu.event_reasons or ():
        if reason.severity is Severity.CRITICAL:
            return reason.label, False
    if facts.rows_remap_pending:
        return "row remapping pending: reset it", False
    if (
        gpu.utilization_gpu_percent is not None
        and gpu.utilization_gpu_percent >= 99
        and gpu.power_watts is not None
        and gpu.power_limit_watts
        and gpu.power_watts < HUNG_POWER_SHARE * gpu.power_limit_watts
        and (gpu.memory_used_bytes or 0) > GIB
    ):
        return f"{gpu.utilization_gpu_percent:.0f}% at {gpu.power_watts:.0f} W: may hang", False
    if codes:
        return f"Xid {codes[-1]}: {APPLICATION_XIDS.get(codes[-1], 'see NVIDIA, XID Errors')}", False
    return None, False


def fleet_gpu(
    gpu: Gpu,
    usages: Sequence[GpuUsage] = (),
    idle: bool | None = None,
    xid: int | None = None,
    host: HostState = HostState.UP,
) -> FleetGpu:
    """*gpu* with its state. *idle*: whether it was used by nobody during the last IDLE_SECONDS, None where that is not
    known."""
    if host is HostState.UNREACHABLE:
        return FleetGpu(gpu, GpuState.UNREACHABLE, tuple(usages))
    problem, broken = problem_of(gpu, xid)
    return FleetGpu(gpu, GpuState.BROKEN if broken else _state(gpu, usages, idle), tuple(usages), problem)


def _state(gpu: Gpu, usages: Sequence[GpuUsage], idle: bool | None) -> GpuState:
    used, busy = gpu.memory_used_bytes, gpu.utilization_gpu_percent
    if usages or (used is not None and used >= FREE_BELOW_BYTES):
        return GpuState.IDLE_HELD if idle else GpuState.BUSY
    if busy is not None and busy > IDLE_UTILIZATION_PERCENT:
        return GpuState.BUSY
    return GpuState.UNKNOWN if used is None else GpuState.FREE
