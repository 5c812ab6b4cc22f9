"""A laptop's sleeping GPU is shown asleep and left asleep."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.doctor import OK
from gputop.doctor.driver import look
from gputop.leaks.report import LeakReport
from gputop.model import Snapshot
from gputop.sources.nvml import source, sysfs
from gputop.sources.nvml.query import APP_FIELDS, GPU_FIELDS, Query
from gputop.sources.query_fields import Unanswered
from gputop.why.diagnosis import ObservedTrend, diagnose
from tests.driver import SimulatedDriver
from tests.unit.sources.nvml_source import calls, full, opened


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "SLEEP_CHECK_SECONDS", 0.0)


class Machine:
    """A /sys with PCI devices."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.devices = root / "sys/bus/pci/devices"
        self.devices.mkdir(parents=True)
        (root / "sys/bus/pci/drivers/nvidia").mkdir(parents=True)
        (root / "sys/bus/pci/drivers/vfio-pci").mkdir(parents=True)

    def device(self, address: str, status: str = "active", vendor: str = "0x10de", class_: str = "0x030000",
               driver: str | None = "nvidia") -> None:  # fmt: skip
        folder = self.devices / address
        (folder / "power").mkdir(parents=True, exist_ok=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{class_}\n")
        (folder / "numa_node").write_text("-1\n")
        (folder / "local_cpulist").write_text("0-31,64-95\n")
        (folder / "power/runtime_status").write_text(f"{status}\n")
        if driver and not (folder / "driver").exists():
            (folder / "driver").symlink_to(self.root / "sys/bus/pci/drivers" / driver)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


def test_which_devices_are_nvidia_s_gpus(machine: Machine) -> None:
    machine.device("0000:41:00.0")
    machine.device("0000:01:00.0", class_="0x030200")
    machine.device("0000:01:00.1", class_="0x040300")  # its sound
    machine.device("0000:02:00.0", vendor="0x1002")
    machine.device("0000:03:00.0", driver="vfio-pci")
    machine.device("0000:04:00.0", driver=None)
    assert sysfs.nvidia_gpus(machine.root) == ("0000:01:00.0", "0000:41:00.0")
    assert sysfs.nvidia_gpus(machine.root / "nowhere") == ()


def test_bus_ids_as_nvml_and_as_sysfs_spell_them() -> None:
    assert sysfs.address_of("00000000:C1:00.0") == "0000:c1:00.0"
    assert sysfs.bus_id_of("0000:c1:00.0") == "00000000:C1:00.0"


@pytest.mark.parametrize(("text", "node"), [("1", 1), ("-1", None), ("", None)])
def test_numa_node(machine: Machine, text: str, node: int | None) -> None:
    machine.device("0000:01:00.0")
    (machine.devices / "0000:01:00.0/numa_node").write_text(f"{text}\n")
    assert sysfs.numa_node("0000:01:00.0", machine.root) == node


def test_the_cpus_next_to_a_gpu(driver: SimulatedDriver, machine: Machine) -> None:
    driver.gpus = 1
    machine.device("0000:01:00.0")
    with opened(driver, machine.root) as source:
        facts = full(source).gpu.facts
    assert (facts.cpu_affinity, facts.numa_node) == ("0-31,64-95", None)


def test_a_sleeping_gpu_is_not_opened(driver: SimulatedDriver, machine: Machine) -> None:
    """btop#1831, nvtop#267: getting its handle wakes it, for two seconds and many watts."""
    driver.gpus = 1
    machine.device("0000:01:00.0", "suspended")
    driver.load()
    opens = calls(driver, "nvmlDeviceGetHandleByIndex_v2")
    with opened(driver, machine.root) as source:
        for _ in range(3):
            read = full(source).gpu
            source.wait_events(0.01)
        assert read.asleep and read.error is None
        assert read.pci_bus_id == "00000000:01:00.0"
        assert (read.memory_used_bytes, read.power_watts) == (None, None)
        assert opens() == 0


def test_a_gpu_that_somebody_wakes_is_read(driver: SimulatedDriver, machine: Machine) -> None:
    driver.gpus = 1
    machine.device("0000:01:00.0", "suspended")
    with opened(driver, machine.root) as source:
        assert source.read(0).gpu.asleep
        machine.device("0000:01:00.0", "active")
        awake = source.read(0).gpu
        assert not awake.asleep and awake.temperature_celsius is not None and awake.uuid.startswith("GPU-")


def test_of_two_gpus_only_the_sleeping_one_is_left_alone(driver: SimulatedDriver, machine: Machine) -> None:
    machine.device("0000:01:00.0", "active")
    machine.device("0000:41:00.0", "suspended")
    driver.load()
    opens = calls(driver, "nvmlDeviceGetHandleByIndex_v2")
    with opened(driver, machine.root) as source:
        assert [source.read(slot).gpu.asleep for slot in range(2)] == [False, True]
        assert opens() == 1


def test_a_gpu_that_fell_asleep_after_its_handles_were_released_keeps_its_name(
    driver: SimulatedDriver, machine: Machine
) -> None:
    driver.gpus = 1
    machine.device("0000:01:00.0", "active")
    with opened(driver, machine.root) as source:
        awake = source.read(0).gpu
        source.close()
        machine.device("0000:01:00.0", "suspended")
        source.open()
        source.count()
        asleep = source.read(0).gpu
        assert asleep.asleep and (asleep.uuid, asleep.name) == (awake.uuid, awake.name)


def test_a_container_with_some_of_the_gpus_opens_what_it_has(driver: SimulatedDriver, machine: Machine) -> None:
    """sysfs shows all the host's GPUs, the driver counts one: which one cannot be told without opening it."""
    driver.gpus = 1
    machine.device("0000:01:00.0", "active")
    machine.device("0000:41:00.0", "suspended")
    with opened(driver, machine.root) as source:
        assert not source.read(0).gpu.asleep


def test_query_and_doctor_let_it_sleep(driver: SimulatedDriver, machine: Machine) -> None:
    """`gputop query` and `gputop doctor` woke it, while everything else lets it sleep."""
    machine.device("0000:01:00.0", status="suspended")
    machine.device("0000:02:00.0")
    driver.load()
    opened_before = calls(driver, "nvmlDeviceGetHandleByIndex_v2")
    query = Query(machine.root)
    query.select(())
    fields = [field for field in GPU_FIELDS if field.name in ("index", "name", "memory.used")]
    asleep, awake = query.gpu_rows(fields)
    by_name = dict(zip([field.name for field in fields], asleep, strict=True))
    assert by_name["index"] == 0
    for name in ("name", "memory.used"):
        answer = by_name[name]
        assert isinstance(answer, Unanswered) and answer.message == "GPU is asleep"
    assert not any(isinstance(answer, Unanswered) for answer in awake) and query.failure == 0
    processes = query.app_rows([field for field in APP_FIELDS if field.name == "pid"])
    assert [row[0].message for row in processes if isinstance(row[0], Unanswered)] == ["GPU is asleep"]
    query.close()
    assert opened_before() == 1
    said = {check.topic: (check.status, check.message) for check in look(machine.root)}
    assert said["GPU 0"][0] == OK and "left asleep" in said["GPU 0"][1] and "processes" not in said


def test_why_says_that_it_is_asleep(driver: SimulatedDriver, machine: Machine) -> None:
    """It said that the driver does not say."""
    machine.device("0000:01:00.0", status="suspended")
    machine.device("0000:02:00.0")
    with opened(driver, machine.root) as source:
        gpu = source.read(0).gpu
    (whose, *_) = diagnose(Snapshot(gpu.read_at, gpus=(gpu,)), gpu, LeakReport(0.0), ObservedTrend())
    said = " ".join(whose.lines)
    assert "the GPU is asleep, and is not woken" in said and "no process is listed" not in said
