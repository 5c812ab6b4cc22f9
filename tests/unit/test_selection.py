"""Which GPU somebody means."""

from __future__ import annotations

import pytest

from gputop.model import Gpu, GpuProcess, Snapshot
from gputop.model.selection import find, only

GPUS = tuple(
    Gpu(index, uuid, "NVIDIA H200", 0.0, pci_bus_id=bus)
    for index, uuid, bus in (
        (0, "GPU-d95bafc8-f2a4-d27b-dcf4-bb99f4bea973", "00000000:65:00.0"),
        (1, "GPU-12345678-aaaa-d27b-dcf4-bb99f4bea973", "00000000:CA:00.0"),
        (2, "GPU-12345678-bbbb-d27b-dcf4-bb99f4bea973", "00000001:65:00.0"),
        (3, "slot:3", None),
    )
)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("0", 0),
        (" 2 ", 2),
        ("3", 3),
        ("4", None),
        ("-1", None),
        ("GPU-d95bafc8-f2a4-d27b-dcf4-bb99f4bea973", 0),
        ("gpu-D95BAFC8", 0),
        ("d95bafc8-f2", 0),
        ("GPU-d95b", None),  # too short
        ("GPU-12345678", None),  # two of them
        ("12345678", None),  # eight digits are a UUID, not an index
        ("GPU-12345678-b", 2),
        ("00000000:65:00.0", 0),
        ("0000:ca:00.0", 1),  # as sysfs writes it
        ("ca:00.0", 1),
        ("1:65:00.0", 2),
        ("65:00", 0),
        ("65:00.1", None),
        (":", None),
        ("", None),
        ("²", None),
        ("a:b:c:d", None),
    ],
)
def test_a_gpu_is_found_by_index_uuid_or_pci_id(name: str, index: int | None) -> None:
    found = find(GPUS, name)
    assert (found.index if found else None) == index


def test_only_the_named_gpus_and_their_processes_are_left() -> None:
    processes = tuple(GpuProcess(10 + gpu.index, gpu.uuid, "C") for gpu in GPUS)
    snapshot = Snapshot(1.0, gpus=GPUS, processes=processes)
    selected, unknown = only(snapshot, ("2", "9", "ca:00.0"))
    assert [gpu.index for gpu in selected.gpus] == [1, 2]
    assert [process.pid for process in selected.processes] == [11, 12]
    assert unknown == ("9",)


def test_no_names_mean_all() -> None:
    snapshot = Snapshot(1.0, gpus=GPUS)
    assert only(snapshot, ()) == (snapshot, ())
