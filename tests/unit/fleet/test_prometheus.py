"""gputop fleet on real engines: Debian's Prometheus and VictoriaMetrics scrape what the exporters write, and every
figure is compared with PromQL's own answer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.fleet.filter import FleetFilter
from gputop.fleet.model import FleetHost, FleetSnapshot, GpuState, HistoryRequest, HostState, Quantity
from gputop.fleet.prometheus.client import EngineClient
from gputop.fleet.prometheus.credentials import Credentials
from gputop.fleet.prometheus.source import PrometheusFleet
from gputop.fleet.totals import totals_of
from gputop.fleet.view import FleetView, HostSort
from tests.engines import (
    Engine,
    ExportedGpu,
    Expositions,
    dcgm,
    jobstats,
    nvidia_gpu_exporter,
    prometheus,
    scrape_config,
    slurm_jobs,
    victoria_metrics,
)

MIB = 1024 * 1024
ENGINES = {"prometheus": prometheus, "victoria-metrics": victoria_metrics}


def gpus(host: str, *each: ExportedGpu) -> list[ExportedGpu]:
    return [replace(gpu, index=k, uuid=f"GPU-{host}-{k}") for k, gpu in enumerate(each)]


FREE = ExportedGpu(0, "")
BUSY = ExportedGpu(0, "", util=97.0, used=70000.0, power=650.0, temperature=64.0)
IDLE = ExportedGpu(0, "", util=0.0, used=30000.0)
TRAINER = {"pod": "trainer-0", "namespace": "ml", "container": "main"}


class Site:
    """Hosts with all exporters there are, both spellings of dcgm-exporter's label, a shared GPU, MIG, a dead target."""

    def __init__(self) -> None:
        self.expositions = Expositions()
        texts = self.expositions.texts
        shared = gpus("n1", FREE, replace(BUSY, labels=TRAINER))
        copies = [
            *shared,
            replace(shared[1], labels={**TRAINER, "pod": "trainer-1"}),
        ]  # a GPU that two pods share (#594)
        texts["/n1"] = dcgm("n1", copies)
        texts["/n2"] = dcgm(
            "n2", gpus("n2", replace(FREE, xid=79), replace(IDLE, labels={"hpc_job": "88123"})), "hostname"
        )
        texts["/n3"] = dcgm("localhost", gpus("n3", replace(FREE, model="Tesla T4", total=15360.0)))
        smi = gpus("n4", replace(BUSY, util=50.0, used=1000.0))
        texts["/n4"] = nvidia_gpu_exporter(smi, [(smi[0].uuid, 77, "python", 2.0**30)])
        texts["/n5"] = jobstats(gpus("n5", FREE, replace(BUSY, util=20.0)), {"GPU-n5-1": (4711, 1000)})
        texts["/n1-slurm"] = slurm_jobs([("ml", "991", 1)])
        mig = replace(FREE, util=None, mig=((1, "3g.40gb", 9000.0, 31000.0), (2, "3g.40gb", 0.0, 40000.0)))
        texts["/n7"] = dcgm("n7", gpus("n7", mig))
        texts["/n1-smi"] = nvidia_gpu_exporter([replace(gpu, used=5.0, util=1.0) for gpu in shared])  # disagrees
        texts["/gone"] = None
        self.jobs = {
            "dcgm": {f"{name}:9400": f"/{name}" for name in ("n1", "n2", "n3", "n7", "gone")},
            "smi": {"n4:9835": "/n4", "n1:9835": "/n1-smi"},
            "jobstats": {"n5:9445": "/n5"},
            "slurm": {"n1:9798": "/n1-slurm"},
        }

    @property
    def config(self) -> str:
        return scrape_config(self.expositions.address, self.jobs)


@pytest.fixture(scope="module", params=list(ENGINES))
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Engine]]:
    made = Site()
    with (
        contextlib.closing(made.expositions),
        ENGINES[request.param](tmp_path_factory.mktemp("engine"), made.config) as engine,
    ):
        engine.until(lambda: len(engine.query("up")) == 9)
        engine.until(lambda: all(map(engine.query, ("DCGM_FI_DEV_FB_USED", "nvidia_smi_gpu_info", "nvidia_gpu_jobId"))))
        engine.until(lambda: engine.query("slurm_job_utilization_gpu") and len(engine.query("up == 1")) == 8)
        yield made, engine


