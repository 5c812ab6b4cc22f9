"""Snapshots that torch 2.11 wrote on an H200, beside memory_stats() taken at the same instant: equal to the byte.

Made by benchmarks/hardware/torch_snapshots.py: plain, with expandable segments, without history, recorded late, and
with a ring that overflowed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.memory.snapshot_facts import facts
from gputop.memory.torch_snapshot import open_snapshot

FOLDER = Path(__file__).parent.parent / "data" / "h200"
KEYS = ("reserved", "allocated", "active", "requested", "inactive_split", "peak_requested")
#: What memory_stats() said, bytes; its peak is the process's, ours begins with the first entry (None: not the same).
SAID = {
    "plain": (132120576, 76554240, 76554240, 76554240, 13623296, 112259076),
    "expandable": (127926272, 76554240, 76554240, 76554240, 0, 112259076),
    "no-history": (132120576, 76554240, 76554240, 76554240, 13623296, None),
    "late": (132120576, 84951040, 84951040, 84951040, 5226496, None),
    "ring": (132120576, 76554240, 76554240, 76554240, 13623296, None),
}


@pytest.mark.parametrize("name", SAID)
def test_figures_are_those_of_memory_stats(name: str) -> None:
    snapshot = open_snapshot(FOLDER / f"{name}.pickle.gz")
    (device,) = facts(snapshot, snapshot.devices)["devices"]
    for key, said in zip(KEYS, SAID[name], strict=True):
        if said is not None:
            assert device[f"{key}_bytes"] == said, key


@pytest.mark.parametrize("name", [name for name in SAID if name != "no-history"])
def test_the_replay_of_the_trace_never_contradicts_the_segments(name: str) -> None:
    snapshot = open_snapshot(FOLDER / f"{name}.pickle.gz")
    device = snapshot.device(0)
    assert device is not None
    assert min(device.live(n) for n in range(-1, device.entries)) >= 0
    assert facts(snapshot, snapshot.devices)["devices"][0]["coverage"]["unmatched_events"] == 0
