"""Hosts that are gone: what was there within the last hour and is not any more, and targets that cannot be scraped."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from gputop.fleet.model import FleetGpu, FleetHost, HostState
from gputop.fleet.prometheus.client import EngineClient
from gputop.fleet.prometheus.detection import Detected
from gputop.fleet.prometheus.promql import any_of, quoted, selector, union
from gputop.fleet.prometheus.vectors import over
from gputop.fleet.states import fleet_gpu
from gputop.model import Gpu, clean_text
from gputop.units import duration_in_words

REMEMBERED_SECONDS: Final = 3600.0
_AGAIN_SECONDS: Final = 900.0  # after the first time, only what went since needs to be found
_AGES_MOST: Final = 200  # of so many hosts it is asked since when they are gone
_KEEP: Final = ("host", "uuid", "model", "gpu")


@dataclass
class LostHosts:
    """Remembers what was seen. Used by one thread at a time."""

    _seen: dict[str, tuple[float, tuple[FleetGpu, ...]]] = field(default_factory=dict)  # by host: when, what
    _asked_before: bool = False

    def find(self, client: EngineClient, detected: Detected, alive: Collection[str]) -> dict[str, FleetHost]:
        """The hosts that are gone. Raises EngineError."""
        now = time.time()
        window = _AGAIN_SECONDS if self._asked_before else REMEMBERED_SECONDS
        gone, instances = self._gone(client, detected, window)
        new = [name for name in gone if name not in self._seen]
        ages = _ages(client, detected, new, now)
        for name in new:
            self._seen[name] = (now - ages.get(name, 0.0), gone[name])
        self._asked_before = True
        self._seen = {
            name: (since, gpus)
            for name, (since, gpus) in self._seen.items()
            if name not in alive and now - since < REMEMBERED_SECONDS
        }
        down = self._down(client, detected)
        lost = {}
        for name, (since, gpus) in self._seen.items():
            age = max(0.0, now - since)
            unscraped = instances.get(name, name) in down or name in down.values()
            reason = (
                "its exporter does not answer the engine: the host is down, or the exporter is"
                if unscraped
                else f"the engine has had nothing of it for {duration_in_words(age)}: is it still a target?"
            )
            lost[name] = FleetHost(name, HostState.UNREACHABLE, reason, age, gpus)
        known = {instances.get(name, name) for name in lost}
        for instance, name in down.items():
            if instance not in known and name not in lost and name not in alive:
                reason = "its exporter does not answer the engine: the host is down, or the exporter is"
                lost[name] = FleetHost(name, HostState.UNREACHABLE, reason)
        return lost

    @staticmethod
    def _gone(
        client: EngineClient, detected: Detected, window: float
    ) -> tuple[dict[str, tuple[FleetGpu, ...]], dict[str, str]]:
        """GPUs by host, and the target each host was."""
        by_host: dict[str, dict[str, FleetGpu]] = {}
        instances: dict[str, str] = {}
        vectors = detected.vectors.general()
        alive = union(f"group by (host) ({one.identity(('host',))})" for one in vectors.scraped)
        for one in vectors.scraped:
            before = one.identity(_KEEP, of=over(window, "last"))
            lasting = f"({before}) unless on (host) ({alive})"
            if one.exporter.info:  # which is gone, too: model and index are those of then
                info = selector(one.exporter.info, one.matchers)
                lasting = f"({one.by_gpu(over(window, 'last')(info), ('host',))}) unless on (host) ({alive})"
                lasting = f"({over(window, 'last')(info)} * on ({one.exporter.uuid}) group_left () ({lasting}))"
                lasting = f'label_replace({lasting},"host","$1","instance","(.+?)(?::[0-9]+)?")'
            for labels, _ in client.query(lasting).samples:
                host = clean_text(labels.get("host", ""), 200)
                uuid = clean_text(labels.get("uuid", ""), 80)
                uuid = f"GPU-{uuid}" if one.exporter.bare_uuid and not uuid.startswith("GPU-") else uuid
                model = clean_text(labels.get("model") or labels.get(one.exporter.model, ""), 100)
                text = labels.get("gpu") or labels.get(one.exporter.index, "")
                index = int(text) if text.isdecimal() and len(text) < 6 else 0
                gpu = Gpu(index, uuid, model, 0.0)
                by_host.setdefault(host, {})[uuid] = fleet_gpu(gpu, host=HostState.UNREACHABLE)
                if "instance" in labels:
                    instances[host] = labels["instance"]
        order = {
            host: tuple(sorted(gpus.values(), key=lambda gpu: (gpu.gpu.index, gpu.gpu.uuid)))
            for host, gpus in by_host.items()
        }
        return order, instances

    @staticmethod
    def _down(client: EngineClient, detected: Detected) -> Mapping[str, str]:
        """Targets that cannot be scraped, with the names of their hosts as far as they tell."""
        if not detected.jobs:
            return {}
        down = {}
        for labels, _ in client.query(f"{selector('up', f'job=~{quoted(any_of(detected.jobs))}')} == 0").samples:
            instance = labels.get("instance", "")
            head, colon, port = instance.rpartition(":")
            host = labels.get("node") or labels.get("hostname") or (head if colon and port.isdecimal() else instance)
            down[instance] = clean_text(host, 200)
        return down


def _ages(client: EngineClient, detected: Detected, names: list[str], now: float) -> dict[str, float]:
    """How many seconds ago the engine had these hosts last, to the minute."""
    if not names or len(names) > _AGES_MOST:
        return {}
    ages: dict[str, float] = {}
    for one in detected.vectors.general().scraped:
        there = f"count by (host) ({one.identity(('host',), one.of_hosts(names))})"
        for labels, points in client.query_range(there, now - REMEMBERED_SECONDS, now, 60.0).series:
            if points:
                ages[clean_text(labels.get("host", ""), 200)] = now - points[-1][0]
    return ages
