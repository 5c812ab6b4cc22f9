"""What rehearse.py calls nvidia-smi: the queries that the scripts here make, answered from the NVML it finds."""

from __future__ import annotations

import sys
import time

import pynvml as nvml

MIB = 2**20
QUERIES = {
    "uuid": nvml.nvmlDeviceGetUUID,
    "name": nvml.nvmlDeviceGetName,
    "driver_version": lambda _: nvml.nvmlSystemGetDriverVersion(),
    "pci.bus_id": lambda gpu: nvml.nvmlDeviceGetPciInfo(gpu).busId,
    "memory.total": lambda gpu: memory(gpu).total // MIB,
    "memory.used": lambda gpu: memory(gpu).used // MIB,
    "memory.reserved": lambda gpu: memory(gpu).reserved // MIB,
    "memory.free": lambda gpu: memory(gpu).free // MIB,
    "utilization.gpu": lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "temperature.gpu": lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "power.draw": lambda gpu: f"{nvml.nvmlDeviceGetPowerUsage(gpu) / 1000:.2f}",
    "clocks.current.sm": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "pstate": lambda gpu: f"P{nvml.nvmlDeviceGetPerformanceState(gpu)}",
    "fan.speed": lambda _: "[N/A]",
}


def memory(gpu: object) -> nvml.c_nvmlMemory_v2_t:
    return nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)


def main() -> None:
    nvml.nvmlInit()
    gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    what, _, fields = sys.argv[1].partition("=")
    match what:
        case "-L":
            for i, gpu in enumerate(gpus):
                print(f"GPU {i}: {nvml.nvmlDeviceGetName(gpu)} (UUID: {nvml.nvmlDeviceGetUUID(gpu)})")
        case "--query-gpu":
            if unknown := next((field for field in fields.split(",") if field not in QUERIES), None):
                sys.exit(f'Field "{unknown}" is not a valid field to query.')
            for gpu in gpus:
                print(", ".join(str(QUERIES[field](gpu)) for field in fields.split(",")))
        case "--query-compute-apps":
            for gpu in gpus:
                for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu):
                    print(f"{nvml.nvmlDeviceGetUUID(gpu)}, {process.pid}, {process.usedGpuMemory // MIB}")
        case "dmon":
            dmon(len(gpus), sys.argv)
        case "nvlink":
            for i, gpu in enumerate(gpus):
                print(f"GPU {i}: {nvml.nvmlDeviceGetName(gpu)} (UUID: {nvml.nvmlDeviceGetUUID(gpu)})")
                moved = int(time.time() * 1000)
                print(f"\t Link 0: Data Tx: {moved} KiB\n\t Link 0: Data Rx: {moved} KiB")
        case _:
            sys.exit(f"the stand-in knows nothing of {sys.argv[1:]}")


def dmon(gpus: int, arguments: list[str]) -> None:
    columns = ["rxpci", "txpci"]
    if "--gpm-metrics" in arguments:
        columns = ["sm", "mem", *(f"gpm{id_}" for id_ in arguments[arguments.index("--gpm-metrics") + 1].split(","))]
    print("# gpu", *columns)
    print("# Idx", *("-" for _ in columns), flush=True)
    for _ in range(int(arguments[arguments.index("-c") + 1])):
        for gpu in range(gpus):
            print(gpu, "-", *range(1, len(columns)), flush=True)
        time.sleep(1)


if __name__ == "__main__":
    main()
