"""`gputop query`: what scripts written for nvidia-smi get, to the letter, and what happens when there is no answer."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pynvml
import pytest

from gputop.cli import run
from gputop.commands.query import _writer
from gputop.commands.shared.refusal import Refusal
from gputop.sources.nvml import sysfs
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.query import APP_FIELDS, GPU_FIELDS
from tests.driver import GIB, LOST, MIB, NO_PERMISSION, NOT_AVAILABLE, NOT_SUPPORTED, UNKNOWN, SimulatedDriver
from tests.unit.sources.nvml_source import calls
from tests.unit.test_imports import HEAVY, imported

ROOT = Path(__file__).resolve().parents[3]
QUERY = [sys.executable, "-m", "gputop", "query"]


@pytest.fixture
def h200(driver: SimulatedDriver) -> SimulatedDriver:
    """GPU 0 as the H200 of the captures had it (driver 580, a training process)."""
    driver.set(driver="580.159.04")
    driver.gpu(0).set(
        name="NVIDIA H200", uuid="GPU-64f2ddc1-af7a-7444-5342-d074795ff849", serial="1653724055483",
        bus_id="00000000:83:00.0", memory_total=143771 * MIB, memory_used=11937 * MIB - 1000,
        memory_reserved=615 * MIB + 1, utilization_gpu=100, utilization_memory=41, temperature=66,
        temperature_memory=52, power_watts=695.649, power_instant_watts=727.15, power_average_watts=695.649,
        power_limit_watts=700, fan_percent=NOT_SUPPORTED, clock_sm=1710, performance_state=0, event_reasons=4,
        pcie_link_gen=5, mig_mode=0, compute_major=9, compute_minor=0,
    )  # fmt: skip
    return driver


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def query(driver: SimulatedDriver, *arguments: str) -> Done:
    """What `gputop query` gives with *arguments*, in this process."""
    driver.load()
    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            status = run(["query", *arguments])
        except SystemExit as end:  # argparse's
            status = int(end.code or 0)
    told = []
    for stream in (out, errors):
        stream.flush()
        stream.seek(0)
        told.append(stream.read())
    return Done(status, *told)


def apart(driver: SimulatedDriver, *arguments: str) -> Done:
    """The same in a process of its own: calls may hang there."""
    driver.settle()
    done = subprocess.run(
        [*QUERY, *arguments],
        env={**driver.env, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def lines(driver: SimulatedDriver, *arguments: str) -> list[str]:
    done = query(driver, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


# ------------------------------------------------------------------------- to the letter


def test_the_program_itself_answers(h200: SimulatedDriver) -> None:
    done = apart(h200, "--query-gpu=index,name,memory.used", "--format=csv,noheader", "-i", "0")
    assert done == (0, "0, NVIDIA H200, 11937 MiB\n", "")


def test_a_script_written_for_nvidia_smi_gets_what_it_got_on_an_h200(h200: SimulatedDriver) -> None:
    head, row, _ = lines(
        h200,
        "--query-gpu=index,name,memory.used,memory.total,memory.reserved,utilization.gpu,temperature.gpu,"
        "temperature.memory,power.draw,power.draw.instant,power.limit,fan.speed,clocks.sm,pstate,"
        "clocks_throttle_reasons.active,pcie.link.gen.current,mig.mode.current",
        "--format=csv",
    )
    assert head == (
        "index, name, memory.used [MiB], memory.total [MiB], memory.reserved [MiB], utilization.gpu [%], "
        "temperature.gpu, temperature.memory, power.draw [W], power.draw.instant [W], power.limit [W], fan.speed [%], "
        "clocks.current.sm [MHz], pstate, clocks_event_reasons.active, pcie.link.gen.current, mig.mode.current"
    )
    assert row == (
        "0, NVIDIA H200, 11937 MiB, 143771 MiB, 616 MiB, 100 %, 66, 52, 695.65 W, 727.15 W, 700.00 W, [N/A], "
        "1710 MHz, P0, 0x0000000000000004, 5, Disabled"
    )


def test_every_spelling_of_a_field_is_known_once() -> None:
    for fields in (GPU_FIELDS, APP_FIELDS):
        names = [name for field in fields for name in (field.name, *field.aliases)]
        assert len(names) == len(set(names))
    common = """timestamp index name gpu_name uuid gpu_uuid serial count pci.bus_id gpu_bus_id driver_version
        vbios_version compute_cap compute_mode persistence_mode pstate fan.speed temperature.gpu temperature.memory
        temperature.gpu.tlimit utilization.gpu utilization.memory utilization.encoder utilization.decoder
        utilization.jpeg utilization.ofa memory.total memory.reserved memory.used memory.free power.draw
        power.draw.average power.draw.instant power.limit enforced.power.limit power.default_limit power.min_limit
        power.max_limit clocks.gr clocks.sm clocks.mem clocks.video clocks.current.graphics clocks.max.gr clocks.max.sm
        clocks.max.mem clocks_event_reasons.active clocks_throttle_reasons.hw_slowdown clocks_event_reasons.sync_boost
        clocks_event_reasons_counters.sw_power_cap pcie.link.gen.current pcie.link.gen.max pcie.link.gen.gpucurrent
        pcie.link.gen.gpumax pcie.link.gen.hostmax pcie.link.width.current pcie.link.width.max ecc.mode.current
        ecc.mode.pending ecc.errors.corrected.volatile.total ecc.errors.uncorrected.aggregate.dram retired_pages.sbe
        retired_pages.pending remapped_rows.correctable remapped_rows.failure mig.mode.current mig.mode.pending
        encoder.stats.sessionCount encoder.stats.averageFps encoder.stats.averageLatency display_active display_mode
        accounting.mode addressing_mode gsp.mode.current gsp.mode.default fabric.state fabric.status c2c.mode
        module.power.draw.average power.management clocks.applications.gr gom.current inforom.img hostname""".split()
    known = {name for field in GPU_FIELDS for name in (field.name, *field.aliases)}
    assert not set(common) - known


def test_all_fields_at_once_have_an_answer_or_a_token(h200: SimulatedDriver) -> None:
    names = [field.name for field in GPU_FIELDS]
    head, *rows = lines(h200, f"--gpu={','.join(names)}")
    assert [heading.partition(" [")[0] for heading in head.split(", ")] == names
    for row in rows:
        cells = row.split(", ")
        assert len(cells) == len(names)
        assert all(cell == "" or re.fullmatch(r"\[?[\w .:/%-]+\]?", cell) for cell in cells), cells


@pytest.mark.parametrize(
    ("values", "field", "cell"),
    [
        ({"power_watts": NOT_SUPPORTED}, "power.draw", "[N/A]"),
        ({"power_watts": NO_PERMISSION}, "power.draw", "[Insufficient Permissions]"),
        ({"power_watts": UNKNOWN}, "power.draw", "[Unknown Error]"),
        ({"power_watts": LOST}, "power.draw", "[GPU is lost]"),
        ({"temperature_memory": NOT_SUPPORTED}, "temperature.memory", "N/A"),
        ({"temperature_memory": UNKNOWN}, "temperature.memory", "[Unknown Error]"),
        ({"memory_used": 0}, "memory.used", "0 MiB"),
        ({"memory_used": 1}, "memory.used", "1 MiB"),
        ({"memory_used": 5 * MIB}, "memory.used", "5 MiB"),
        ({"power_watts": 77.706}, "power.draw", "77.71 W"),
        ({"event_reasons": 0x44}, "clocks_event_reasons.hw_thermal_slowdown", "Active"),
        ({"event_reasons": 0x44}, "clocks_event_reasons.gpu_idle", "Not Active"),
        ({"persistence_mode": 0}, "persistence_mode", "Disabled"),
        ({"compute_mode": 3}, "compute_mode", "Exclusive_Process"),
        ({"remapped_pending": 1}, "remapped_rows.pending", "Yes"),
        ({"ecc_mode": NOT_SUPPORTED}, "ecc.mode.current", "[N/A]"),
        ({"mig_mode": NOT_SUPPORTED}, "mig.mode.current", "[N/A]"),
        ({"ecc_corrected_aggregate": 2**40}, "ecc.errors.corrected.aggregate.total", str(2**40)),
    ],
)
def test_a_value_and_what_stands_in_its_place(
    driver: SimulatedDriver, values: dict[str, str | int | float], field: str, cell: str
) -> None:
    driver.gpu(0).set(**values)
    done = query(driver, "--gpu", field, "--format", "csv,noheader", "-i", "0")
    assert done.stdout == f"{cell}\n"
    assert done.returncode == (15 if "lost" in cell else 0)


def test_without_units_the_heading_keeps_them(h200: SimulatedDriver) -> None:
    fields = "--query-gpu=memory.used,power.draw,fan.speed"
    assert lines(h200, fields, "--format=csv,nounits", "-i", "0") == [
        "memory.used [MiB], power.draw [W], fan.speed [%]",
        "11937, 695.65, [N/A]",
    ]
    assert lines(h200, fields, "--format=csv,noheader,nounits", "-i", "0") == ["11937, 695.65, [N/A]"]


def test_what_a_newer_driver_does_not_tell_any_more(driver: SimulatedDriver) -> None:
    driver.set(driver="590.48.01")
    fields = "display_mode,power.management,clocks.applications.gr"
    (row,) = lines(driver, "--gpu", fields, "--format=csv,noheader", "-i0")
    assert row == "[deprecated], [deprecated], [deprecated]"  # the simulated driver's words for it


def test_old_spellings_of_the_driver_s_functions_are_enough(tmp_path: Path) -> None:
    missing = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetPciInfo_v3")
    with SimulatedDriver(tmp_path / "old", gpus=1, missing_symbols=missing) as driver:
        driver.gpu(0).set(memory_used=GIB, memory_reserved=MIB, event_reasons=1, bus_id="00000000:41:00.0")
        row = lines(driver, "--gpu=memory.used,memory.reserved,clocks_event_reasons.active,pci.bus_id,pci.bus")[1]
    assert row == "1025 MiB, [Function Not Found], 0x0000000000000001, 00000000:41:00.0, 0x41"


# ------------------------------------------------------------------------------ which GPUs


@pytest.mark.parametrize(
    ("names", "indices"),
    [
        ("0", "0"),
        ("1,0", "0 1"),
        ("0,0", "0"),
        ("GPU-64f2ddc1-af7a-7444-5342-d074795ff849", "0"),
        ("1653724055483", "0"),
        ("00000000:83:00.0", "0"),
        ("0000:83:00.0,1", "0 1"),
        ("83:00.0", "0"),
        ("", "0 1"),
    ],
)
def test_a_gpu_by_any_of_its_names(h200: SimulatedDriver, names: str, indices: str) -> None:
    assert lines(h200, "--gpu=index", "--format=csv,noheader", f"-i={names}") == indices.split()


def test_a_gpu_that_is_not_there_is_told_apart_from_those_that_are(driver: SimulatedDriver) -> None:
    done = query(driver, "--gpu=index", "--format=csv,noheader", "-i", "1,7")
    assert (done.returncode, done.stdout) == (0, "1\n") and "7: no such GPU" in done.stderr
    done = query(driver, "--gpu=index", "-i", "foo")
    assert (done.returncode, done.stdout) == (6, "No devices were found\n") and "foo: no such GPU" in done.stderr
    driver.gpus = 0
    done = query(driver, "--gpu=index")
    assert (done.returncode, done.stdout) == (6, "No devices were found\n")


def test_only_the_gpus_asked_for_are_opened(driver: SimulatedDriver) -> None:
    driver.fault("gpu 1 hang")
    done = apart(driver, "--gpu=index,name", "--format=csv,noheader", "-i", "0")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("0, ")


def test_a_lost_gpu_costs_its_own_row_only(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(temperature=40)
    driver.fault("gpu 1 lost")
    done = query(driver, "--gpu=index,temperature.gpu,name", "--format=csv,noheader")
    assert done.stdout.splitlines()[1] == "1, [GPU is lost], [GPU is lost]"
    assert done.stdout.startswith("0, 40, ") and done.returncode == 15


def test_a_gpu_that_hangs_costs_its_own_row_only(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(temperature=40)
    driver.fault("gpu 1 call nvmlDeviceGetTemperature hang")
    done = apart(driver, "--gpu=index,temperature.gpu", "--format=csv,noheader")
    assert done.stdout == "0, 40\n1, [Timeout]\n" and done.returncode == 10
    driver.clear_faults()
    driver.fault("gpu 1 hang")
    done = apart(driver, "--compute-apps=pid", "--format=csv")
    assert done.stdout == "pid\n[Timeout]\n" and done.returncode == 10


@pytest.mark.parametrize(("speed", "generation"), [("32.0 GT/s PCIe", 5), ("2.5 GT/s PCIe", 1), ("Unknown", None)])
def test_the_generation_of_the_root_port_comes_from_sysfs(tmp_path: Path, speed: str, generation: int | None) -> None:
    port = tmp_path / "sys/devices/pci0000:80/0000:80:01.0"
    gpu = port / "0000:81:00.0/0000:82:00.0"  # behind a switch
    gpu.mkdir(parents=True)
    (port / "max_link_speed").write_text(f"{speed}\n")
    (gpu.parent / "max_link_speed").write_text("16.0 GT/s PCIe\n")
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:82:00.0").symlink_to(gpu)
    assert sysfs.root_port_generation("0000:82:00.0", tmp_path) == generation
    assert sysfs.root_port_generation("0000:99:00.0", tmp_path) is None


# ------------------------------------------------------------------------------- processes


def test_compute_processes_as_nvidia_smi_lists_them(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(uuid="GPU-0").process(os.getpid(), memory=1542 * MIB).process(4194303, memory=NOT_AVAILABLE)
    driver.gpu(1).process(4194302, memory=GIB, kind="G")
    arguments = ("--query-compute-apps=gpu_uuid,pid,used_memory,name,process_name", "--format=csv")
    head, mine, dead = lines(driver, *arguments)
    assert head == "gpu_uuid, pid, used_gpu_memory [MiB], process_name, process_name"
    assert mine.startswith(f"GPU-0, {os.getpid()}, 1542 MiB, ")
    assert dead == "GPU-0, 4194303, [N/A], [Not Found], [Not Found]"


def test_no_process_is_a_heading_and_no_error(driver: SimulatedDriver) -> None:
    assert lines(driver, "--query-compute-apps=pid,used_memory", "--format=csv") == ["pid, used_gpu_memory [MiB]"]
    assert lines(driver, "--query-compute-apps=pid", "--format=csv,noheader") == []


def test_processes_that_may_not_be_listed_are_a_row_that_says_so(driver: SimulatedDriver) -> None:
    driver.fault("gpu 0 call nvmlDeviceGet*RunningProcesses* no_permission")
    driver.gpu(1).process(os.getpid(), memory=MIB)
    denied, mine = lines(driver, "--compute-apps=pid,used_memory", "--format=csv,noheader")
    assert denied == "[Insufficient Permissions], [Insufficient Permissions]" and mine == f"{os.getpid()}, 1 MiB"


def test_a_process_cannot_write_to_the_terminal_by_its_name(driver: SimulatedDriver) -> None:
    named = subprocess.Popen(["bash", "-c", "exec -a $'evil\\e[2J\\nrow' sleep 30"])
    try:
        driver.gpu(0).process(named.pid, memory=MIB)
        time.sleep(0.2)
        done = query(driver, "--compute-apps=name", "--format=csv,noheader")
    finally:
        named.kill()
        named.wait()
    assert "\x1b" not in done.stdout and len(done.stdout.splitlines()) == 1 and "evil" in done.stdout


# ------------------------------------------------------------------------ other formats, loops


def test_json_is_typed_and_says_null(h200: SimulatedDriver) -> None:
    done = query(
        h200,
        "--gpu=index,memory.used,power.draw,fan.speed,persistence_mode,temperature.gpu,encoder.stats.averageFps,name",
        *("--format", "json", "-i", "0"),
    )
    assert json.loads(done.stdout) == [
        {
            "index": 0,
            "memory_used_bytes": 11937 * MIB - 1000,
            "power_draw_watts": 695.649,
            "fan_speed_percent": None,
            "persistence_mode": True,
            "temperature_gpu_celsius": 66,
            "encoder_stats_average_fps": 0,
            "name": "NVIDIA H200",
        }
    ]


def test_a_table_for_people(h200: SimulatedDriver) -> None:
    head, first, second = lines(h200, "--gpu=index,name,memory.used,fan.speed", "--format=table")
    assert head.split() == ["index", "name", "memory.used", "[MiB]", "fan.speed", "[%]"]
    assert first.endswith("—") and "NVIDIA H200" in first and "11937" in first
    assert head.index("[MiB]") + 5 == first.index("11937") + 5 == second.index("3 ") + 1


@pytest.mark.parametrize("loop", [["-lms", "100"], ["-l", "0.1"], ["--loop=0.1"], ["--loop-ms=100"], ["-lms=100"]])
def test_a_loop_writes_the_heading_once_and_ends_with_0_at_ctrl_c(driver: SimulatedDriver, loop: list[str]) -> None:
    child = subprocess.Popen(
        [*QUERY, "--query-gpu=timestamp,index", "--format=csv", "-i", "0", *loop],
        env={**driver.env, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    assert child.stdout is not None
    head, *rows = [child.stdout.readline() for _ in range(4)]
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=10)
    assert head == "timestamp, index\n" and (child.returncode, errors) == (0, "")
    assert all(re.fullmatch(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}, 0\n", row) for row in rows)
    assert len(set(rows)) == 3


def test_a_loop_of_json_is_one_object_a_line(driver: SimulatedDriver) -> None:
    child = subprocess.Popen(
        [*QUERY, "--gpu=index", "--format=json", "-lms", "100"],
        env={**driver.env, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    found = [json.loads(child.stdout.readline()) for _ in range(4)]
    child.kill()
    child.communicate()
    assert found == [{"index": 0}, {"index": 1}] * 2


def test_a_reader_that_leaves_ends_the_loop_without_a_word(driver: SimulatedDriver) -> None:
    driver.settle()
    asked = f"{shlex.join(QUERY)} --gpu=index --format=csv -lms 50 | head -1"
    done = subprocess.run(
        ["bash", "-c", asked], env={**driver.env, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=30
    )
    assert (done.stdout, done.stderr) == ("index\n", "")


def test_into_a_file(driver: SimulatedDriver, tmp_path: Path) -> None:
    file = tmp_path / "gpu.csv"
    done = query(driver, "--gpu=index", "--format=csv", "-f", str(file))
    assert (done.returncode, done.stdout, file.read_text()) == (0, "", "index\n0\n1\n")
    done = query(driver, "--gpu=index", "-f", str(tmp_path / "none" / "gpu.csv"))
    assert done.returncode == 2 and "No such file" in done.stderr


# -------------------------------------------------------------------------- errors, in words


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--query-gpu=nonsense"], 'Field "nonsense" is not a valid field to query.\n\n'),
        (["--query-gpu=index,Name"], 'Field "Name" is not a valid field to query.\n\n'),
        (["--query-compute-apps=pid,gpu_index"], 'Field "gpu_index" is not a valid field to query.\n\n'),
        (["--query-gpu=index", "--query-compute-apps=pid"], "Only one --query-* switch can be used at a time.\n"),
        (["--query-gpu=index", "--format=xml"], "Format modifier is not recognized.\n"),
        (["--query-gpu=index", "--format=csv,bogus"], "Format modifier is not recognized.\n"),
        *(
            (
                ["--query-gpu=index", loop, value],
                "Provided [-l(ms) | --loop(-ms)=] value is incorrect. Loop frequency must be greater than 0.\n\n",
            )
            for loop, value in (("-l", "0"), ("-lms", "0"), ("-l", "soon"), ("-l", "nan"))
        ),
    ],
)
def test_wrong_arguments_are_told_as_nvidia_smi_tells_them(
    driver: SimulatedDriver, arguments: list[str], said: str
) -> None:
    done = query(driver, *arguments)
    assert (done.returncode, done.stdout) == (2, said)


def test_a_slip_of_the_pen_is_told_what_was_meant(driver: SimulatedDriver) -> None:
    assert 'did you mean "utilization.gpu"?' in query(driver, "--gpu", "utilisation.gpu").stderr
    assert "--help-fields" in query(driver).stderr


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("init driver_mismatch", 18),
        ("init no_driver", 9),
        ("init no_library", 12),
        ("init no_permission", 4),
    ],
)
def test_a_driver_that_cannot_be_asked_has_nvidia_smi_s_exit_status(
    driver: SimulatedDriver, fault: str, status: int
) -> None:
    driver.fault(fault)
    done = query(driver, "--gpu=index")
    assert done.returncode == status and done.stdout == "" and done.stderr.startswith("gputop: ")


def test_the_fields_are_listed_without_a_driver() -> None:
    done = subprocess.run([*QUERY, "--help-fields"], capture_output=True, text=True, timeout=30, cwd=ROOT)
    assert done.returncode == 0 and "  used_gpu_memory or used_memory  [MiB]\n" in done.stdout
    assert all(field.name in done.stdout for field in (*GPU_FIELDS, *APP_FIELDS))


# ---------------------------------------------------------------------------------- inside


def test_a_query_imports_nothing_it_does_not_need(driver: SimulatedDriver) -> None:
    modules = imported("query", "--gpu=index,name,memory.used", "--format=csv", env=driver.env)
    assert "pynvml" in modules
    assert not modules & {
        *HEAVY,
        "psutil",
        "prometheus_client",
        "gputop.sampling.poller",
        "gputop.sources.nvml.source",
        "json",
    }


def test_a_query_asks_only_for_what_was_named(driver: SimulatedDriver) -> None:
    from gputop.sources.nvml.query import Query

    driver.load()
    asked = Query()
    asked.select(())
    fields = [field for field in GPU_FIELDS if field.name in ("memory.used", "memory.free", "memory.total")]
    memory, power, uuid = (calls(driver, f"nvmlDeviceGet{name}") for name in ("MemoryInfo_v2", "PowerUsage", "UUID"))
    asked.gpu_rows(fields)
    assert (memory(), power(), uuid()) == (2, 0, 0)  # one a GPU, for three fields
    asked.close()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (abi.AddressingMode, "c_nvmlDeviceAddressingMode_t"),
        (abi.RowRemapperHistogram, "c_nvmlRowRemapperHistogramValues"),
        (abi.SramErrors, "c_nvmlEccSramErrorStatus_v1_t"),
        (abi.FabricInfoV2, "c_nvmlGpuFabricInfo_v2_t"),
        (abi.FabricInfoV3, "c_nvmlGpuFabricInfo_v3_t"),
        (abi.PlatformInfoV2, "c_nvmlPlatformInfo_v2_t"),
        (abi.RemappedRowsV2, "c_nvmlRemappedRowsInfo_v2_t"),
        (abi.C2cMode, "c_nvmlC2cModeInfo_v1_t"),
        (abi.Hostname, "c_nvmlHostname_v1_t"),
    ],
)
def test_layouts(ours: type[ctypes.Structure], theirs: str) -> None:
    other = getattr(pynvml, theirs, None)
    if other is None:
        pytest.skip("an older pynvml")
    assert ctypes.sizeof(ours) == ctypes.sizeof(other)
    offsets = [getattr(ours, entry[0]).offset for entry in ours._fields_]
    assert offsets == [getattr(other, entry[0]).offset for entry in other._fields_]


def test_versions_of_structs() -> None:
    assert abi.version(abi.PlatformInfoV2, 2) == pynvml.nvmlPlatformInfo_v2
    assert abi.version(abi.AddressingMode, 1) == pynvml.nvmlDeviceAddressingMode_v1


def test_it_may_be_cold(driver: SimulatedDriver) -> None:
    driver.gpu(0).set(temperature=-5)
    done = query(driver, "--gpu=temperature.gpu", "--format=csv,noheader", "-i", "0")
    assert done.stdout == "-5\n"


def test_filename_never_replaces_a_file_that_is_no_text(tmp_path: Path) -> None:
    victim = tmp_path / "a.pickle"
    victim.write_bytes(b"\x80\x04\x95\x00\x00")
    with pytest.raises(Refusal, match="exists and is not text"):
        _writer(str(victim))
    assert victim.read_bytes() == b"\x80\x04\x95\x00\x00"
