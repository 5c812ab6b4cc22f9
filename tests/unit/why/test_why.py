"""gputop why: a page that says what is so, and the exact command or line of code for it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from gputop.leaks.report import DeadPid, LeakReport
from gputop.model import (
    Finding,
    Gpu,
    GpuProcess,
    LeakVerdict,
    ProcessKey,
    Snapshot,
    TorchDevice,
    TorchReport,
    Verdict,
    replace,
)
from gputop.text import width as cells
from gputop.why.diagnosis import ObservedTrend, diagnose
from gputop.why.text import render
from tests.unit.ui.process_data import GIB, TAKEN_AT, gpu, process


def full(**changes: Any) -> Gpu:
    values = {
        "memory_used_bytes": 130 * GIB,
        "memory_reserved_bytes": GIB,
        "memory_free_bytes": 9 * GIB,
        "event_reasons_mask": 0,
    }
    return replace(gpu(0), **(values | changes))


def monitored(gib: float = 60, **changes: Any) -> GpuProcess:
    device = {
        "uuid": gpu(0).uuid,
        "allocated_bytes": 50 * GIB,
        "active_bytes": 50 * GIB,
        "reserved_bytes": 55 * GIB,
    }
    return process(10, 0, gib, torch=TorchReport(TAKEN_AT, devices=(TorchDevice(0, **(device | changes)),)))


def page(
    *processes: GpuProcess,
    report: LeakReport | None = None,
    trend: ObservedTrend | None = None,
    width: int | None = 100,
    **changes: Any,
) -> str:
    snapshot = Snapshot(TAKEN_AT, gpus=(full(**changes),), processes=processes)
    sections = diagnose(snapshot, snapshot.gpus[0], report or LeakReport(0.0), trend or ObservedTrend(0.0))
    return render(sections, snapshot, snapshot.gpus[0], width)


def test_the_owner_is_named_and_a_python_process_told_the_lines_of_code() -> None:
    text = page(process(10, 0, 129))
    assert "129.0G  pid 10  ml  /usr/bin/python train_10.py" in text
    assert "     monitor = MemoryMonitor(record_history=True)" in text
    assert "not known for pid 10" in text


def test_a_process_that_is_no_python_is_not_told_to_change_its_script() -> None:
    text = page(process(10, 0, 129, name="lammps", command="/opt/lammps/lmp"))
    assert "MemoryMonitor" not in text
    assert "Nothing stands out" in text


def test_a_cache_that_others_could_use_is_named_with_the_call_that_frees_it() -> None:
    text = page(monitored(reserved_bytes=80 * GIB, gib=81))
    assert "live 50.0G, cached 30.0G (up to 30.0G of it could be released), outside PyTorch 1.0G" in text
    assert "     torch.cuda.empty_cache()" in text


def test_fragmentation_is_named_with_the_setting_against_it() -> None:
    text = page(monitored(inactive_split_bytes=4 * GIB, retries=7))
    assert "7 cache flushes" in text
    assert "     $ export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in text


def test_memory_outside_torch_is_said_to_be_so() -> None:
    assert "holds 10.0G outside PyTorch" in page(monitored(gib=65)).replace("\n       ", " ").replace("\n     ", " ")


def test_growth_leads_to_a_recording_and_then_to_a_snapshot() -> None:
    trend = ObservedTrend(2.0**27, 70.0, {process(10).key: GIB}, 6.0)
    text = page(monitored(), trend=trend)
    assert "growing by 7.5G a minute: full in 1m10" in text
    assert "pid 10: +1.0G in 6s" in text
    assert "start recording" in text
    assert "total += loss.item()" in text


def test_a_leak_comes_with_its_evidence_its_doubts_and_the_command() -> None:
    dead = replace(process(10, 0, 38), host=None, exists=False)
    verdict = LeakVerdict(
        Verdict.LEAK,
        ProcessKey(10, None),
        ((gpu(0).uuid, 38 * GIB),),
        (Finding("R1", "it exited at 12:00 and its memory stayed"),),
        ("a child still computes",),
        (ProcessKey(20, 5), ProcessKey(21, 6)),
    )
    text = page(dead, report=LeakReport(0.0, verdicts=(verdict,)))
    assert "LEAK  pid 10  38.0G: it exited at 12:00" in text
    assert "unless a child still computes" in text
    assert "     $ kill 20 21\n" in text


def test_throttling_by_heat_is_told_and_where_to_look() -> None:
    text = page(process(10), event_reasons_mask=0x40, temperature_celsius=88, temperature_margin_celsius=-1)
    assert "clocks reduced: HW thermal" in text
    assert "nvidia-smi -i 0 -q -d PERFORMANCE" in text
    assert "(normal at full load)" in page(process(10), event_reasons_mask=0x04)


def test_what_the_driver_does_not_say_is_a_dash_and_no_zero() -> None:
    text = page(process(10, 0, None), memory_used_bytes=None, memory_free_bytes=None, event_reasons_mask=None)
    assert "— of 140.0G used" in text
    assert "—  pid 10" in text
    assert "does not report clock event reasons" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits_the_width_but_for_commands(width: int) -> None:
    text = page(*[monitored(), *(process(n, 0, 1) for n in range(20, 40))], width=width)
    for line in text.split("\n")[2:]:
        assert cells(line) <= width or line.startswith("     ")
    assert "13 more" in text


def test_the_command_prints_a_page_a_gpu_and_json() -> None:
    command = [sys.executable, "-m", "gputop", "why", "--demo", "--for", "0s"]
    done = subprocess.run([*command, "--gpu", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("GPU 0 ")
    assert "6. What to do next" in done.stdout
    done = subprocess.run([*command, "--gpu", "1", "--json"], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["gpu_index"] == 1
    done = subprocess.run([*command, "--gpu", "77"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "no such GPU" in done.stderr


def test_a_dead_pid_has_an_owner_and_what_nobody_holds_has_an_advice() -> None:
    held = ((gpu(0).uuid, GIB),)
    finding = Finding("R1", "the driver lists 7")
    verdict = LeakVerdict(Verdict.LEAK, ProcessKey(7, None), held, (finding,), (), (), user="cv", command="a.py")
    dead = process(7, 0, 3, host=None, exists=False)
    report = LeakReport(0.0, verdicts=(verdict,), dead_pids=(DeadPid(7, held, 0.0, scanned=True),))
    text = page(dead, report=report)
    assert "pid 7  cv  a.py (dead" in text
    assert "$ nvidia-smi -i 0 --gpu-reset" in text and "Nothing stands out" not in text
    text = page(dead, report=replace(report, dead_pids=(DeadPid(7, held, 0.0),)))
    assert "$ gputop leaks" in text and "--gpu-reset" not in text
