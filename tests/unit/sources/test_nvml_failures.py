"""Every way the driver fails: in words, for one GPU alone, or for all; and back again."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pynvml
import pytest

from gputop.sources.nvml import NvmlSource, no_gpus, source
from gputop.sources.nvml.driver.errors import NVML_MESSAGES, explain, in_container, nvml_message, source_error
from gputop.sources.source import Reading, SourceError
from tests.driver import GIB, SimulatedDriver
from tests.unit.sources.nvml_source import calls, full, opened


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs that failed are tried again at every reading."""
    monkeypatch.setattr(source, "RETRY_SECONDS", (0.0,))
    monkeypatch.setattr(source, "REOPEN_SECONDS", (0.0,))


@pytest.fixture
def eight(driver: SimulatedDriver) -> SimulatedDriver:
    driver.gpus = 8
    for index in range(8):
        driver.gpu(index).process(1000 + index, memory=GIB)
    return driver


def sweep(source: NvmlSource, count: int = 8) -> list[Reading]:
    return [source.read(slot) for slot in range(count)]


def refused(driver: SimulatedDriver, root: Path = Path("/")) -> SourceError:
    driver.load()
    with pytest.raises(SourceError) as caught:
        NvmlSource(root).open()
    return caught.value


# ------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (1, "reconnecting"), (2, "looking for it again"), (4, "root"), (8, "power cables"),
        (9, "kernel driver is not running"), (11, "IRQ"), (12, "libnvidia-ml.so.1"), (14, "infoROM"),
        (15, "GPU is lost"), (16, "nvidia-smi -r"), (17, "denies access"), (18, "reboot or reload the modules"),
        (19, "in use"), (27, "not ready"), (28, "no GPU"), (29, "trying again"), (999, "unknown error"),
    ],
)  # fmt: skip
def test_every_code_has_words(code: int, says: str) -> None:
    assert says in explain(code, container=False)