def fleet_of(engine: Engine) -> PrometheusFleet:
    return PrometheusFleet(EngineClient(engine.url, Credentials()))


@pytest.fixture(scope="module")
def fleet(site: tuple[Site, Engine]) -> Iterator[PrometheusFleet]:
    with contextlib.closing(fleet_of(site[1])) as made:
        yield made


@pytest.fixture(scope="module")
def snapshot(fleet: PrometheusFleet) -> FleetSnapshot:
    read = fleet.poll(FleetView())
    assert read.problems == ()
    return read


def named(snapshot: FleetSnapshot, name: str) -> FleetHost:
    return next(host for host in snapshot.hosts if host.name == name)


# ------------------------------------------------------------------------ figures


def test_sums_are_those_of_the_engine(site: tuple[Site, Engine], snapshot: FleetSnapshot) -> None:
    _, engine = site
    totals = snapshot.totals
    assert totals is not None
    # n1's two GPUs are in two exporters: gpus by UUID, whoever sees them
    uuids = (
        'group by (u) (label_replace(DCGM_FI_DEV_FB_USED,"u","$1","UUID","GPU-(.*)") or '
        'label_replace(nvidia_smi_memory_used_bytes,"u","$1","uuid","(.*)") or '
        'label_replace(nvidia_gpu_memory_used_bytes,"u","$1","uuid","GPU-(.*)"))'
    )
    assert totals.gpus == engine.value(f"count({uuids})") == 9
    dcgm_used = "sum(max by (UUID, GPU_I_ID) (DCGM_FI_DEV_FB_USED)) * 1048576"
    others = 'sum(nvidia_smi_memory_used_bytes{instance!="n1:9835"}) + sum(nvidia_gpu_memory_used_bytes)'
    assert totals.memory_used_bytes == engine.value(f"{dcgm_used} + {others}")
    power = "sum(max by (UUID) (DCGM_FI_DEV_POWER_USAGE))"
    others = 'sum(nvidia_smi_power_draw_watts{instance!="n1:9835"}) + sum(nvidia_gpu_power_usage_milliwatts) / 1000'
    assert totals.power_watts == pytest.approx(engine.value(f"{power} + {others}"))
    assert (totals.gpus_free, totals.gpus_idle_held, totals.gpus_broken) == (3, 1, 1)
    assert totals.gpus_busy == 4
    assert (totals.hosts, totals.hosts_unreachable) == (7, 1)


def test_rows_add_up_to_the_sums(snapshot: FleetSnapshot) -> None:
    totals, of_rows = snapshot.totals, totals_of(snapshot.hosts)
    assert totals is not None
    for name in (
        "hosts", "gpus", "gpus_free", "gpus_busy", "gpus_idle_held", "gpus_broken", "memory_used_bytes",
        "memory_total_bytes",
    ):  # fmt: skip
        assert getattr(of_rows, name) == getattr(totals, name), name
    assert of_rows.power_watts == pytest.approx(totals.power_watts)
    assert sum(one.gpus for one in snapshot.by_model.values()) == totals.gpus


def test_a_gpu_has_the_values_of_its_exporter_in_our_units(snapshot: FleetSnapshot) -> None:
    gpu = named(snapshot, "n1").gpus[1].gpu
    assert (gpu.uuid, gpu.index, gpu.name) == ("GPU-n1-1", 1, "NVIDIA H100 80GB HBM3")
    assert gpu.memory_used_bytes == 70000 * MIB
    assert gpu.memory_total_bytes == 81559 * MIB
    assert (gpu.utilization_gpu_percent, gpu.power_watts, gpu.temperature_celsius) == (97, 650.0, 64)
    assert gpu.tensor_active_percent == pytest.approx(48.5)
    assert gpu.pci_bus_id == "00000000:19:00.0"
    assert gpu.sm_active_percent is None  # off by default: not known, not 0
    assert named(snapshot, "n4").gpus[0].gpu.power_limit_watts == 700.0
    assert named(snapshot, "n5").gpus[1].gpu.power_watts == 650.0


def test_hosts_are_named_by_either_spelling_or_by_the_target(snapshot: FleetSnapshot) -> None:
    assert [host.name for host in snapshot.hosts] == ["gone", "n1", "n2", "n3", "n4", "n5", "n7"]


