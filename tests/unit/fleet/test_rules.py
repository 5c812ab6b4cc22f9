"""The recording rules, the alerts and the dashboard of grafana/ for a fleet."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from pathlib import Path

import pytest

from gputop.fleet.prometheus.client import EngineClient
from gputop.fleet.prometheus.credentials import Credentials
from gputop.fleet.prometheus.recorded import FLEET_SERIES, MODEL_SERIES
from gputop.fleet.prometheus.rules import rules_of
from gputop.fleet.prometheus.source import PrometheusFleet
from gputop.fleet.view import FleetView
from tests.engines import ExportedGpu, Expositions, dcgm, need, prometheus, scrape_config

GRAFANA = Path(__file__).resolve().parents[3] / "grafana"


@pytest.mark.parametrize("name", ["dcgm", "gputop"])
def test_the_rules_in_the_repository_are_those_of_the_code(name: str) -> None:
    assert (GRAFANA / f"fleet-{name}.rules.yml").read_text() == rules_of(name)


@pytest.mark.parametrize("name", ["dcgm", "gputop"])
def test_promtool_accepts_the_rules(name: str) -> None:
    done = subprocess.run(
        [need("promtool"), "check", "rules", str(GRAFANA / f"fleet-{name}.rules.yml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_recorded_series_and_alerts_are_what_they_should_be() -> None:
    test = GRAFANA / "fleet-dcgm.test.yml"
    done = subprocess.run([need("promtool"), "test", "rules", str(test)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_of_a_fleet_asks_for_series_that_the_rules_record() -> None:
    panels = json.loads((GRAFANA / "fleet.json").read_text())["panels"]
    asked = {name for panel in panels for one in panel["targets"] for name in re.findall(r"gputop:[\w:]+", one["expr"])}
    assert asked and asked <= {*MODEL_SERIES.values(), *FLEET_SERIES.values()}


def test_where_the_rules_are_loaded_the_head_is_read_from_them(tmp_path: Path) -> None:
    expositions = Expositions()
    gpus = [ExportedGpu(0, "GPU-0"), ExportedGpu(1, "GPU-1", util=80.0, used=60000.0), ExportedGpu(2, "GPU-2", xid=79)]
    expositions.texts["/a"] = dcgm("a", gpus)
    rules = tmp_path / "rules.yml"
    rules.write_text(rules_of("dcgm").replace("interval: 30s", "interval: 1s"))
    config = scrape_config(expositions.address, {"dcgm": {"a:9400": "/a"}}) + f"rule_files: [{rules}]\n"
    with contextlib.closing(expositions), prometheus(tmp_path, config) as engine:
        engine.until(lambda: len(engine.query('{__name__=~"gputop:(model|fleet)_.*"}')) >= 13)
        engine.until(lambda: engine.value("sum(gputop:model_memory_used_bytes:sum)") == 60008 * 2**20)
        with contextlib.closing(PrometheusFleet(EngineClient(engine.url, Credentials()))) as fleet:
            snapshot = fleet.poll(FleetView())
            assert fleet._detected.value is not None and fleet._detected.value.recorded
        totals = snapshot.totals
        assert totals is not None and not snapshot.problems
        assert (totals.gpus, totals.gpus_free, totals.gpus_busy, totals.gpus_broken) == (3, 1, 1, 1)
        assert (totals.hosts, totals.memory_used_bytes) == (1, 60008 * 2**20)
        assert totals.memory_total_bytes == 3 * 81559 * 2**20
        assert totals.power_watts == 210.0
