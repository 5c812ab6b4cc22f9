"""Real engines for tests: Debian's Prometheus and VictoriaMetrics, scraping expositions as the exporters write them.

The formats: NVIDIA/dcgm-exporter internal/pkg/rendermetrics/render_metrics.go and etc/*.csv, utkuozdemir's
docs/METRICS.md, the main.go of plazonic's nvidia_gpu_prometheus_exporter, slurm-job-exporter.py.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 30.0


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        if os.environ.get("GPUTOP_REQUIRE_PROMETHEUS") == "1":
            pytest.fail(f"{program} is not installed")
        pytest.skip(f"{program} is not installed")
    return found


# ------------------------------------------------------------------ expositions


class Expositions:
    """Serves what exporters would say, by path; None is a target that answers 500."""

    def __init__(self) -> None:
        self.texts: dict[str, str | None] = {}
        texts = self.texts

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = texts.get(self.path)
                self.send_response(200 if text is not None else 500)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_message(self, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass
class ExportedGpu:
    """A GPU as an exporter sees it; MiB, watts, percent. A value of None is not exported."""

    index: int
    uuid: str
    model: str = "NVIDIA H100 80GB HBM3"
    util: float | None = 0.0
    used: float | None = 4.0
    total: float = 81559.0
    reserved: float | None = 557.0
    power: float | None = 70.0
    temperature: float | None = 35.0
    xid: int = 0
    remap_failure: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)  # pod, namespace, container, hpc_job
    mig: tuple[tuple[int, str, float, float], ...] = ()  # instance, profile, used, free


def line(metric: str, labels: Mapping[str, object], value: object) -> str:
    escaped = {
        name: str(text).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, text in labels.items()
    }
    joined = ",".join(f'{name}="{text}"' for name, text in escaped.items())
    return f"{metric}{{{joined}}} {value}"


def dcgm(host: str | None, gpus: Iterable[ExportedGpu], host_label: str = "Hostname", profiling: bool = True) -> str:
    """What dcgm-exporter writes with etc/dcp-metrics-included.csv."""
    lines: dict[str, list[str]] = {}
    for gpu in gpus:
        base: dict[str, object] = {
            "gpu": gpu.index, "UUID": gpu.uuid, "pci_bus_id": f"00000000:{0x18 + gpu.index:02X}:00.0",
            "device": f"nvidia{gpu.index}", "modelName": gpu.model,
        }  # fmt: skip
        named = {host_label: host} if host is not None else {}
        util = None if gpu.mig else gpu.util
        free = None if gpu.used is None else gpu.total - (gpu.reserved or 0) - gpu.used
        values: dict[str, float | None] = {
            "DCGM_FI_DEV_SM_CLOCK": 1980, "DCGM_FI_DEV_MEM_CLOCK": 2619, "DCGM_FI_DEV_MEMORY_TEMP": 44,
            "DCGM_FI_DEV_GPU_TEMP": gpu.temperature, "DCGM_FI_DEV_POWER_USAGE": gpu.power,
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 123456789, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 0,
            "DCGM_FI_DEV_GPU_UTIL": util, "DCGM_FI_DEV_MEM_COPY_UTIL": util,
            "DCGM_FI_DEV_ENC_UTIL": 0, "DCGM_FI_DEV_DEC_UTIL": 0, "DCGM_FI_DEV_XID_ERRORS": gpu.xid,
            "DCGM_FI_DEV_FB_FREE": free, "DCGM_FI_DEV_FB_USED": gpu.used, "DCGM_FI_DEV_FB_RESERVED": gpu.reserved,
            "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 0, "DCGM_FI_DEV_VGPU_LICENSE_STATUS": 0,
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 0, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 0,
            "DCGM_FI_DEV_ROW_REMAP_FAILURE": gpu.remap_failure,
        }  # fmt: skip
        if profiling and gpu.util is not None and not gpu.mig:
            values |= {
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE": gpu.util / 100, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": gpu.util / 200,
                "DCGM_FI_PROF_DRAM_ACTIVE": gpu.util / 300, "DCGM_FI_PROF_PCIE_TX_BYTES": 1e6,
                "DCGM_FI_PROF_PCIE_RX_BYTES": 2e6,
            }  # fmt: skip
        rows: list[tuple[dict[str, object], dict[str, float | None]]] = [(base, values)]
        if gpu.mig:
            rows = []
            for instance, profile, used, left in gpu.mig:
                own = values | {"DCGM_FI_DEV_FB_USED": used, "DCGM_FI_DEV_FB_FREE": left, "DCGM_FI_DEV_FB_RESERVED": 0}
                rows.append((base | {"GPU_I_PROFILE": profile, "GPU_I_ID": instance}, own))
        for labels, of in rows:
            every = labels | named | {"DCGM_FI_DRIVER_VERSION": "580.159.04"} | dict(gpu.labels)
            for metric, value in of.items():
                if value is not None:
                    lines.setdefault(metric, []).append(line(metric, every, value))
    return "".join(f"# HELP {name} .\n# TYPE {name} gauge\n" + "\n".join(of) + "\n" for name, of in lines.items())


def nvidia_gpu_exporter(gpus: Iterable[ExportedGpu], processes: Iterable[tuple[str, int, str, float]] = ()) -> str:
    """utkuozdemir's; *processes*: (uuid, pid, name, bytes)."""
    lines = []
    for gpu in gpus:
        bare = gpu.uuid.removeprefix("GPU-")
        info = {
            "uuid": bare, "name": gpu.model, "driver_model_current": "[N/A]", "driver_version": "580.159.04",
            "vbios_version": "96.00", "pci_bus_id": f"00000000:{0x18 + gpu.index:02X}:00.0", "index": gpu.index,
            "cuda_version": "13.0",
        }  # fmt: skip
        lines.append(line("nvidia_smi_gpu_info", info, 1))
        mib = 1024 * 1024
        values = {
            "nvidia_smi_utilization_gpu_ratio": None if gpu.util is None else gpu.util / 100,
            "nvidia_smi_memory_used_bytes": None if gpu.used is None else gpu.used * mib,
            "nvidia_smi_memory_free_bytes": (gpu.total - (gpu.reserved or 0) - (gpu.used or 0)) * mib,
            "nvidia_smi_memory_total_bytes": gpu.total * mib,
            "nvidia_smi_memory_reserved_bytes": (gpu.reserved or 0) * mib,
            "nvidia_smi_power_draw_watts": gpu.power, "nvidia_smi_enforced_power_limit_watts": 700,
            "nvidia_smi_temperature_gpu": gpu.temperature, "nvidia_smi_pstate": 0,
            "nvidia_smi_clocks_current_sm_clock_hz": 1.98e9,
        }  # fmt: skip
        lines += [line(metric, {"uuid": bare}, value) for metric, value in values.items() if value is not None]
    for uuid, pid, name, size in processes:
        labels = {"pid": pid, "process_name": name, "uuid": uuid.removeprefix("GPU-")}
        lines.append(line("nvidia_smi_compute_app_info", labels, 1))
        lines.append(line("nvidia_smi_compute_app_used_memory_bytes", labels, size))
    return "\n".join(lines) + "\n"


