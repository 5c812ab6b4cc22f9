"""Snapshots that torch 2.11 wrote on an H200, beside memory_stats() taken at the same instant: equal to the byte.

Made by benchmarks/hardware/torch_snapshots.py: plain and with expandable segments, with C++ stacks, without history,
recorded late, with a ring that overflowed, of several streams, of a CUDA graph's pool, of a leak, of an OOM.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.torch_files.snapshot.json_report import facts
from gputop.torch_files.snapshot.memory_snapshot import open_snapshot

FOLDER = Path(__file__).parents[2] / "data" / "h200"
KEYS = ("reserved", "allocated", "active", "requested", "inactive_split", "peak_requested")
#: What memory_stats() said, bytes; its peak is the process's, ours begins with the first entry (None: not the same).
SAID = {
    "plain": (132120576, 76554240, 76554240, 76554240, 13623296, 112259076),
    "expandable": (127926272, 76554240, 76554240, 76554240, 0, 112259076),
    "no-history": (132120576, 76554240, 76554240, 76554240, 13623296, None),
    "late": (132120576, 84951040, 84951040, 84951040, 5226496, None),
    "ring": (132120576, 76554240, 76554240, 76554240, 13623296, None),
    "ring-expandable": (127926272, 76554240, 76554240, 76554240, 0, None),
    "all-stacks": (132120576, 76554240, 76554240, 76554240, 13623296, 112246788),
    "streams": (341835776, 159387648, 211816448, 209715419, 27258880, 209715419),
    "streams-expandable": (314572800, 157291520, 209720320, 209715419, 0, 209715419),
    "graph": (132120576, 77595648, 77595648, 77594640, 54524928, 79691792),
    "leak": (216006656, 155173376, 155173376, 152054112, 39861760, 184600832),
    "leak-expandable": (211812352, 152064000, 152064000, 152054112, 0, 184600832),
    "oom": (2520776704, 2510293504, 2510293504, 2510290959, 10483200, 2510290959),
    "oom-expandable": (2663383040, 2340424192, 2340424192, 2340421647, 0, 2340421647),
}
LEAKED = 24, 75499872  # tensors and bytes that leak_line() kept
REFUSED = {"oom": (169869312, 138243014656), "oom-expandable": (169869312, 143787294720)}  # bytes: asked, free then


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


@pytest.mark.parametrize("name", ["leak", "leak-expandable"])
def test_the_leaking_line_is_the_first_of_the_leaks(name: str) -> None:
    snapshot = open_snapshot(FOLDER / f"{name}.pickle.gz")
    first = facts(snapshot, snapshot.devices)["devices"][0]["leaks"][0]
    assert first["frames"][0]["name"] == "leak_line"
    assert (first["count"], first["bytes"]) == LEAKED


@pytest.mark.parametrize("name", REFUSED)
def test_a_real_oom_is_explained(name: str) -> None:
    """The device had room: set_per_process_memory_fraction() did it."""
    snapshot = open_snapshot(FOLDER / f"{name}.pickle.gz")
    event = facts(snapshot, snapshot.devices)["devices"][0]["oom_events"][-1]
    assert (event["asked_bytes"], event["device_free_bytes"]) == REFUSED[name]
    assert "a limit of this process" in event["verdict"]
