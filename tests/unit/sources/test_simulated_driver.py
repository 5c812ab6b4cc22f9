"""The simulated driver answers the real pynvml, nvitop and gpustat what a scenario says."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from tests import driver as simulated
from tests.driver import GIB, LOST, MIB, NO_PERMISSION, NOT_AVAILABLE, NOT_SUPPORTED, UNKNOWN, SimulatedDriver

DEAD = 4_100_000  # above the kernel's pid_max


@pytest.fixture
def nvml(driver: SimulatedDriver) -> SimulatedDriver:
    driver.load()
    pynvml.nvmlInit()
    return driver


def handle(index: int) -> object:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def error_of(call: Callable[..., object], *args: object) -> int:
    """The NVML error that the call ends in, 0 when it does not."""
    try:
        call(*args)
    except pynvml.NVMLError as e:
        return int(e.value)
    return 0


@contextlib.contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command or ("sleep", "60")) as child:
        try:
            yield child
        finally:
            child.kill()


def eventually(condition: Callable[[], bool], within: float = 10) -> bool:
    until = time.monotonic() + within
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


# ------------------------------------------------------------------------------- values


def test_scripted_values_come_out_of_pynvml_exactly(nvml: SimulatedDriver) -> None:
    nvml.set(driver="999.01", cuda=12040)
    nvml.gpu(0).set(
        name="NVIDIA H200", uuid="GPU-11111111-2222-3333-4444-555555555555", memory_total=141 * GIB,
        memory_used=12 * GIB + 1, memory_reserved=615 * MIB, utilization_gpu=97, utilization_memory=33,
        temperature=61, temperature_memory=53, power_watts=694.25, power_limit_watts=700, clock_sm=1665,
        clock_max_sm=1980, fan_percent=[41, 55, 0], performance_state=2, event_reasons=0x44,
        pcie_link_gen=4, pcie_rx_rate=2 * GIB, pcie_tx_rate=1 * GIB, ecc_uncorrected_aggregate=7,
    )  # fmt: skip
    gpu = handle(0)
    assert pynvml.nvmlSystemGetDriverVersion() == "999.01"
    assert pynvml.nvmlSystemGetCudaDriverVersion() == 12040
    assert pynvml.nvmlDeviceGetName(gpu) == "NVIDIA H200"
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID("GPU-11111111-2222-3333-4444-555555555555")) == 0
    v1, v2 = pynvml.nvmlDeviceGetMemoryInfo(gpu), pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2)
    assert (v2.total, v2.used, v2.reserved) == (141 * GIB, 12 * GIB + 1, 615 * MIB)
    assert v1.used == v2.used + v2.reserved and v1.free == v2.free == v2.total - v2.used - v2.reserved
    rates = pynvml.nvmlDeviceGetUtilizationRates(gpu)
    assert (rates.gpu, rates.memory) == (97, 33)
    assert pynvml.nvmlDeviceGetTemperature(gpu, 0) == pynvml.nvmlDeviceGetTemperatureV(gpu, 0) == 61
    assert pynvml.nvmlDeviceGetPowerUsage(gpu) == 694_250
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu) == 700_000
    assert pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM) == 1665
    assert pynvml.nvmlDeviceGetMaxClockInfo(gpu, pynvml.NVML_CLOCK_SM) == 1980
    fans = range(pynvml.nvmlDeviceGetNumFans(gpu))
    assert [pynvml.nvmlDeviceGetFanSpeed_v2(gpu, i) for i in fans] == [41, 55, 0]
    assert pynvml.nvmlDeviceGetPerformanceState(gpu) == 2
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 0x44
    assert pynvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu) == 4
    throughput = [pynvml.nvmlDeviceGetPcieThroughput(gpu, which) for which in (0, 1)]  # TX, RX in KB/s
    assert throughput == [1 * GIB // 1024, 2 * GIB // 1024]
    assert pynvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 1) == 7
    memory_temperature, power = pynvml.nvmlDeviceGetFieldValues(gpu, [82, 186])
    assert (memory_temperature.value.uiVal, power.value.uiVal) == (53, 694_250)


def test_any_value_can_be_an_error_instead(nvml: SimulatedDriver) -> None:
    nvml.gpu(0).set(temperature=UNKNOWN, name=NO_PERMISSION, memory_total=NOT_SUPPORTED, power_watts=LOST)
    nvml.gpu(0).set(temperature_memory=NOT_SUPPORTED, mig_mode=NOT_SUPPORTED, fans=0)
    gpu = handle(0)
    assert error_of(pynvml.nvmlDeviceGetTemperature, gpu, 0) == pynvml.NVML_ERROR_UNKNOWN
    assert error_of(pynvml.nvmlDeviceGetName, gpu) == pynvml.NVML_ERROR_NO_PERMISSION
    assert error_of(pynvml.nvmlDeviceGetMemoryInfo, gpu) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert error_of(pynvml.nvmlDeviceGetPowerUsage, gpu) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert error_of(pynvml.nvmlDeviceGetMigMode, gpu) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert error_of(pynvml.nvmlDeviceGetFanSpeed, gpu) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetFieldValues(gpu, [82])[0].nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetTemperature(handle(1), 0) > 0  # the other GPU is as it was


def test_hostile_names_arrive_byte_for_byte(nvml: SimulatedDriver) -> None:
    name = " \x1b[31m[b]rot[/b] # \\x41 ü\u202e\n"
    nvml.gpu(0).set(name=name)
    assert pynvml.nvmlDeviceGetName(handle(0)) == name
    nvml.gpu(0).set(name=b"bad \xff utf-8".decode(errors="surrogateescape"))
    with pytest.raises(UnicodeDecodeError):  # as on WSL's 555.85
        pynvml.nvmlDeviceGetName(handle(0))


@pytest.mark.parametrize("version", [0x02000028, 2])
def test_memory_info_v2_takes_the_version_pynvml_sends_and_nvtop_sends(nvml: SimulatedDriver, version: int) -> None:
    memory = pynvml.c_nvmlMemory_v2_t()
    memory.version = version
    assert pynvml.nvmlLib.nvmlDeviceGetMemoryInfo_v2(handle(0), ctypes.byref(memory)) == 0
    assert memory.total > 0
    memory.version = 0
    assert pynvml.nvmlLib.nvmlDeviceGetMemoryInfo_v2(handle(0), ctypes.byref(memory)) == 25


def test_unscripted_memory_is_what_the_processes_hold(nvml: SimulatedDriver) -> None:
    def used() -> int:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle(0), version=pynvml.nvmlMemory_v2).used)

    before = used()
    nvml.gpu(0).process(os.getpid(), memory=5 * GIB, kind="C+G").process(DEAD, memory=NOT_AVAILABLE)
    assert used() == before + 5 * GIB
    nvml.gpu(0).no_process(os.getpid())
    assert used() == before


def test_unscripted_values_move(nvml: SimulatedDriver) -> None:
    seen = set()
    assert eventually(lambda: seen.add(pynvml.nvmlDeviceGetPowerUsage(handle(0))) or len(seen) > 2)


# ----------------------------------------------------------------------------- processes


def raw_list(stride: int) -> list[tuple[int, int]]:
    """The v3 list read with entries of `stride` bytes: [(pid, memory)]."""
    count, buffer = ctypes.c_uint(8), (ctypes.c_ubyte * 512)()
    assert pynvml.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v3(handle(0), ctypes.byref(count), buffer) == 0
    data = bytes(buffer)
    assert not any(data[count.value * stride :])
    entries = [data[i * stride : (i + 1) * stride] for i in range(count.value)]
    return [(int.from_bytes(e[:4], "little"), int.from_bytes(e[8:16], "little")) for e in entries]


@pytest.mark.parametrize("stride", [16, 24, 32])
def test_process_lists_of_every_stride_a_driver_has_had(nvml: SimulatedDriver, stride: int) -> None:
    nvml.set(process_stride=stride)
    wanted = [(1000 + i, (i + 1) * GIB) for i in range(3)]
    for pid, memory in wanted:
        nvml.gpu(0).process(pid, memory=memory)
    assert raw_list(stride) == wanted


def test_a_process_is_in_the_lists_of_its_kinds(nvml: SimulatedDriver) -> None:
    nvml.gpu(0).process(11, kind="C").process(12, kind="G").process(13, kind="C+G").process(14, kind="M")
    gpu = handle(0)
    lists = (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
    )
    assert [[p.pid for p in each(gpu)] for each in lists] == [[11, 13], [12, 13], [14]]


def test_memory_of_a_process_may_be_unknown(nvml: SimulatedDriver) -> None:
    nvml.gpu(0).process(11, memory=NOT_AVAILABLE)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle(0))[0].usedGpuMemory is None


def test_a_process_listed_while_alive_leaves_with_its_pid_even_as_a_zombie(nvml: SimulatedDriver) -> None:
    with process() as child:
        nvml.gpu(0).process(child.pid, memory=GIB, while_alive=True).process(DEAD, memory=GIB)
        listed = lambda: [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle(0))]  # noqa: E731
        assert listed() == [child.pid, DEAD]
        child.kill()  # nobody has reaped it yet
        assert eventually(lambda: listed() == [DEAD])


def test_memory_stays_listed_until_the_last_holder_of_the_device_file_is_gone(
    nvml: SimulatedDriver, tmp_path: Path
) -> None:
    device = tmp_path / "nvidia0"
    device.touch()

    def used() -> int:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle(0), version=pynvml.nvmlMemory_v2).used)

    before = used()
    # A parent that opens the "device", forks a worker that inherits it, and is killed.
    with process("sh", "-c", f"exec 3<{device}; sleep 60 & echo $! >{tmp_path}/worker; wait") as parent:
        nvml.gpu(0).process(parent.pid, memory=4 * GIB, holds=device)
        assert eventually(lambda: (tmp_path / "worker").exists() and used() == before + 4 * GIB)
        assert eventually(lambda: bool((tmp_path / "worker").read_text()))
    worker = int((tmp_path / "worker").read_text())
    time.sleep(0.3)
    assert used() == before + 4 * GIB, "the worker still holds it"
    os.kill(worker, 9)
    assert eventually(lambda: used() == before)


def test_per_process_utilization_as_the_driver_gives_it(nvml: SimulatedDriver) -> None:
    gpu = handle(0)
    nvml.gpu(0).process(11)
    count = ctypes.c_uint(0)
    size = pynvml.nvmlLib.nvmlDeviceGetProcessUtilization
    zero = ctypes.c_ulonglong(0)
    assert size(gpu, None, ctypes.byref(count), zero) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert count.value == 100  # with nothing running: go-nvml#11
    assert error_of(pynvml.nvmlDeviceGetProcessUtilization, gpu, 0) == pynvml.NVML_ERROR_NOT_FOUND  # idle
    nvml.gpu(0).process(11, sm=50, mem=10, dec=3)
    (sample,) = pynvml.nvmlDeviceGetProcessUtilization(gpu, 0)
    assert (sample.pid, sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil) == (11, 50, 10, 0, 3)
    assert error_of(pynvml.nvmlDeviceGetProcessUtilization, gpu, sample.timeStamp + 10**9) == 6  # nothing newer


def test_garbage_utilization_samples_are_given_out_as_they_are(nvml: SimulatedDriver) -> None:
    nvml.gpu(0).sample(pid=50554, sm=37100, enc=50583, timestamp=2**63).sample(repeat=94)
    samples = pynvml.nvmlDeviceGetProcessUtilization(handle(0), 0)
    assert [(s.pid, s.smUtil) for s in samples] == [(50554, 37100)] + [(0, 0)] * 94


def test_a_thousand_processes(nvml: SimulatedDriver) -> None:
    with nvml.together():
        for i in range(1000):
            nvml.gpu(1).process(10_000 + i, memory=i * MIB)
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses(handle(1))
    assert [(p.pid, p.usedGpuMemory) for p in listed] == [(10_000 + i, i * MIB) for i in range(1000)]


# -------------------------------------------------------------------------------- faults


def test_faults_come_and_go_while_a_program_runs(nvml: SimulatedDriver) -> None:
    one, two = handle(0), handle(1)
    with nvml.faulty("gpu 1 lost"):
        assert error_of(pynvml.nvmlDeviceGetName, two) == pynvml.NVML_ERROR_GPU_IS_LOST
        assert error_of(pynvml.nvmlDeviceGetHandleByIndex, 1) == pynvml.NVML_ERROR_GPU_IS_LOST
        assert error_of(pynvml.nvmlDeviceGetName, one) == 0
        assert pynvml.nvmlDeviceGetCount() == 2
    assert error_of(pynvml.nvmlDeviceGetName, two) == 0
    with nvml.faulty("call nvmlDeviceGet*Processes* no_permission", "gpu 0 call nvmlDeviceGetName reset_required"):
        assert error_of(pynvml.nvmlDeviceGetComputeRunningProcesses, two) == pynvml.NVML_ERROR_NO_PERMISSION
        assert error_of(pynvml.nvmlDeviceGetName, one) == pynvml.NVML_ERROR_RESET_REQUIRED
        assert error_of(pynvml.nvmlDeviceGetName, two) == 0
    with nvml.faulty("call field:82 unknown"):
        assert [f.nvmlReturn for f in pynvml.nvmlDeviceGetFieldValues(one, [82, 186])] == [pynvml.NVML_ERROR_UNKNOWN, 0]
    with nvml.faulty("call nvmlDeviceGetName insufficient_size times 2"):
        assert [error_of(pynvml.nvmlDeviceGetName, one) for _ in range(4)] == [7, 7, 0, 0]


@pytest.mark.parametrize(
    ("fault", "code"), [("driver_mismatch", 18), ("no_driver", 9), ("no_library", 12), ("unknown", 999)]
)
def test_init_fails_in_every_way_it_fails_in_the_field(driver: SimulatedDriver, fault: str, code: int) -> None:
    driver.load()
    with driver.faulty(f"init {fault}"):
        assert error_of(pynvml.nvmlInit) == code
    assert error_of(pynvml.nvmlInit) == 0


def test_a_driver_loaded_anew_wants_to_be_initialized_anew(nvml: SimulatedDriver) -> None:
    gpu = handle(0)
    nvml.reload_driver()
    assert error_of(pynvml.nvmlDeviceGetName, gpu) == pynvml.NVML_ERROR_UNINITIALIZED
    pynvml.nvmlInit()
    assert error_of(pynvml.nvmlDeviceGetName, handle(0)) == 0


def test_a_hung_gpu_hangs_its_callers_only_and_lets_them_go(nvml: SimulatedDriver) -> None:
    one, two = handle(0), handle(1)
    nvml.fault("gpu 1 hang")
    caller = threading.Thread(target=error_of, args=(pynvml.nvmlDeviceGetName, two), daemon=True)
    caller.start()
    assert error_of(pynvml.nvmlDeviceGetName, one) == 0
    caller.join(0.3)
    assert caller.is_alive()
    nvml.clear_faults()
    caller.join(10)
    assert not caller.is_alive()


def test_a_slow_call_is_slow(nvml: SimulatedDriver) -> None:
    gpu = handle(0)
    with nvml.faulty("gpu 0 call nvmlDeviceGetName delay_ms 200"):
        start = time.monotonic()
        assert error_of(pynvml.nvmlDeviceGetName, gpu) == 0
        assert time.monotonic() - start >= 0.2


def test_many_threads_read_while_the_scenario_changes_all_the_time(nvml: SimulatedDriver) -> None:
    done, odd = threading.Event(), []

    def read(gpu: object) -> None:
        while not done.is_set():
            processes = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
            if any(p.usedGpuMemory != p.pid * MIB for p in processes) or not pynvml.nvmlDeviceGetName(gpu):
                odd.append(processes)

    readers = [threading.Thread(target=read, args=(handle(i % 2),), daemon=True) for i in range(4)]
    for reader in readers:
        reader.start()
    for i in range(300):
        nvml.gpu(i % 2).process(1000 + i % 50, memory=(1000 + i % 50) * MIB).set(name=f"GPU {i}")
    done.set()
    for reader in readers:
        reader.join(10)
    assert not odd


def test_gpus_leave_and_come_back(nvml: SimulatedDriver) -> None:
    uuids = lambda: [pynvml.nvmlDeviceGetUUID(handle(i)) for i in range(pynvml.nvmlDeviceGetCount())]  # noqa: E731
    first, second = uuids()
    gone = handle(0)
    nvml.gpu(0).set(absent=1)
    assert uuids() == [second]  # the others move up
    assert error_of(pynvml.nvmlDeviceGetName, gone) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert pynvml.nvmlDeviceGetIndex(handle(0)) == 0
    nvml.gpu(0).set(absent=None)
    assert uuids() == [first, second]
    for count in (0, 64, 2):
        nvml.gpus = count
        assert len(set(uuids())) == count


@pytest.mark.parametrize("missing", ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetTemperatureV"])
def test_a_library_without_a_symbol_as_old_drivers_are(tmp_path: Path, driver: SimulatedDriver, missing: str) -> None:
    with SimulatedDriver(tmp_path / "old", missing_symbols=[missing]) as old:
        loaded = old.load()
        assert not hasattr(loaded, missing)
        pynvml.nvmlInit()
        assert error_of(pynvml._nvmlGetFunctionPointer, missing) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        assert pynvml.nvmlDeviceGetName(handle(0))
    driver.load()
    assert pynvml._nvmlGetFunctionPointer(missing)  # and a complete one after it, in the same process


def test_without_a_driver_loaded_the_process_has_none(driver: SimulatedDriver) -> None:
    driver.load()
    pynvml.nvmlInit()
    driver.unload()
    assert error_of(pynvml.nvmlInit) == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND


def test_ten_thousand_calls_and_hundreds_of_scenarios_leak_nothing(nvml: SimulatedDriver) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def work(rounds: int) -> None:
        for i in range(rounds):
            nvml.gpu(0).set(memory_used=i * MIB)
            for _ in range(20):
                pynvml.nvmlDeviceGetMemoryInfo(handle(0))
        time.sleep(0.6)  # replaced scenarios are freed after half a second

    work(150)
    work(150)
    files, memory = len(os.listdir("/proc/self/fd")), resident()
    for _ in range(4):
        work(125)
    assert len(os.listdir("/proc/self/fd")) == files
    assert resident() - memory < 2 * MIB


# ----------------------------------------------------------------------- MIG, events, GPM


def test_mig_instances(nvml: SimulatedDriver) -> None:
    parent = handle(0)
    assert pynvml.nvmlDeviceGetMigMode(parent) == [0, 0]
    nvml.gpu(0).set(name="NVIDIA H200")
    nvml.gpu(0).mig(0, profile="3g.71gb", gi=1, memory_total=71 * GIB, uuid="MIG-aaaa")
    nvml.gpu(0).mig(2, profile="1g.18gb", gi=9, ci=0, memory_total=18 * GIB, memory_used=GIB)
    nvml.gpu(0).process(11, memory=4 * GIB, gi=1, ci=0).process(12, memory=GIB, gi=9, ci=0)
    assert pynvml.nvmlDeviceGetMigMode(parent) == [1, 1]
    first = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 0)
    assert error_of(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, 1) == pynvml.NVML_ERROR_NOT_FOUND  # a gap
    third = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 2)
    assert pynvml.nvmlDeviceGetName(first) == "NVIDIA H200 MIG 3g.71gb"
    assert pynvml.nvmlDeviceGetUUID(first) == "MIG-aaaa"
    assert [pynvml.nvmlDeviceGetGpuInstanceId(i) for i in (first, third)] == [1, 9]
    memory = [pynvml.nvmlDeviceGetMemoryInfo(i) for i in (first, third)]
    assert [(m.total, m.used) for m in memory] == [(71 * GIB, 4 * GIB), (18 * GIB, GIB)]
    assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(third)] == [12]
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses(parent)
    assert [(p.pid, p.gpuInstanceId) for p in listed] == [(11, 1), (12, 9)]
    assert error_of(pynvml.nvmlDeviceGetUtilizationRates, parent) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert error_of(pynvml.nvmlDeviceGetUtilizationRates, first) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert error_of(pynvml.nvmlDeviceGetProcessUtilization, parent, 0) == pynvml.NVML_ERROR_NOT_SUPPORTED
    nvml.gpu(0).no_mig(2)
    assert error_of(pynvml.nvmlDeviceGetName, third) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_an_xid_is_delivered_once_to_who_registered_for_it(nvml: SimulatedDriver) -> None:
    nvml.xid(gpu=1, code=13)  # before the set: the driver keeps no history
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(handle(1), pynvml.nvmlEventTypeXidCriticalError, events)
    assert error_of(pynvml.nvmlEventSetWait_v2, events, 10) == pynvml.NVML_ERROR_TIMEOUT
    nvml.xid(gpu=0, code=62)  # not registered
    nvml.xid(gpu=1, code=31)
    nvml.xid(gpu=1, code=43)
    seen = [pynvml.nvmlEventSetWait_v2(events, 5000) for _ in range(2)]
    assert [(e.eventType, e.eventData) for e in seen] == [(8, 31), (8, 43)]
    assert pynvml.nvmlDeviceGetIndex(seen[0].device) == 1
    assert error_of(pynvml.nvmlEventSetWait_v2, events, 10) == pynvml.NVML_ERROR_TIMEOUT
    with nvml.faulty("gpu 1 lost"):
        assert error_of(pynvml.nvmlEventSetWait_v2, events, 5000) == pynvml.NVML_ERROR_GPU_IS_LOST
    pynvml.nvmlEventSetFree(events)


def gpm(gpu: object, metrics: list[int], gi: int | None = None) -> list[tuple[int, float]]:
    samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
    for sample in samples:
        if gi is None:
            pynvml.nvmlGpmSampleGet(gpu, sample)
        else:
            pynvml.nvmlGpmMigSampleGet(gpu, gi, sample)
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(metrics)
    request.sample1, request.sample2 = samples
    for i, metric in enumerate(metrics):
        request.metrics[i].metricId = metric
    pynvml.nvmlGpmMetricsGet(request)
    for sample in samples:
        pynvml.nvmlGpmSampleFree(sample)
    return [(request.metrics[i].nvmlReturn, request.metrics[i].value) for i in range(len(metrics))]


def test_gpm_metrics(nvml: SimulatedDriver) -> None:
    gpu = handle(0)
    assert not pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice
    nvml.gpu(0).gpm({2: 92.5, 3: 26, 5: 58, 10: 32.25, 60: NOT_SUPPORTED}).set(pcie_rx_rate=76 * MIB)
    assert pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice
    values = gpm(gpu, [2, 3, 5, 10, 21, 60])
    assert values[:5] == [(0, 92.5), (0, 26), (0, 58), (0, 32.25), (0, 76)]
    assert values[5][0] == pynvml.NVML_ERROR_NOT_SUPPORTED
    nvml.gpu(0).mig(0, gi=7).gpm({2: 41}, gi=7)
    assert gpm(gpu, [2], gi=7) == [(0, 41)]
    nvml.gpu(0).gpm(False)
    assert not pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice


# ------------------------------------------------------------------------------ counters


def field(index: int, name: int, scope: int = 0) -> object:
    return pynvml.nvmlDeviceGetFieldValues(handle(index), [(name, scope)])[0]


def test_pcie_counters_are_of_32_or_64_bits_or_not_there(nvml: SimulatedDriver) -> None:
    nvml.gpu(0).set(pcie_tx_rate=10 * GIB, pcie_counter_bits=64)
    before = field(0, 197)
    time.sleep(0.1)
    after = field(0, 197)
    assert before.valueType == 3
    assert after.value.ullVal - before.value.ullVal >= 10 * GIB // 10
    nvml.gpu(0).set(pcie_counter_bits=32)
    assert field(0, 197).valueType == 1 and field(0, 197).value.ullVal < 2**32
    nvml.gpu(0).set(pcie_counter_bits=0)
    assert field(0, 198).nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    nvml.gpu(0).field(198, 2**63 - 14)  # a blank sentinel of DCGM
    assert field(0, 198).value.ullVal == 2**63 - 14


def test_nvlink_counters_by_link_and_in_all(nvml: SimulatedDriver) -> None:
    every_link = 0xFFFFFFFF
    assert field(0, 91).value.uiVal == 0 and field(0, 138, every_link).nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    nvml.gpu(0).set(nvlink_links=4, nvlink_active=0b1011, nvlink_tx_rate=3 * GIB, nvlink_rx_rate=0)
    # counters go on from wherever this process's earlier scenarios left them
    sent, received = (field(0, id_, every_link).value.ullVal for id_ in (138, 139))
    time.sleep(0.1)
    assert field(0, 91).value.uiVal == 4
    assert field(0, 138, every_link).value.ullVal - sent >= 3 * GIB // 10 // 1024  # KiB
    assert field(0, 138, 0).value.ullVal < field(0, 138, every_link).value.ullVal
    assert field(0, 139, every_link).value.ullVal == received
    assert field(0, 138, 2).nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED  # an inactive link
    assert [pynvml.nvmlDeviceGetNvLinkState(handle(0), i) for i in range(4)] == [1, 1, 0, 1]


# --------------------------------------------------------------------- other people's tools


def test_unmodified_nvitop_and_gpustat_print_the_scripted_memory_and_pids(driver: SimulatedDriver) -> None:
    with process() as child:
        driver.gpu(0).set(memory_total=64 * GIB, memory_used=12_345 * MIB, memory_reserved=0)
        driver.gpu(0).process(child.pid, memory=5_432 * MIB, sm=50).process(DEAD, memory=6_543 * MIB)
        tools = Path(sys.executable).parent
        out = {
            command[0]: subprocess.run(
                [tools / command[0], *command[1:]], env=driver.env, capture_output=True, text=True, timeout=50
            ).stdout
            for command in (["nvitop", "-1"], ["gpustat", "--show-pid", "--no-color"])
        }
        assert "12345MiB / 64.00GiB" in out["nvitop"]
        assert str(child.pid) in out["nvitop"] and "5432MiB" in out["nvitop"]
        assert str(DEAD) in out["nvitop"] and "No Such Process" in out["nvitop"]
        assert "12345 / 65536 MB" in out["gpustat"]
        assert f"/{child.pid}(5432M)" in out["gpustat"]


def test_a_scenario_nobody_understands_says_so(driver: SimulatedDriver) -> None:
    driver.fault("gpu 0 temperatur 12")
    read = "import pynvml; pynvml.nvmlInit()"
    done = subprocess.run([sys.executable, "-c", read], env=driver.env, capture_output=True, text=True)
    assert done.returncode == 0
    assert "not understood in the scenario: gpu 0 temperatur 12" in done.stderr


def test_without_a_compiler_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(simulated.DriverUnavailable, match="no C compiler"):
        simulated.build()