def jobstats(gpus: Iterable[ExportedGpu], jobs: Mapping[str, tuple[int, int]]) -> str:
    """plazonic's nvidia_gpu_prometheus_exporter; *jobs*: (job, uid) by UUID."""
    lines = []
    for gpu in gpus:
        labels = {"ordinal": gpu.index, "minor_number": gpu.index, "uuid": gpu.uuid, "name": gpu.model}
        job, uid = jobs.get(gpu.uuid, (0, 0))
        for metric, value in (
            ("nvidia_gpu_memory_used_bytes", (gpu.used or 0) * 2**20),
            ("nvidia_gpu_memory_total_bytes", gpu.total * 2**20),
            ("nvidia_gpu_duty_cycle", gpu.util),
            ("nvidia_gpu_power_usage_milliwatts", (gpu.power or 0) * 1000),
            ("nvidia_gpu_temperature_celsius", gpu.temperature),
            ("nvidia_gpu_jobId", job),
            ("nvidia_gpu_jobUid", uid),
        ):
            lines.append(line(metric, labels, value))
    return "\n".join(lines) + "\n"


def slurm_jobs(rows: Iterable[tuple[str, str, int]]) -> str:
    """slurm-job-exporter's; (user, job, GPU index)."""
    labels = (
        {"user": user, "account": "def", "slurmjobid": job, "gpu": gpu, "gpu_type": "h100"} for user, job, gpu in rows
    )
    return "\n".join(line("slurm_job_utilization_gpu", one, 90) for one in labels) + "\n"


# ---------------------------------------------------------------------- engines


@dataclass
class Engine:
    """A running engine."""

    url: str
    process: subprocess.Popen[bytes]
    reload_file: Path

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        form = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{form}", timeout=20) as answer:
            result = json.load(answer)["data"]["result"]
        return [(one["metric"], float(one["value"][1])) for one in result]

    def value(self, expression: str) -> float | None:
        found = self.query(expression)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def until(self, true: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError, ValueError):
                if result := true():
                    return result
            assert time.monotonic() < end, "the engine does not get there"
            time.sleep(0.1)


def scrape_config(address: str, jobs: Mapping[str, Mapping[str, str]], interval: str = "1s") -> str:
    """*jobs*: path by instance, by job."""
    lines = [f"global:\n  scrape_interval: {interval}\n  scrape_timeout: {interval}\nscrape_configs:"]
    for job, targets in jobs.items():
        lines.append(f"- job_name: {job}\n  static_configs:")
        for instance, path in targets.items():
            lines.append(
                f"  - targets: ['{address}']\n    labels: {{__metrics_path__: '{path}', instance: '{instance}'}}"
            )
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def prometheus(directory: Path, config: str) -> Iterator[Engine]:
    program, port = need("prometheus"), free_port()
    file = directory / "prometheus.yml"
    file.write_text(config)
    arguments = [
        f"--config.file={file}", f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]  # fmt: skip
    yield from _running([program, *arguments], f"http://127.0.0.1:{port}", "/-/ready", file, directory)


@contextlib.contextmanager
def victoria_metrics(directory: Path, config: str) -> Iterator[Engine]:
    program, port = need("victoria-metrics"), free_port()
    file = directory / "scrape.yml"
    file.write_text(config)
    arguments = [
        f"-promscrape.config={file}", f"-storageDataPath={directory / 'data'}", f"-httpListenAddr=127.0.0.1:{port}",
        "-loggerLevel=ERROR", "-search.latencyOffset=1ms", "-promscrape.config.strictParse=false",
        "-memory.allowedBytes=256MB",
    ]  # fmt: skip
    yield from _running([program, *arguments], f"http://127.0.0.1:{port}", "/health", file, directory)


def _running(command: list[str], url: str, ready: str, file: Path, directory: Path) -> Iterator[Engine]:
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    engine = Engine(url, process, file)
    try:
        engine.until(lambda: urllib.request.urlopen(url + ready, timeout=2).status == 200)
        yield engine
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