def test_who_uses_a_gpu_is_known_as_far_as_an_exporter_tells(snapshot: FleetSnapshot) -> None:
    pods = {usage.pod for usage in named(snapshot, "n1").gpus[1].usages if usage.pod}
    assert pods == {"trainer-0", "trainer-1"}
    jobs = {usage.job: usage.user for usage in named(snapshot, "n1").gpus[1].usages if usage.job}
    assert jobs == {"991": "ml"}
    assert [usage.job for usage in named(snapshot, "n2").gpus[1].usages] == ["88123"]
    process = named(snapshot, "n4").gpus[0].usages[0]
    assert (process.process, process.pid, process.memory_bytes) == ("python", 77, 2**30)
    assert [(usage.job, usage.user) for usage in named(snapshot, "n5").gpus[1].usages] == [("4711", "1000")]


def test_a_gpu_in_mig_mode_is_one_gpu_whose_instances_add_up(snapshot: FleetSnapshot) -> None:
    (gpu,) = named(snapshot, "n7").gpus
    assert gpu.gpu.memory_used_bytes == 9000 * MIB
    assert [(one.name, one.memory_used_bytes) for one in gpu.gpu.mig] == [("3g.40gb", 9000 * MIB), ("3g.40gb", 0)]
    assert gpu.gpu.utilization_gpu_percent is None
    assert gpu.state is GpuState.BUSY


def test_of_two_exporters_that_disagree_the_better_one_is_believed(snapshot: FleetSnapshot) -> None:
    assert [gpu.gpu.memory_used_bytes for gpu in named(snapshot, "n1").gpus] == [4 * MIB, 70000 * MIB]


def test_a_target_that_cannot_be_scraped_is_an_unreachable_host_and_not_absent(snapshot: FleetSnapshot) -> None:
    host = named(snapshot, "gone")
    assert host.state is HostState.UNREACHABLE
    assert host.reason is not None and "does not answer" in host.reason


def test_a_broken_gpu_says_why(snapshot: FleetSnapshot) -> None:
    broken = named(snapshot, "n2").gpus[0]
    assert (broken.state, broken.problem) == (GpuState.BROKEN, "Xid 79: fallen off the bus")


# ------------------------------------------------------------------------ views


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("free>=1", ["n1", "n3", "n5"]),
        ("model:t4", ["n3"]),
        ("user:ml", ["n1"]),
        ("job:88", ["n2"]),
        ("job:4711", ["n5"]),
        ("pod:trainer", ["n1"]),
        ("namespace:ml", ["n1"]),
        ("state:broken", ["n2"]),
        ("state:idle", ["n2"]),
        ("state:down", ["gone"]),
        ("!state:down", ["n1", "n2", "n3", "n4", "n5", "n7"]),
        ("N4", ["n4"]),
        ("host:n4,n5", ["n4", "n5"]),
        ("mem>60%", []),
        ("util>30", ["n1", "n4"]),
        ("free>=1 !model:t4", ["n1", "n5"]),
        ('user:"x\\"} or vector(1) #"', []),
    ],
)
def test_hosts_pass_a_filter_as_the_engine_judges(fleet: PrometheusFleet, text: str, names: list[str]) -> None:
    asked = FleetFilter.parse(text)
    assert asked.problems == ()
    page = fleet.poll(FleetView(asked, count=20))
    assert page.problems == ()
    assert [host.name for host in page.hosts] == names
    assert page.hosts_matched == len(names)
    assert page.matched is not None and page.matched.hosts == len(names)


def test_hosts_are_in_order_and_come_in_pages(fleet: PrometheusFleet) -> None:
    def names(sort: HostSort, first: int = 0, count: int = 20, reverse: bool = False) -> list[str]:
        view = FleetView(sort=sort, first=first, count=count, reverse=reverse)
        return [host.name for host in fleet.poll(view).hosts]

    assert names(HostSort.UTILIZATION) == ["n4", "n1", "n5", "n2", "n3", "n7", "gone"]
    assert names(HostSort.PROBLEM)[:2] == ["gone", "n2"]
    assert names(HostSort.POWER)[0] == "n1"
    assert names(HostSort.NAME, first=2, count=3) == ["n2", "n3", "n4"]
    assert names(HostSort.NAME, reverse=True)[0] == "n7"


def test_groups_are_summed_by_the_engine(fleet: PrometheusFleet) -> None:
    def groups(by: str) -> dict[str, int]:
        page = fleet.poll(FleetView(group_by=by, count=5))
        assert page.problems == ()
        return {group.label: group.totals.gpus for group in page.groups}

    assert groups("model") == {"NVIDIA H100 80GB HBM3": 8, "Tesla T4": 1}
    assert groups("user") == {"ml": 1, "": 8}
    assert groups("namespace") == {"ml": 1, "": 8}
    assert groups("pod") == {"trainer-0": 1, "trainer-1": 1, "": 8}  # the shared GPU is in both


