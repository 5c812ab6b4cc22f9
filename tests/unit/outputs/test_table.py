"""The table of --once: what a reader sees of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.model import Gpu, GpuProcess, Host, HostFacts, MigInstance, ProcessKey, Snapshot, clean_text, replace
from gputop.outputs.table import render
from gputop.sampling.snapshot_builder import assemble
from gputop.settings import DEFAULTS
from gputop.sources.simulated import SCENARIOS, simulated_machine
from gputop.text import width as cells

GIB = 1024**3
GPU = Gpu(
    0,
    "GPU-1",
    "NVIDIA H200",
    1000.0,
    memory_total_bytes=140 * GIB,
    memory_used_bytes=35 * GIB,
    utilization_gpu_percent=99,
    sm_active_percent=92.4,
    temperature_celsius=61,
    power_watts=694.4,
    power_limit_watts=700.0,
    event_reasons_mask=0x4,
)
FACTS = HostFacts(ProcessKey(41832, 5), 1000.0, start_time=1000.0 - 3 * 3600, user="ml", command="python train.py")
PROCESS = GpuProcess(41832, "GPU-1", "C", memory_bytes=30 * GIB, sm_percent=97, host=FACTS, exists=True)
SNAPSHOT = Snapshot(1000.0, Host("gpu01"), gpus=(GPU,), processes=(PROCESS,))


def demo(name: str) -> Snapshot:
    machine = simulated_machine(name, seed=3, clock=lambda: 1_800_000_000.0, started_before=60.0)
    driver = machine.source.open()
    readings = [machine.source.read(slot) for slot in range(machine.source.count())]
    pids = {process.pid for reading in readings for process in reading.processes}
    facts = machine.host.read(pids)
    exists = {pid: machine.host.exists(pid) for pid in pids}
    host = machine.host.machine()
    return assemble(1_800_000_000.0, readings, facts, exists, host=host, driver=driver, source="simulated")


DEMOS = {name: demo(name) for name in SCENARIOS if name not in ("slow", "hang", "thousand", "crowd")}


def test_the_numbers_are_there() -> None:
    text = render(SNAPSHOT, width=80)
    gpu, process = (line for line in text.splitlines() if re.match(r" +0 ", line))
    assert gpu.split()[:6] == ["0", "NVIDIA", "H200", "99%", "92", "35.0/140.0G"]
    assert gpu.split()[-2:] == ["61°C", "694/700W"]
    assert process.split() == ["0", "41832", "ml", "30.0G", "97", "—", "—", "3h00", "python", "train.py"]
    assert "power cap" in text


def test_the_bar_is_as_long_as_the_memory_is_full() -> None:
    bar = next(
        re.findall(r"[█▏▎▍▌▋▊▉·]{10,}", line)[0] for line in render(SNAPSHOT, width=120).splitlines() if "H200" in line
    )
    assert bar.count("█") == len(bar) // 4


def test_unknown_is_a_dash_never_zero() -> None:
    text = render(Snapshot(1.0, gpus=(Gpu(0, "slot:0", "GPU 0", 1.0),), processes=(GpuProcess(7, "slot:0", "C"),)))
    gpu, process = (line for line in text.splitlines() if re.match(r" +0 ", line))
    assert gpu.split() == ["0", "GPU", "0", "—", "—", "—", "—", "—"]
    assert process.split()[:9] == ["0", "7", "—", "C", "—", "—", "—", "—", "—"]


@pytest.mark.parametrize("name", DEMOS)
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    for line in render(DEMOS[name], width=width).splitlines():
        assert cells(line) <= width


@given(width=st.integers(60, 200), name=st.text(max_size=80), user=st.text(max_size=40), command=st.text(max_size=300))
def test_no_name_breaks_the_layout(width: int, name: str, user: str, command: str) -> None:
    facts = replace(FACTS, user=clean_text(user), command=clean_text(command))
    snapshot = replace(SNAPSHOT, gpus=(replace(GPU, name=clean_text(name)),), processes=(replace(PROCESS, host=facts),))
    for ascii_only in (False, True):
        lines = render(snapshot, width=width, ascii_only=ascii_only).rstrip("\n").split("\n")
        assert all(cells(line) <= width for line in lines)
        assert len(lines) == 7  # machine, heads, GPU, its details, a gap, heads, process


def test_a_pipe_gets_the_whole_command_line() -> None:
    long = "python train.py " + "--option " * 100
    snapshot = replace(SNAPSHOT, processes=(replace(PROCESS, host=replace(FACTS, command=long.strip())),))
    assert long.strip() in render(snapshot)
    assert long.strip() not in render(snapshot, width=120)


def test_an_error_is_told_in_words_under_its_gpu_and_only_once() -> None:
    error = "GPU is lost: it has fallen off the bus"
    lost = replace(GPU, error=error, memory_used_bytes=None)
    text = render(replace(SNAPSHOT, gpus=(lost,), problems=(f"GPU 0: {error}", "another")), width=80)
    assert text.count(error) == 1 and "! another" in text


def test_old_values_say_how_old_they_are() -> None:
    text = render(replace(SNAPSHOT, gpus=(replace(GPU, read_at=988.0, late=True),)))
    assert "12s old" in text


def test_a_dead_process_is_told_in_words() -> None:
    text = render(replace(SNAPSHOT, processes=(replace(PROCESS, host=None, exists=False),)), width=100)
    assert "† 0 41832" in text and "dead: the host has no such process" in text


def test_a_pid_of_another_namespace_is_not_called_dead() -> None:
    text = render(replace(SNAPSHOT, processes=(replace(PROCESS, host=None, exists=None),)))
    assert "dead" not in text and "another PID namespace" in text


def test_a_slowdown_is_told_with_a_sign_too() -> None:
    assert "! HW thermal" in render(replace(SNAPSHOT, gpus=(replace(GPU, event_reasons_mask=0x40),)))


def test_mig_instances_have_lines_of_their_own() -> None:
    mig = MigInstance("MIG-1", 3, 0, "3g.71gb", memory_total_bytes=70 * GIB, memory_used_bytes=7 * GIB)
    text = render(replace(SNAPSHOT, gpus=(replace(GPU, mig=(mig,)),)), width=80)
    assert re.search(r"MIG 3g\.71gb 3:0 .*7\.0/70\.0G", text)


def test_nobody_there_is_told() -> None:
    assert "No processes" in render(replace(SNAPSHOT, processes=()))


def test_the_settings_units_are_used() -> None:
    text = render(SNAPSHOT, DEFAULTS.changed(memory_unit="MiB", temperature_unit="F"), width=100)
    assert "35840/143360M" in text and "142°F" in text


@pytest.mark.parametrize("name", DEMOS)
def test_ascii_is_ascii_and_as_wide(name: str) -> None:
    plain, ascii_only = render(DEMOS[name], width=100), render(DEMOS[name], width=100, ascii_only=True)
    assert ascii_only.isascii()
    for one, other in zip(plain.splitlines(), ascii_only.splitlines(), strict=True):
        assert cells(one) == cells(other)


@pytest.mark.parametrize("name", DEMOS)
def test_colours_change_nothing_but_colours(name: str) -> None:
    colored = render(DEMOS[name], width=100, color=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == render(DEMOS[name], width=100)
    assert "\x1b" not in render(DEMOS[name], width=100)


def test_a_simulation_is_marked() -> None:
    assert render(DEMOS[""], width=80).startswith("SIMULATED")
    assert "SIMULATED" not in render(SNAPSHOT)
