"""What scripts get: every promised key, null for what is not known, and nothing that JSON does not have."""

from __future__ import annotations

import json
import math

from gputop.model import (
    Driver,
    Gpu,
    GpuFacts,
    GpuProcess,
    Host,
    HostFacts,
    MigInstance,
    NvLink,
    ProcessKey,
    Severity,
    Snapshot,
    Xid,
)
from gputop.outputs.json_lines import as_json
from gputop.sources.simulated import SCENARIOS, simulated_machine

TOP = "taken_at host driver_version gpus processes problems"
GPU = (
    "index uuid name pci_bus_id memory_total_bytes memory_used_bytes memory_reserved_bytes memory_free_bytes "
    "memory_unattributed_bytes utilization_gpu_percent utilization_memory_percent temperature_celsius "
    "temperature_memory_celsius power_watts power_limit_watts fan_percent clock_sm_mhz clock_memory_mhz "
    "performance_state event_reasons pcie_rx_bytes_per_second pcie_tx_bytes_per_second sm_active_percent error "
    "memory_living_bytes memory_dead_bytes memory_shared_bytes"
)
PROCESS = "pid start_time gpu_uuid kind memory_bytes sm_percent user command cpu_percent host_memory_bytes state exists"


def parsed(snapshot: Snapshot) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    text = as_json(snapshot)
    assert text.isascii() and "\n" not in text
    return json.loads(text, parse_constant=refuse)


def test_every_promised_key_is_there_and_null_where_nothing_is_known() -> None:
    unknown = Snapshot(1.5, gpus=(Gpu(0, "slot:0", "GPU 0", 1.5),), processes=(GpuProcess(7, "slot:0", "C"),))
    top = parsed(unknown)
    assert set(TOP.split()) <= set(top)
    (gpu,), (process,) = top["gpus"], top["processes"]
    assert set(GPU.split()) <= set(gpu) and set(PROCESS.split()) <= set(process)
    assert {gpu[key] for key in GPU.split() if key not in ("index", "uuid", "name")} == {None}
    assert {process[key] for key in PROCESS.split() if key not in ("pid", "gpu_uuid", "kind")} == {None}
    assert top["driver_version"] is None and top["problems"] == [] and top["taken_at"] == 1.5


def test_values_are_told_as_promised() -> None:
    gpu = Gpu(
        0,
        "GPU-1",
        "NVIDIA H200",
        2.0,
        fans_percent=(30, None, 45),
        performance_state=0,
        event_reasons_mask=0x4 | 0x8,
        memory_used_bytes=2**40,
        facts=GpuFacts(nvlinks=(NvLink(0, True, 1.5),), topology=(("GPU-2", "NV18"),)),
        mig=(MigInstance("MIG-1", 3, 0, "3g.71gb", memory_used_bytes=5),),
        xids=(Xid(1.0, 79, "GPU has fallen off the bus", Severity.CRITICAL),),
        notes=("persistence off",),
    )
    host = HostFacts(
        ProcessKey(7, 99), 2.0, start_time=1.25, user="ml", command="train é", state="R", cpu_percent=101.5
    )
    on_mig = GpuProcess(7, "GPU-1", "C+G", gpu_instance_id=3, compute_instance_id=0, host=host, exists=True)
    top = parsed(
        Snapshot(2.0, Host("gpu01", load=(1.0, 2.0, 3.0)), Driver("580.159.04"), (gpu,), (on_mig,), ("a problem",))
    )
    (told,), (process,) = top["gpus"], top["processes"]
    assert told["fan_percent"] == 45 and told["performance_state"] == 0
    assert told["event_reasons"] == ["HW slowdown", "power cap"]
    assert told["memory_used_bytes"] == 2**40
    assert told["mig"][0]["mig_uuid"] == "MIG-1" and told["mig"][0]["gpu_instance_id"] == 3
    assert told["facts"]["nvlinks"][0]["rx_bytes_per_second"] == 1.5
    assert told["xids"] == [{"at": 1.0, "code": 79, "words": "GPU has fallen off the bus", "severity": "critical"}]
    assert told["notes"] == ["persistence off"]
    assert (process["mig_uuid"], process["gpu_instance_id"], process["compute_instance_id"]) == ("MIG-1", 3, 0)
    assert (process["start_time"], process["kind"], process["state"], process["exists"]) == (1.25, "C+G", "R", True)
    assert process["command"] == "train é" and process["cpu_percent"] == 101.5
    assert top["driver_version"] == "580.159.04" and top["problems"] == ["a problem"]
    assert top["host"]["name"] == "gpu01" and top["host"]["load"] == [1.0, 2.0, 3.0]


def test_used_is_what_the_living_the_dead_and_nobody_hold() -> None:
    gpu = Gpu(0, "GPU-1", "x", 1.0, memory_used_bytes=100, memory_reserved_bytes=5, memory_unattributed_bytes=30)
    rows = (
        GpuProcess(1, "GPU-1", "C", memory_bytes=50, exists=True),
        GpuProcess(2, "GPU-1", "C", memory_bytes=20, exists=False),
        GpuProcess(3, "GPU-2", "C", memory_bytes=99, exists=True),
    )
    (told,) = parsed(Snapshot(1.0, gpus=(gpu,), processes=rows))["gpus"]
    parts = [told[f"memory_{name}_bytes"] for name in ("living", "dead", "unattributed", "shared")]
    assert parts == [50, 20, 30, 0]


def test_a_process_without_mig_has_no_mig_keys() -> None:
    (process,) = parsed(Snapshot(1.0, processes=(GpuProcess(7, "GPU-1", "C"),)))["processes"]
    assert not [key for key in process if "mig" in key or "instance" in key]


def test_what_is_no_number_is_null() -> None:
    gpu = Gpu(0, "GPU-1", "x", 1.0, power_watts=math.nan, sm_active_percent=math.inf)
    (told,) = parsed(Snapshot(1.0, gpus=(gpu,)))["gpus"]
    assert told["power_watts"] is None and told["sm_active_percent"] is None


def test_no_reasons_are_an_empty_list_unknown_ones_null() -> None:
    known, unknown = Gpu(0, "GPU-1", "x", 1.0, event_reasons_mask=0), Gpu(1, "GPU-2", "x", 1.0)
    first, second = parsed(Snapshot(1.0, gpus=(known, unknown)))["gpus"]
    assert first["event_reasons"] == [] and second["event_reasons"] is None


def test_every_demo_is_json() -> None:
    for name in SCENARIOS:
        if name in ("slow", "hang"):
            continue
        machine = simulated_machine(name, started_before=60.0)
        machine.source.open()
        readings = [machine.source.read(slot) for slot in range(machine.source.count())]
        processes = tuple(process for reading in readings for process in reading.processes)
        top = parsed(Snapshot(1.0, gpus=tuple(reading.gpu for reading in readings), processes=processes))
        assert len(top["gpus"]) == len(readings)