def test_the_past_is_that_of_a_range_query(site: tuple[Site, Engine], fleet: PrometheusFleet) -> None:
    now = time.time()
    history = fleet.history(HistoryRequest(Quantity.POWER, now - 20, now, 5, "n1"))
    assert history.problem is None
    assert [value for value in history.series[""] if value is not None][-1] == 720.0
    each = fleet.history(HistoryRequest(Quantity.UTILIZATION, now - 20, now, 5, "n1", by_gpu=True))
    assert {uuid: values[-1] for uuid, values in each.series.items()} == {"GPU-n1-0": 0.0, "GPU-n1-1": 97.0}


def test_one_host_is_read_by_its_name(fleet: PrometheusFleet) -> None:
    host = fleet.host("n2")
    assert host is not None and [gpu.gpu.uuid for gpu in host.gpus] == ["GPU-n2-0", "GPU-n2-1"]
    assert fleet.host("nobody") is None


# ----------------------------------------------------------------- what goes away


@pytest.mark.parametrize("engine_name", list(ENGINES))
def test_a_host_that_goes_down_is_remembered_with_its_gpus(engine_name: str, tmp_path: Path) -> None:
    expositions = Expositions()
    for name in ("a", "b"):
        expositions.texts[f"/{name}"] = dcgm(name, gpus(name, FREE, BUSY))
    config = scrape_config(expositions.address, {"dcgm": {"a:9400": "/a", "b:9400": "/b"}})
    with contextlib.closing(expositions), ENGINES[engine_name](tmp_path, config) as engine:
        engine.until(lambda: len(engine.query("DCGM_FI_DEV_FB_USED")) == 4)
        with contextlib.closing(fleet_of(engine)) as fleet:
            before = fleet.poll(FleetView())
            assert before.totals is not None and (before.totals.gpus, before.totals.gpus_free) == (4, 2)
            expositions.texts["/b"] = None
            engine.until(lambda: len(engine.query("DCGM_FI_DEV_FB_USED")) == 2)
        with contextlib.closing(fleet_of(engine)) as fleet:  # one that starts afterwards knows it, too
            after = fleet.poll(FleetView())
        lost = named(after, "b")
        assert lost.state is HostState.UNREACHABLE
        assert [(gpu.gpu.uuid, gpu.gpu.name, gpu.state) for gpu in lost.gpus] == [
            (f"GPU-b-{k}", "NVIDIA H100 80GB HBM3", GpuState.UNREACHABLE) for k in range(2)
        ]
        totals = after.totals
        assert totals is not None
        assert (totals.gpus, totals.gpus_free, totals.gpus_unreachable) == (4, 1, 2)
        assert totals.memory_used_bytes == (4 + 70000) * MIB


def test_pods_that_begin_to_share_a_gpu_do_not_count_it_twice(tmp_path: Path) -> None:
    expositions = Expositions()
    each = gpus("a", FREE, BUSY)
    expositions.texts["/a"] = dcgm("a", each)
    config = scrape_config(expositions.address, {"dcgm": {"a:9400": "/a"}})
    with contextlib.closing(expositions), prometheus(tmp_path, config) as engine:
        engine.until(lambda: len(engine.query("DCGM_FI_DEV_FB_USED")) == 2)
        with contextlib.closing(fleet_of(engine)) as fleet:
            assert fleet.poll(FleetView()).totals is not None
            detected = fleet._detected.value
            assert detected is not None and detected.vectors.plain is not None
            copies = [replace(each[1], labels={"pod": f"p{k}", "namespace": "x", "container": "c"}) for k in range(3)]
            expositions.texts["/a"] = dcgm("a", [each[0], *copies])
            engine.until(lambda: len(engine.query("DCGM_FI_DEV_FB_USED")) == 4)
            fleet._states.at = -1e9  # as after STATES_SECONDS
            fleet._detected.at -= 10
            totals = fleet.poll(FleetView()).totals
            assert totals is not None and (totals.gpus, totals.gpus_busy) == (2, 1)
            assert fleet.poll(FleetView()).hosts[0].gpus[1].gpu.memory_used_bytes == 70000 * MIB