CODES = sorted({getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")})


def test_every_code_of_nvml_is_explained_or_keeps_its_number() -> None:
    for code in CODES:
        message = explain(code, "GPU 3")
        assert message.startswith("GPU 3: ") and len(message) > 15
    assert "12345" in explain(12345)


@pytest.mark.parametrize("code", CODES)
def test_nvmls_own_sentence_stands_beside_ours(code: int) -> None:
    """It is what people search the web for, and what nvidia-smi says."""
    assert code in (*NVML_MESSAGES, 999)
    nvml = nvml_message(code)
    assert nvml.lower() in explain(code).lower()
    assert f"(NVML: {nvml}" in str(source_error(code))
    assert f"(Failed to initialize NVML: {nvml}" in str(source_error(code, initializing=True))


def test_nvmls_sentence_is_not_said_twice() -> None:
    assert explain(15).count("GPU is lost") == 1
    assert explain(18).endswith("reboot or reload the modules (NVML: Driver/library version mismatch)")


@pytest.mark.parametrize("code", [4, 9, 12, 17, 999])
def test_in_a_container_the_words_say_what_to_do_there(code: int) -> None:
    assert "container" in explain(code, container=True).removeprefix(explain(code, container=False))


@pytest.mark.parametrize(
    ("file", "content"),
    [(".dockerenv", ""), ("run/.containerenv", ""), ("proc/self/cgroup", "0::/system.slice/docker-1234.scope\n"),
     ("proc/self/cgroup", "1:name=systemd:/kubepods/burstable/pod12\n")],
)  # fmt: skip
def test_a_container_is_recognized(tmp_path: Path, file: str, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("container", raising=False)
    assert not in_container(tmp_path)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(content)
    assert in_container(tmp_path)


# ------------------------------------------------------------------------------------- no driver at all


@pytest.mark.parametrize(
    ("fault", "status", "says"),
    [
        ("init no_library", 3, "libnvidia-ml.so.1"),
        ("init no_driver", 4, "kernel driver is not running"),
        ("init driver_mismatch", 5, "reboot or reload the modules"),
        ("init no_permission", 6, "permission"),
        ("init operating_system", 6, "denies access"),
        ("init unknown", 8, "unknown error"),
    ],
)
def test_why_there_is_no_driver(driver: SimulatedDriver, fault: str, status: int, says: str) -> None:
    driver.fault(fault)
    error = refused(driver)
    assert error.exit_status == status
    assert says in str(error) and "Failed to initialize NVML: " in str(error)


def test_no_library_to_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    with pytest.raises(SourceError) as caught:
        NvmlSource().open()
    assert (caught.value.exit_status, caught.value.transient) == (3, False)


def test_a_mismatch_names_both_versions(driver: SimulatedDriver, tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (root@host)\n"
        "GCC version:  gcc version 13.2.0\n"
    )
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/maps").write_text("7f00-7f01 r-xp 0 08:01 1 /usr/lib/libnvidia-ml.so.580.159.04\n")
    driver.fault("init driver_mismatch")
    words = str(refused(driver, tmp_path))
    assert "kernel module 570.86.15" in words and "library 580.159.04" in words
    assert "restart gputop" not in words


def test_an_upgrade_that_gputop_outlived_says_restart(driver: SimulatedDriver) -> None:
    with opened(driver) as source:
        source.close()
        driver.fault("init driver_mismatch")
        with pytest.raises(SourceError, match="restart gputop") as caught:
            source.open()
    assert caught.value.exit_status == 5


def test_another_package_called_pynvml(monkeypatch: pytest.MonkeyPatch) -> None:
    impostor = types.ModuleType("pynvml")
    impostor.__file__ = "/somewhere/pynvml/__init__.py"
    monkeypatch.setitem(sys.modules, "pynvml", impostor)
    with pytest.raises(SourceError, match="pip uninstall pynvml") as caught:
        NvmlSource().open()
    assert not caught.value.transient
    assert "/somewhere/pynvml" in str(caught.value)


def test_pynvml_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(SourceError, match="pip install nvidia-ml-py"):
        NvmlSource().open()


@pytest.mark.parametrize("error", [pynvml.NVMLLibraryMismatchError("unversioned"), OSError("bad ELF header")])
def test_what_pynvml_raises_beside_its_own_errors(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    with pytest.raises(SourceError, match="are incompatible"):
        NvmlSource().open()


def test_no_gpus_is_a_state_and_has_words(driver: SimulatedDriver) -> None:
    driver.gpus = 0
    with opened(driver) as source:
        assert source.count() == 0
        source.wait_events(0.01)
        driver.gpus = 1
        assert source.count() == 1
        assert source.read(0).gpu.error is None
    assert no_gpus().exit_status == 7 and str(no_gpus()).startswith("No devices were found")


def test_before_open_and_after_close_it_says_so(driver: SimulatedDriver) -> None:
    with opened(driver) as source:
        source.close()
        with pytest.raises(SourceError):
            source.read(0)
        with pytest.raises(SourceError):
            source.count()


# ------------------------------------------------------------------------------------------ one bad GPU


@pytest.mark.parametrize("code", ["lost", "unknown", "operating_system", "insufficient_power", "irq_issue",
                                  "reset_required", "no_permission", "4321"])  # fmt: skip
def test_one_bad_gpu_is_one_row_and_seven_run_on(eight: SimulatedDriver, code: str) -> None:
    """gpustat#81, nvitop#139/#145: the whole tool died, or crashed on a null handle."""
    with opened(eight) as source:
        before = [reading.gpu for reading in sweep(source)]
        with eight.faulty(f"gpu 2 {code}"):
            for _ in range(5):
                readings = sweep(source)
                bad = readings.pop(2)
                assert bad.gpu.error and bad.processes == ()
                assert (bad.gpu.uuid, bad.gpu.name, bad.gpu.pci_bus_id, bad.gpu.index) == (
                    before[2].uuid, before[2].name, before[2].pci_bus_id, 2,
                )  # fmt: skip
                assert (bad.gpu.memory_used_bytes, bad.gpu.temperature_celsius) == (None, None)
                assert all(reading.gpu.error is None and len(reading.processes) == 1 for reading in readings)
                for slot in range(8):
                    source.read_medium(slot)
                    source.read_slow(slot)
        back = sweep(source)[2]
        assert back.gpu.error is None and [process.pid for process in back.processes] == [1002]


def test_a_gpu_that_was_bad_from_the_start_is_its_slot(eight: SimulatedDriver) -> None:
    eight.fault("gpu 0 unknown")
    with opened(eight) as source:
        readings = sweep(source)
        assert (readings[0].gpu.uuid, readings[0].gpu.index) == ("slot:0", 0)
        assert readings[0].gpu.error is not None
        assert [reading.gpu.error for reading in readings[1:]] == [None] * 7
        eight.clear_faults()
        assert source.read(0).gpu.uuid.startswith("GPU-")


def test_a_lost_gpu_is_not_hammered(eight: SimulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "RETRY_SECONDS", (60.0,))
    with opened(eight) as opened_source:
        sweep(opened_source)
        eight.fault("gpu 2 lost")
        sweep(opened_source)
        asked = calls(eight, "nvmlDeviceGetHandleByIndex_v2")
        for _ in range(5):
            assert "lost" in (opened_source.read(2).gpu.error or "")
        assert asked() == 0
        opened_source.read_slow(2)  # tries it again at once
        opened_source.read(2)
        assert asked() == 1


def test_a_gpu_that_answers_nothing_but_its_handle(eight: SimulatedDriver) -> None:
    eight.fault("gpu 5 call nvmlDevice* unknown")
    with opened(eight) as source:
        for _ in range(4):
            readings = sweep(source)
        assert "unknown error" in (readings[5].gpu.error or "")
        assert readings[4].gpu.error is None


def test_a_corrupted_inforom_is_a_note(driver: SimulatedDriver) -> None:
    driver.fault("gpu 0 call nvmlDeviceGetClockInfo corrupted_inforom")
    with opened(driver) as source:
        read = source.read(0).gpu
    assert read.error is None and read.temperature_celsius is not None
    assert any("infoROM" in note for note in read.notes)


# ----------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize(("code", "status"), [("no_driver", 4), ("driver_mismatch", 5), ("uninitialized", 8)])
def test_the_driver_that_goes_is_everybody_s_matter(driver: SimulatedDriver, code: str, status: int) -> None:
    with opened(driver) as source:
        full(source)
        driver.fault(f"call nvml* {code}")
        for ask in (source.read, source.read_medium, source.read_slow):
            with pytest.raises(SourceError) as caught:
                ask(0)
            assert caught.value.exit_status == status
        with pytest.raises(SourceError):
            source.count()
        source.wait_events(0.01)
        source.close()
        driver.clear_faults()
        source.open()
        assert source.count() == 2
        assert source.read(0).gpu.error is None


def test_a_driver_loaded_anew_is_opened_anew(driver: SimulatedDriver) -> None:
    driver.gpu(0).process(101, memory=GIB)
    with opened(driver) as source:
        full(source)
        driver.reload_driver()
        with pytest.raises(SourceError):
            source.read(0)
        source.close()
        source.open()
        source.count()
        assert [process.pid for process in source.read(0).processes] == [101]


@pytest.mark.parametrize("code", ["unknown", "lost"])
def test_when_no_gpu_answers_the_driver_is_given_up(driver: SimulatedDriver, code: str) -> None:
    """nvidia-docker#1730: after `systemctl daemon-reload` a container's driver answers 999 for ever."""
    driver.gpu(0).process(101, memory=GIB)
    with opened(driver) as source:
        sweep(source, 2)
        driver.fault(f"gpu 0 {code}")
        driver.fault(f"gpu 1 {code}")
        for _ in range(2):
            assert all(reading.gpu.error and reading.gpu.name != "GPU 0" for reading in sweep(source, 2))
        with pytest.raises(SourceError) as caught:
            sweep(source, 2)
        assert "no GPU can be read" in str(caught.value) and caught.value.transient
        source.close()
        driver.clear_faults()
        source.open()
        source.count()
        assert [process.pid for process in source.read(0).processes] == [101]


def test_two_lost_gpus_of_eight_do_not_give_the_driver_up(eight: SimulatedDriver) -> None:
    with opened(eight) as source:
        eight.fault("gpu 1 unknown")
        eight.fault("gpu 6 unknown")
        for _ in range(10):
            readings = sweep(source)
        assert [reading.gpu.error is None for reading in readings].count(False) == 2


def test_the_only_gpu_lost_is_opened_anew_ever_more_rarely(
    driver: SimulatedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "REOPEN_SECONDS", (0.0, 60.0))
    driver.gpus = 1
    given_up = 0
    with opened(driver) as opened_source:
        driver.fault("gpu 0 lost")
        for _ in range(30):
            try:
                opened_source.read(0)
            except SourceError:
                given_up += 1
                opened_source.close()
                opened_source.open()
                opened_source.count()
    assert given_up == 1


# ------------------------------------------------------------------------------------------ other counts


def test_a_gpu_more_and_a_gpu_less(driver: SimulatedDriver) -> None:
    with opened(driver) as source:
        uuids = [reading.gpu.uuid for reading in sweep(source, 2)]
        driver.gpus = 3
        assert source.count() == 3
        assert [reading.gpu.uuid for reading in sweep(source, 3)][:2] == uuids
        driver.gpus = 1
        assert source.count() == 1
        assert source.read(0).gpu.uuid == uuids[0]
        assert "no longer lists" in (source.read(2).gpu.error or "")
        source.read_medium(2)
        source.read_slow(2)


def test_a_gpu_that_fell_out_of_the_count_moves_the_others_up(driver: SimulatedDriver) -> None:
    driver.gpus = 3
    with opened(driver) as source:
        uuids = [reading.gpu.uuid for reading in sweep(source, 3)]
        driver.gpu(1).set(absent=1)
        assert source.count() == 2
        assert [reading.gpu.uuid for reading in sweep(source, 2)] == [uuids[0], uuids[2]]


def test_gpus_are_lost_and_found_again_without_end(driver: SimulatedDriver) -> None:
    driver.gpu(0).gpm(True)
    driver.load()
    allocated, freed = calls(driver, "nvmlGpmSampleAlloc"), calls(driver, "nvmlGpmSampleFree")
    with opened(driver) as source:
        for _ in range(20):
            with driver.faulty("gpu 0 lost"):
                assert source.read(0).gpu.error
            assert source.read(0).gpu.error is None
            source.read_medium(0)
    assert allocated() == freed() > 20


# ------------------------------------------------------------------------------------------------- close


def test_close_gives_everything_back(driver: SimulatedDriver) -> None:
    driver.gpu(0).gpm(True).mig(0, gi=1)
    driver.load()
    counts = [
        [calls(driver, name) for name in pair]
        for pair in (("nvmlGpmSampleAlloc", "nvmlGpmSampleFree"), ("nvmlEventSetCreate", "nvmlEventSetFree"),
                     ("nvmlInitWithFlags", "nvmlShutdown"))
    ]  # fmt: skip
    for _ in range(3):
        with opened(driver) as source:
            full(source, 0)
            full(source, 1)
            source.wait_events(0.01)
    for taken, given in counts:
        assert taken() == given() > 0


def test_closing_twice_or_unopened_is_nothing(driver: SimulatedDriver) -> None:
    driver.load()
    source = NvmlSource()
    source.close()
    source.open()
    source.close()
    source.close()


def test_thousands_of_readings_open_no_files(driver: SimulatedDriver) -> None:
    """netdata#21061: descriptors leaked over hours."""
    driver.gpu(0).gpm(True).process(101, memory=GIB, sm=10)
    with opened(driver) as source:
        full(source)
        before = sorted(os.listdir("/proc/self/fd"))
        for turn in range(2000):
            source.read(0)
            if turn % 100 == 0:
                source.read_medium(0)
                source.read_slow(0)
        assert sorted(os.listdir("/proc/self/fd")) == before
