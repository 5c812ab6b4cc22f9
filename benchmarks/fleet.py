"""How fast is `gputop fleet --prometheus` on a large site, and how much does it ask of the engine?

    python benchmarks/fleet.py                     # 10, 100 and 1250 hosts of 8 GPUs, Prometheus and VictoriaMetrics
    python benchmarks/fleet.py --hosts 1250 --engine prometheus --keep

It starts a real engine (Debian's packages), fills it with what dcgm-exporter writes (etc/dcp-metrics-included.csv) of
the last hour in steps of 15 s, and polls it as the screen does. Reported: the first poll, refreshes, a scrolled
page, a changed order, histories; bytes fetched of each. Numbers: BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gputop.commands.fleet import ONCE_SECONDS
from gputop.fleet.filter import FleetFilter
from gputop.fleet.model import HistoryRequest, Quantity
from gputop.fleet.prometheus.client import EngineClient
from gputop.fleet.prometheus.credentials import Credentials
from gputop.fleet.prometheus.source import PrometheusFleet
from gputop.fleet.view import FleetView, HostSort
from tests.engines import free_port

GPUS = 8
STEP_SECONDS = 15
PAST_SECONDS = 60 * 60
AHEAD_SECONDS = 15 * 60  # so that the last reading is never old while it is measured
PHASES = 32
PAGE = 20
BATCH_BYTES = 4_000_000

#: Metric: (lowest, highest) value.
METRICS: dict[str, tuple[float, float]] = {
    "DCGM_FI_DEV_SM_CLOCK": (345, 1980), "DCGM_FI_DEV_MEM_CLOCK": (2619, 2619), "DCGM_FI_DEV_MEMORY_TEMP": (30, 80),
    "DCGM_FI_DEV_GPU_TEMP": (28, 75), "DCGM_FI_DEV_POWER_USAGE": (70, 690),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": (1e9, 2e9), "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": (0, 0),
    "DCGM_FI_DEV_GPU_UTIL": (0, 100), "DCGM_FI_DEV_MEM_COPY_UTIL": (0, 80), "DCGM_FI_DEV_ENC_UTIL": (0, 0),
    "DCGM_FI_DEV_DEC_UTIL": (0, 0), "DCGM_FI_DEV_XID_ERRORS": (0, 0), "DCGM_FI_DEV_FB_FREE": (0, 0),
    "DCGM_FI_DEV_FB_USED": (0, 0), "DCGM_FI_DEV_FB_RESERVED": (557, 557),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": (0, 1e6), "DCGM_FI_DEV_VGPU_LICENSE_STATUS": (0, 0),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": (0, 0),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": (0, 0), "DCGM_FI_DEV_ROW_REMAP_FAILURE": (0, 0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (0, 1), "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (0, 0.6),
    "DCGM_FI_PROF_DRAM_ACTIVE": (0, 0.5), "DCGM_FI_PROF_PCIE_TX_BYTES": (0, 1e9),
    "DCGM_FI_PROF_PCIE_RX_BYTES": (0, 1e9),
}  # fmt: skip
MODELS = (("NVIDIA H100 80GB HBM3", 81559), ("NVIDIA H200", 143771), ("NVIDIA A100-SXM4-80GB", 81920))


def values_of(metric: str, kind: str, phase: int, total: int, count: int) -> list[float]:
    """A course of *count* values; *kind* is busy, idle, free or broken."""
    low, high = METRICS[metric]
    if metric.endswith(("FB_USED", "FB_FREE")):
        used = {"busy": 0.85, "idle": 0.3, "free": 0.0, "broken": 0.0}[kind] * (total - 557) + 4
        return [used if metric.endswith("USED") else total - 557 - used] * count
    if metric.endswith("XID_ERRORS"):
        return [79.0 if kind == "broken" else 0.0] * count
    if kind != "busy" or low == high:
        return [low] * count
    wave = [0.8 + 0.2 * math.sin((k + phase * 7) / 9.0) for k in range(count)]
    return [round(low + (high - low) * one, 3 if high <= 1 else 0) for one in wave]


def gpus_of(hosts: int) -> Iterator[tuple[dict[str, str], str, int, int]]:
    """(labels, kind, phase, MiB) of every GPU."""
    rng = random.Random(hosts)
    for host in range(hosts):
        model, total = MODELS[0 if host % 10 < 6 else 1 if host % 10 < 9 else 2]
        for index in range(GPUS):
            roll = rng.random()
            kind = "busy" if roll < 0.8 else "idle" if roll < 0.88 else "free" if roll < 0.996 else "broken"
            uuid = f"GPU-{rng.getrandbits(128):032x}"
            labels = {
                "job": "dcgm", "instance": f"gpu-node-{host + 1:04d}:9400", "gpu": str(index), "UUID": uuid,
                "pci_bus_id": f"00000000:{0x18 + index * 17:02X}:00.0", "device": f"nvidia{index}", "modelName": model,
                "Hostname": f"gpu-node-{host + 1:04d}", "DCGM_FI_DRIVER_VERSION": "580.159.04",
            }  # fmt: skip
            if kind in ("busy", "idle"):
                labels["hpc_job"] = str(88_000 + host // 4)
            yield labels, kind, rng.randrange(PHASES), total


# ------------------------------------------------------------------- remote write


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def snappy(data: bytes) -> bytes:
    """The block format with literals only."""
    out = [varint(len(data))]
    for start in range(0, len(data), 65536):
        chunk = data[start : start + 65536]
        out.append(bytes((61 << 2,)) + struct.pack("<H", len(chunk) - 1) + chunk)
    return b"".join(out)


def fill_prometheus(url: str, hosts: int, times: list[int]) -> int:
    """Remote write (prometheus/prompb remote.proto). Returns how many samples."""
    courses: dict[tuple[str, str, int, int], bytes] = {}
    batch, size, count = [], 0, 0

    def send() -> None:
        request = urllib.request.Request(
            f"{url}/api/v1/write",
            snappy(b"".join(batch)),
            {
                "Content-Encoding": "snappy",
                "Content-Type": "application/x-protobuf",
                "X-Prometheus-Remote-Write-Version": "0.1.0",
            },
        )
        urllib.request.urlopen(request, timeout=120).close()

    for labels, kind, phase, total in gpus_of(hosts):
        for metric in METRICS:
            key = (metric, kind, phase, total)
            if key not in courses:
                values = values_of(metric, kind, phase, total, len(times))
                courses[key] = b"".join(
                    field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + varint(at))
                    for value, at in zip(values, times, strict=True)
                )
            named = sorted({"__name__": metric, **labels}.items())
            texts = b"".join(field(1, field(1, k.encode()) + field(2, v.encode())) for k, v in named)
            series = field(1, texts + courses[key])
            batch.append(series)
            size += len(series)
            count += len(times)
            if size > BATCH_BYTES:
                send()
                batch.clear()
                size = 0
    if batch:
        send()
    return count


def fill_victoria_metrics(url: str, hosts: int, times: list[int]) -> int:
    """/api/v1/import: a JSON line a series."""
    courses: dict[tuple[str, str, int, int], str] = {}
    stamps = json.dumps(times)
    batch, size, count = [], 0, 0

    def send() -> None:
        urllib.request.urlopen(f"{url}/api/v1/import", "\n".join(batch).encode(), timeout=120).close()

    for labels, kind, phase, total in gpus_of(hosts):
        for metric in METRICS:
            key = (metric, kind, phase, total)
            if key not in courses:
                courses[key] = json.dumps(values_of(metric, kind, phase, total, len(times)))
            metric_json = json.dumps({"__name__": metric, **labels})
            batch.append(f'{{"metric":{metric_json},"values":{courses[key]},"timestamps":{stamps}}}')
            size += len(batch[-1])
            count += len(times)
            if size > BATCH_BYTES:
                send()
                batch.clear()
                size = 0
    if batch:
        send()
    urllib.request.urlopen(f"{url}/internal/force_flush", timeout=60).close()
    return count


# ------------------------------------------------------------------------ engines


@contextlib.contextmanager
def engine(name: str, directory: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = free_port()
    if name == "prometheus":
        (directory / "prometheus.yml").write_text(
            "global: {scrape_interval: 15s}\nstorage: {tsdb: {out_of_order_time_window: 3h}}\n"
        )
        command = [
            "prometheus", f"--config.file={directory / 'prometheus.yml'}", f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver", "--log.level=error",
        ]  # fmt: skip
        ready = "/-/ready"
    else:
        command = [
            "victoria-metrics", f"-storageDataPath={directory / 'data'}", f"-httpListenAddr=127.0.0.1:{port}",
            "-loggerLevel=ERROR", "-search.latencyOffset=1ms",
        ]  # fmt: skip
        ready = "/health"
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(command)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url + ready, timeout=2).close()
                break
            time.sleep(0.1)
        yield url, process
    finally:
        process.terminate()
        process.wait(30)


def pss_mib(pid: int | str) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


# ------------------------------------------------------------------------ measure


def measure(url: str, hosts: int) -> dict[str, object]:
    client = EngineClient(url, Credentials())
    fleet = PrometheusFleet(client)
    report: dict[str, object] = {"hosts": hosts}

    def timed(what: str, call: object) -> object:
        before, started = client.bytes_received, time.perf_counter()
        result = call()  # type: ignore[operator]
        report[what] = (time.perf_counter() - started, (client.bytes_received - before) / 1000)
        problems = getattr(result, "problems", ()) or getattr(result, "problem", None)
        if problems:
            print(what, problems)
        return result

    first = timed("first screen", lambda: fleet.poll(FleetView(count=PAGE)))
    took, fetched = [], []
    for _ in range(12):
        fleet._load.at = -1e9  # as after the refresh interval
        timed("refresh", lambda: fleet.poll(FleetView(count=PAGE)))
        seconds, kilobytes = report["refresh"]  # type: ignore[misc]
        took.append(seconds)
        fetched.append(kilobytes)
    report["refresh, median"] = (statistics.median(took), statistics.median(fetched))
    report["refresh, longest"] = (max(took), max(fetched))
    del report["refresh"]
    timed("scrolled page", lambda: fleet.poll(FleetView(first=hosts // 2, count=PAGE)))
    timed("sorted by free", lambda: fleet.poll(FleetView(sort=HostSort.FREE, count=PAGE)))
    view = FleetView(FleetFilter.parse("free>=4 model:h100"), HostSort.FREE, count=PAGE)
    timed("free>=4 model:h100", lambda: fleet.poll(view))
    timed("by job", lambda: fleet.poll(FleetView(group_by="job", count=PAGE)))
    now = time.time()
    timed("fleet's hour, utilization", lambda: fleet.history(HistoryRequest(Quantity.UTILIZATION, now - 3600, now, 60)))
    timed("fleet's hour, free GPUs", lambda: fleet.history(HistoryRequest(Quantity.FREE, now - 3600, now, 60)))
    host = first.hosts[0].name  # type: ignore[attr-defined]
    asked = HistoryRequest(Quantity.UTILIZATION, now - 3600, now, 240, host, by_gpu=True)
    timed("a host's hour", lambda: fleet.history(asked))
    client.timeout_seconds = ONCE_SECONDS
    timed("all hosts (--once --json)", lambda: fleet.poll(FleetView()))
    report["totals"] = fleet.poll(FleetView(count=PAGE)).totals
    report["pss_mib"] = pss_mib("self")
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="*", default=[10, 100, 1250])
    parser.add_argument("--engine", nargs="*", default=["prometheus", "victoria-metrics"])
    parser.add_argument("--keep", action="store_true", help="leave the engine running until Ctrl+C, for the screen")
    options = parser.parse_args()
    for name in options.engine:
        if shutil.which(name) is None:
            print(f"{name} is not installed")
            continue
        for hosts in options.hosts:
            with tempfile.TemporaryDirectory() as directory, engine(name, Path(directory)) as (url, process):
                end = int(time.time())
                times = [at * 1000 for at in range(end - PAST_SECONDS, end + AHEAD_SECONDS, STEP_SECONDS)]
                started = time.perf_counter()
                fill = fill_prometheus if name == "prometheus" else fill_victoria_metrics
                samples = fill(url, hosts, times)
                print(
                    f"\n{name}, {hosts} hosts x {GPUS}: {samples / 1e6:.1f} M samples of {hosts * GPUS * len(METRICS)} "
                    f"series in {time.perf_counter() - started:.0f} s; engine {pss_mib(process.pid):.0f} MiB; {url}"
                )
                for what, value in measure(url, hosts).items():
                    if isinstance(value, tuple):
                        print(f"  {what:<28} {value[0] * 1000:>7.0f} ms {value[1]:>9.1f} kB")
                    else:
                        print(f"  {what:<28} {value}")
                if options.keep:
                    threading.Event().wait()


if __name__ == "__main__":
    main()
