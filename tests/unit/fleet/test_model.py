"""What a fleet says: states of GPUs, sums, filters, order, and what is free."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gputop.fleet.filter import FleetFilter
from gputop.fleet.free import FreeRequest, places
from gputop.fleet.in_memory import in_order, snapshot_of
from gputop.fleet.json_output import as_dict
from gputop.fleet.model import FleetHost, GpuState, GpuUsage, HistoryRequest, HostState, Quantity
from gputop.fleet.simulated import SimulatedFleet
from gputop.fleet.states import fleet_gpu
from gputop.fleet.text import memory_in_words, power_in_words
from gputop.fleet.totals import groups_of, totals_of
from gputop.fleet.view import FleetView, HostSort
from gputop.model import Gpu
from gputop.outputs.json_lines import gpu_as_dict
from gputop.units import GIB

H100, T4 = "NVIDIA H100 80GB HBM3", "Tesla T4"


def gpu(index: int = 0, used: float | None = 0.0, util: int | None = 0, name: str = H100, **more: object) -> Gpu:
    total = (80 if name == H100 else 15) * GIB
    bytes_ = None if used is None else int(used * GIB)
    return Gpu(
        index, f"GPU-{name}-{index}", name, 0.0, memory_total_bytes=total, memory_used_bytes=bytes_,
        utilization_gpu_percent=util, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def host(name: str, free: int, of: int = 8, model: str = H100, **more: object) -> FleetHost:
    ml = (GpuUsage(user="ml", job="88123"),)
    gpus = tuple(
        fleet_gpu(gpu(k, name=model)) if k < free else fleet_gpu(gpu(k, 40.0, 97, name=model), ml) for k in range(of)
    )
    return FleetHost(name, gpus=gpus, **more)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- states


def test_a_gpu_with_a_cuda_context_and_no_load_is_not_free() -> None:
    assert fleet_gpu(gpu(used=0.5)).state is GpuState.BUSY
    assert fleet_gpu(gpu(used=0.5), idle=True).state is GpuState.IDLE_HELD
    assert fleet_gpu(gpu(used=0.004)).state is GpuState.FREE


def test_a_gpu_that_a_job_has_but_does_not_use_is_held() -> None:
    assert fleet_gpu(gpu(), (GpuUsage(job="7"),), idle=True).state is GpuState.IDLE_HELD


def test_what_is_not_known_is_not_free() -> None:
    assert fleet_gpu(gpu(used=None, util=None)).state is GpuState.UNKNOWN


def test_a_fatal_xid_breaks_a_gpu_and_a_programs_fault_does_not() -> None:
    assert fleet_gpu(gpu(), xid=79).state is GpuState.BROKEN
    faulty = fleet_gpu(gpu(), xid=31)
    assert (faulty.state, faulty.problem) == (GpuState.FREE, "Xid 31: illegal memory access by a program")


def test_full_utilization_at_idle_power_may_hang() -> None:
    hung = fleet_gpu(gpu(used=70.0, util=100, power_watts=115.0, power_limit_watts=700.0))
    assert hung.problem == "100% at 115 W: may hang"
    assert hung.state is GpuState.BUSY


def test_gpus_of_an_unreachable_host_are_counted_as_such_and_as_nothing_else() -> None:
    lost = FleetHost("n1", HostState.UNREACHABLE, "refused", 60.0, (fleet_gpu(gpu(), host=HostState.UNREACHABLE),))
    totals = totals_of([lost, host("n2", 3)])
    assert (totals.gpus, totals.gpus_free, totals.gpus_busy, totals.gpus_unreachable) == (9, 3, 5, 1)
    assert totals.hosts_unreachable == 1


def test_a_gpu_that_two_users_share_is_in_the_group_of_each() -> None:
    shared = FleetHost("n1", gpus=(fleet_gpu(gpu(used=9.0), (GpuUsage(user="ml"), GpuUsage(user="cv"))),))
    groups = {group.label: group.totals.gpus for group in groups_of([shared, host("n2", 6)], "user")}
    assert groups == {"ml": 3, "cv": 1, "": 6}


# --------------------------------------------------------------------- filters


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("free>=4", ["a"]),
        ("free >= 4 model:h100", ["a"]),
        ("model:t4", ["c"]),
        ("user:ml", ["a", "b", "c"]),
        ("!user:ml", ["d"]),
        ("job:881", ["a", "b", "c"]),
        ("state:down", ["d"]),
        ("rack:r2", ["b"]),
        ("RACK:R2", ["b"]),
        ("rack:r1,r2", ["a", "b"]),
        ("R2", ["b"]),
        ("util>50%", ["b", "c"]),
        ("mem>250GiB", ["b"]),
    ],
)
def test_hosts_pass_a_filter(text: str, names: list[str]) -> None:
    lost = FleetHost("d", HostState.UNREACHABLE, "refused")
    hosts = [
        host("a", 5, labels={"rack": "r1"}), host("b", 0, labels={"rack": "r2"}), host("c", 1, 3, T4), lost
    ]  # fmt: skip
    asked = FleetFilter.parse(text)
    assert not asked.problems
    assert [one.name for one in hosts if asked.matches(one)] == names


def test_a_term_that_makes_no_sense_is_a_problem_and_hides_nothing() -> None:
    asked = FleetFilter.parse("free>=many")
    assert asked.problems
    assert not asked


# ----------------------------------------------------------------------- order


def test_node2_comes_before_node10_and_unknown_is_last_in_both_directions() -> None:
    hosts = [host("node10", 1), host("node2", 7), FleetHost("node1", HostState.UNREACHABLE)]
    assert [one.name for one in in_order(hosts, HostSort.NAME)] == ["node1", "node2", "node10"]
    assert [one.name for one in in_order(hosts, HostSort.UTILIZATION)] == ["node10", "node2", "node1"]
    assert [one.name for one in in_order(hosts, HostSort.UTILIZATION, reverse=True)] == ["node2", "node10", "node1"]
    assert next(one.name for one in in_order(hosts, HostSort.PROBLEM)) == "node1"


def test_a_page_has_the_rows_asked_for_and_the_sums_of_everything() -> None:
    hosts = [host(f"n{k}", k % 3) for k in range(30)]
    page = snapshot_of(hosts, FleetView(FleetFilter.parse("free>=1"), first=4, count=5), 1.0, "test")
    assert [one.name for one in page.hosts] == ["n7", "n8", "n10", "n11", "n13"]
    assert page.hosts_matched == 20
    assert page.totals is not None and page.totals.hosts == 30
    assert page.matched is not None and page.matched.hosts == 20


# ------------------------------------------------------------------------ free


@pytest.mark.parametrize(
    ("text", "count", "model", "gib"),
    [
        ("4 × h100", 4, "h100", 0),
        ("4xH100", 4, "h100", 0),
        ("4 x h100", 4, "h100", 0),
        ("4 h100", 4, "h100", 0),
        ("h200", 1, "h200", 0),
        ("2 × 40GiB", 2, "", 40),
        ("2*40G", 2, "", 40),
        ("8 × h100 80GiB", 8, "h100", 80),
        ("3", 3, "", 0),
        ("1 × a100", 1, "a100", 0),
        ("4090", 1, "4090", 0),
        ("2x4090", 2, "4090", 0),
    ],
)
def test_a_request_for_free_gpus_is_read(text: str, count: int, model: str, gib: int) -> None:
    assert FreeRequest.parse(text) == FreeRequest(count, model, gib * GIB)


@pytest.mark.parametrize("text", ["", "   ", "0", "0 × h100"])
def test_a_request_for_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"request|at least"):
        FreeRequest.parse(text)


def test_the_best_fit_leaves_whole_hosts_alone() -> None:
    hosts = [host("whole", 8), host("six", 6), host("four", 4), host("three", 3), host("t4", 4, 4, T4)]
    assert [place.host.name for place in places(hosts, FreeRequest.parse("4 × h100"))] == ["four", "six", "whole"]
    assert [place.host.name for place in places(hosts, FreeRequest.parse("4"))] == ["t4", "four", "six", "whole"]


def test_what_was_free_a_while_ago_is_not_offered() -> None:
    assert not places([host("n", 8, state=HostState.STALE)], FreeRequest.parse("1"))


# ------------------------------------------------------------------- simulated


def test_the_simulated_fleet_is_the_same_at_the_same_time() -> None:
    one, other = (SimulatedFleet(40, 3, lambda: 1_790_000_000.0) for _ in range(2))
    assert one.hosts() == other.hosts()
    assert SimulatedFleet(40, 4, lambda: 1_790_000_000.0).hosts() != one.hosts()


def test_each_gpu_is_counted_in_one_state() -> None:
    totals = SimulatedFleet(200, 0, lambda: 1_790_000_000.0).poll(FleetView()).totals
    assert totals is not None
    states = (
        totals.gpus_free, totals.gpus_busy, totals.gpus_idle_held, totals.gpus_broken, totals.gpus_unreachable,
    )  # fmt: skip
    assert sum(states) == totals.gpus
    assert all(states)


def test_the_past_of_a_host_has_a_series_for_each_gpu() -> None:
    fleet = SimulatedFleet(20, 0, lambda: 1_790_000_000.0)
    name = fleet.hosts()[0].name
    asked = HistoryRequest(Quantity.POWER, 1_790_000_000.0 - 3600, 1_790_000_000.0, 30, name, by_gpu=True)
    history = fleet.history(asked)
    assert len(history.series) == len(fleet.hosts()[0].gpus)
    assert all(len(values) == len(history.times) == 30 for values in history.series.values())


def test_a_gpu_has_the_keys_of_once_json() -> None:
    fleet = as_dict(SimulatedFleet(3).poll(FleetView()))
    assert {"taken_at", "source", "totals", "hosts", "problems"} == set(fleet)
    one = fleet["hosts"][0]
    assert {"name", "state", "age_seconds", "reason", "gpus"} <= set(one)
    assert set(gpu_as_dict(gpu(), ())) <= set(one["gpus"][0])
    assert {
        "gpus", "gpus_free", "gpus_idle_held", "gpus_broken", "memory_total_bytes", "memory_used_bytes",
        "power_watts", "by_model",
    } <= set(fleet["totals"])  # fmt: skip


# --------------------------------------------------------------------- command


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gputop", "fleet", *arguments], capture_output=True, text=True)


def test_once_never_imports_textual() -> None:
    code = (
        "import sys; from gputop.cli import run; run(['fleet', '--demo=3', '--once']); print('textual' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_free_says_by_its_exit_status_whether_there_is_any() -> None:
    assert run("--demo=3", "--free", "1000 × h100").returncode == 1
    found = run("--demo=200", "--free", "1", "--json")
    assert found.returncode == 0
    assert json.loads(found.stdout)["hosts"]


def test_wrong_arguments_are_refused_in_words() -> None:
    for arguments, reason in (
        (["--demo=0", "--once"], "--demo: 0 is not from 1"),
        (["--demo=x", "--once"], "--demo: 'x' is not a number"),
        (["--demo", "--json"], "--json needs"),
        (["--demo", "--once", "--filter", "free>=many"], "--filter: free>=many"),
        (["--demo", "--once", "--sort", "luck"], "--sort: 'luck'"),
        (["--demo", "--free", "0"], "at least 1"),
    ):
        done = run(*arguments)
        assert (done.returncode, reason in done.stderr) == (2, True), done.stderr


def test_large_sums_are_in_large_units() -> None:
    assert memory_in_words(96.8 * 1024 * GIB, 140.6 * 1024 * GIB) == "96.8 / 140.6 TiB"
    assert memory_in_words(88.1 * GIB, 140.4 * GIB) == "88.1 / 140.4 GiB"
    assert memory_in_words(None, None) == "— / — GiB"
    assert [power_in_words(watts) for watts in (None, 650.0, 697_700.0, 4_658_000.0)] == [
        "—", "650 W", "697.7 kW", "4.66 MW",
    ]  # fmt: skip
