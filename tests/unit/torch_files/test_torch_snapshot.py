"""Memory snapshots beside an allocator that knows the answers: to the byte, in every form, after any ring overflow."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import Any

import pytest

from gputop.torch_files.snapshot import groups as groups
from gputop.torch_files.snapshot.diff import difference
from gputop.torch_files.snapshot.frames import FrameCollector
from gputop.torch_files.snapshot.layout import free_at, segment_uses
from gputop.torch_files.snapshot.leaks import leaks, steps
from gputop.torch_files.snapshot.memory_snapshot import DeviceSnapshot, MemorySnapshot, open_snapshot
from gputop.torch_files.snapshot.oom import asked_for, out_of_memory
from gputop.torch_files.snapshot.overview import coverage, coverage_sentences, overview
from gputop.torch_files.snapshot.phases import phases
from tests.unit.torch_files import allocator_simulator as sim
from tests.unit.torch_files.allocator_simulator import MIB, Allocator


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    def write_and_open(data: Any, protocol: int = 4, zipped: bool = False) -> MemorySnapshot:
        raw = sim.dumps(data, protocol)
        path = tmp_path / f"snapshot-{len(list(tmp_path.iterdir()))}.pickle"
        path.write_bytes(gzip.compress(raw) if zipped else raw)
        return open_snapshot(path)

    return write_and_open


def totals_of(device: DeviceSnapshot) -> dict[str, int]:
    totals = overview(device).totals
    return {
        "reserved_bytes": totals.reserved,
        "allocated_bytes": totals.allocated,
        "active_bytes": totals.active,
        "requested_bytes": totals.requested,
        "inactive_bytes": totals.inactive,
        "inactive_split_bytes": totals.inactive_split,
        "largest_free_block_bytes": totals.largest_free,
        "releasable_bytes": totals.releasable,
    }


def assert_dump_agrees(device: DeviceSnapshot, allocator: Allocator) -> None:
    told, known = totals_of(device), allocator.stats()
    if allocator.expandable:
        del told["releasable_bytes"], known["releasable_bytes"]
    assert told == known


def assert_moments_agree(device: DeviceSnapshot, allocator: Allocator) -> None:
    """Every moment that the ring still covers."""
    n = device.entries
    lost = len(allocator.truth.live) - n
    assert [device.live(moment) for moment in range(n)] == allocator.truth.live[lost:]
    assert [device.reserved(moment) for moment in range(n)] == allocator.truth.reserved[lost:]
    if lost:
        assert device.live(-1) == allocator.truth.live[lost - 1]
        assert device.reserved(-1) == allocator.truth.reserved[lost - 1]
    for moment in {-1 if lost else 0, 0, n // 3, n // 2, n - 1, device.peak[0]}:
        held = {device.row_address[row]: device.row_size[row] for row in device.rows_at(moment)}
        assert held == allocator.truth.held[lost + moment]
    most = max([*allocator.truth.live[lost:], device.live(-1)])
    at, peak = device.peak
    assert peak == most and device.live(at) == most
    assert all(device.live(moment) < most for moment in range(-1, at))


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("ring", [None, 3000, 700, 50, 1])
def test_every_moment_agrees_to_the_byte_however_much_of_the_ring_was_lost(
    opened: Any, ring: int | None, expandable: bool
) -> None:
    allocator = Allocator(ring=ring, expandable=expandable)
    sim.chaos(allocator, 2500, seed=ring or 0)
    device = opened(sim.snapshot(allocator)).devices[0]
    assert_dump_agrees(device, allocator)
    assert_moments_agree(device, allocator)


def test_recording_that_begins_late_counts_what_was_there_before(opened: Any) -> None:
    allocator = Allocator()
    allocator.recording = False
    sim.chaos(allocator, 600, seed=3)
    before = allocator.live
    allocator.recording = True
    sim.chaos(allocator, 900, seed=4)
    device = opened(sim.snapshot(allocator)).devices[0]
    assert device.live(-1) == before
    assert_moments_agree(device, allocator)
    assert coverage(device).before == before and "before the first entry" in " ".join(coverage_sentences(device))


def test_several_devices_streams_and_pools_keep_apart(opened: Any) -> None:
    allocators = [Allocator(device) for device in (0, 1, 3)]
    for n, allocator in enumerate(allocators):
        sim.chaos(allocator, 800, seed=n)
    snapshot = opened(sim.snapshot(*allocators))
    assert [device.number for device in snapshot.devices] == [0, 1, 3]
    for device, allocator in zip(snapshot.devices, allocators, strict=True):
        assert_dump_agrees(device, allocator)
        assert_moments_agree(device, allocator)
        for key, totals in overview(device).pools.items():
            mine = [
                s
                for s in allocator.segments
                if (s.pool, s.stream, s.small) == (snapshot.pools[key.pool], snapshot.streams[key.stream], key.small)
            ]
            assert totals.reserved == sum(s.size for s in mine) and totals.segments == len(mine)


@pytest.mark.parametrize("form", ["1.8", "1.13", "2.0", "2.1", "2.12"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_forms_since_1_8_in_every_protocol(opened: Any, form: str, protocol: int) -> None:
    allocator = Allocator()
    sim.chaos(allocator, 700, seed=9)
    snapshot = opened(sim.as_form(sim.snapshot(allocator), form), protocol, zipped=protocol == 3)
    device = snapshot.devices[0]
    told, known = totals_of(device), allocator.stats()
    if form == "1.8":
        assert not device.has_requested
        known["requested_bytes"] = known["active_bytes"]
    assert told == known
    if form in ("1.8", "1.13"):
        assert not device.entries and "No trace" in coverage_sentences(device)[0]
    else:
        assert [device.live(n) for n in range(device.entries)] == allocator.truth.live
    if form != "1.8":
        blocks = {b.address: b for s in allocator.segments for b in s.blocks}
        for block, address in enumerate(device.block_address):
            frames = snapshot.frames.frames(device.block_stack[block])
            assert [f._asdict() for f in frames] == (blocks[address].frames or [])


def test_the_peak_is_found_by_way_of_the_coarse_levels(opened: Any) -> None:
    allocator = Allocator(keep_held=False)
    allocator.malloc(5)
    kept = allocator.malloc(50 * MIB)
    for _ in range(4000):
        allocator.free(allocator.malloc(700))
    allocator.free(kept)
    top = allocator.malloc(60 * MIB)
    allocator.free(top)
    device = opened(sim.snapshot(allocator)).devices[0]
    assert len(allocator.truth.live) > 10_000
    assert device.peak == (allocator.truth.live.index(max(allocator.truth.live)), 5 + 60 * MIB)
    for start, end in [(0, 9), (3, 11_000), (777, 4242), (100, 5000), (1, 1), (12_000, device.entries)]:
        assert device.most_live(start, end) == max(allocator.truth.live[start:end], default=0)
        assert device.most_reserved(start, end) == max(allocator.truth.reserved[start:end], default=0)


def test_allocations_are_grouped_by_the_users_frames(opened: Any) -> None:
    allocator = Allocator()
    sim.training(allocator)
    snapshot = opened(sim.snapshot(allocator))
    device = snapshot.devices[0]
    found = groups.by_stack(device, device.rows_at(device.last))
    assert sum(group.bytes for group in found) == allocator.live
    by_title = {groups.stack_title(device, group.stack): group for group in found}
    assert by_title["metrics.py:7 log_loss"].count == 20
    assert by_title["metrics.py:7 log_loss"].bytes == 20 * (3 * MIB + 100)
    assert by_title["train.py:12 build"].count == 8
    whole = groups.by_stack(device, device.rows_at(device.last), folded=False)
    assert "torch::unwind::unwind()" in {snapshot.frames.frames(group.stack)[0].name for group in whole}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("size>1M", lambda size, stream, pool, text: size > MIB),
        ("size<4K", lambda size, stream, pool, text: size < 4096),
        ("!size<4K", lambda size, stream, pool, text: size >= 4096),
        ("stream:default", lambda size, stream, pool, text: stream == 0),
        ("stream:0x55aa0010", lambda size, stream, pool, text: stream == 0x55AA0010),
        ("!stream:0", lambda size, stream, pool, text: stream != 0),
        ("pool:private", lambda size, stream, pool, text: pool != (0, 0)),
        ("pool:1,0", lambda size, stream, pool, text: pool == (1, 0)),
        ("part1.py", lambda size, stream, pool, text: "part1.py" in text),
        ("!part1.py size>1M pool:default", lambda s, _, p, text: "part1.py" not in text and s > MIB and p == (0, 0)),
    ],
)
def test_filters(opened: Any, text: str, wanted: Any) -> None:
    allocator = Allocator()
    sim.chaos(allocator, 1200, seed=5)
    snapshot = opened(sim.snapshot(allocator))
    device = snapshot.devices[0]
    rows = device.rows_at(device.last)
    passed = set(groups.parse_filter(text).rows(device, rows))
    assert passed
    for row in rows:
        facts = (
            device.row_size[row],
            snapshot.streams[device.row_stream[row]],
            snapshot.pools[device.row_pool[row]],
            snapshot.frames.text(device.row_stack[row]),
        )
        assert (row in passed) == wanted(*facts)


def test_a_filter_that_cannot_be_read_says_why() -> None:
    for text, words in (("size>lots", "not a size"), ("stream:red", "stream is a number")):
        with pytest.raises(ValueError, match=words):
            groups.parse_filter(text)


@pytest.mark.parametrize("ring", [None, 400])
def test_the_leaking_line_is_the_first_row(opened: Any, ring: int | None) -> None:
    allocator = Allocator(ring=ring)
    sim.training(allocator, steps=25)
    for _ in range(6):
        allocator.malloc(40 * MIB, sim.ACTIVATION)  # a step in progress holds more than ever leaked
    device = opened(sim.snapshot(allocator)).devices[0]
    found = leaks(device)
    assert groups.stack_title(device, found[0].stack) == "metrics.py:7 log_loss"
    assert [leak.growing for leak in found].count(True) == 1
    if ring is None:
        assert (found[0].count, found[0].bytes) == (25, 25 * (3 * MIB + 100))
        assert sum(found[0].by_step) == found[0].bytes


def test_no_leak_where_there_is_none(opened: Any) -> None:
    allocator = Allocator()
    sim.training(allocator, steps=25, leak=0)
    assert not any(leak.growing for leak in leaks(opened(sim.snapshot(allocator)).devices[0]))


def test_steps_come_from_annotations_or_metadata_where_there_are_any(opened: Any) -> None:
    allocator = Allocator()
    starts, annotations = [], []
    for n in range(8):
        allocator.note = f"step {n}"
        starts.append(len(allocator.trace))
        allocator.free(allocator.malloc(MIB, sim.ACTIVATION))
        at = allocator.trace[starts[-1]]["time_us"]
        annotations += [{"name": f"ProfilerStep#{n}", "stage": s, "device": 0, "time_us": at} for s in ("START", "END")]
    data = sim.snapshot(allocator)
    assert steps(opened(data).devices[0]).starts == tuple(starts)
    data["external_annotations"] = annotations
    cut = steps(opened(data).devices[0])
    assert cut.starts == tuple(starts) and "ProfilerStep" in cut.origin


def test_phases_are_those_open_at_the_moment(opened: Any) -> None:
    allocator = Allocator()
    sim.training(allocator, steps=1)
    data = sim.snapshot(allocator)
    marks = [(10, "step", "START"), (20, "forward", "START"), (30, "forward", "END"), (40, "step", "END")]
    data["external_annotations"] = [{"name": n, "stage": s, "device": 0, "time_us": t} for t, n, s in marks]
    told = phases(opened(data).devices[0])
    assert [told.at(t) for t in (5, 10, 25, 35, 45)] == [(), ("step",), ("step", "forward"), ("step",), ()]


def test_what_the_profiler_made_of_a_run_is_read(opened: Any) -> None:
    """_memory_viz.profile_plot: categories, blocks without addresses, the last device is the CPU."""
    frames = [sim.frame("aten::empty", "none", 0)]
    entries = [
        {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "frames": frames, "category": "ACTIVATION"},
        {"action": "alloc", "addr": 8192, "size": 1024, "stream": 0, "frames": frames, "category": "UNKNOWN"},
        {"action": "free_requested", "addr": 4096, "size": 512, "stream": 0, "frames": frames},
        {"action": "free_completed", "addr": 4096, "size": 512, "stream": 0, "frames": frames},
    ]
    blocks = [
        {"size": 512, "state": "inactive"},
        {"size": 1024, "state": "active_allocated", "requested_size": 1024, "frames": frames},
    ]
    segment = {"device": 0, "address": 7680, "total_size": 1536, "stream": 0, "segment_type": "large", "blocks": blocks}
    device = opened({"segments": [segment], "device_traces": [entries, []]}).devices[0]
    assert [device.live(n) for n in range(-1, 4)] == [0, 512, 1536, 1536, 1024]
    assert device.peak == (1, 1536) and totals_of(device)["allocated_bytes"] == 1024


def fill(allocator: Allocator, size: int, count: int, **where: Any) -> list[int]:
    return [allocator.malloc(size, sim.ACTIVATION, **where) for _ in range(count)]


def ask(allocator: Allocator, size: int, **where: Any) -> None:
    with pytest.raises(MemoryError):
        allocator.malloc(size, sim.GRADIENT, **where)


def fragmented(allocator: Allocator) -> None:
    """Every 20 MiB segment keeps 5 MiB of its own."""
    for address in [a for n, a in enumerate(fill(allocator, 5 * MIB, 60)) if n % 4]:
        allocator.free(address)
    ask(allocator, 100 * MIB)


def on_another_stream(allocator: Allocator) -> None:
    big, _ = allocator.malloc(200 * MIB, stream=7), allocator.malloc(40 * MIB, stream=7)
    allocator.capacity = allocator.reserved + 10 * MIB
    pin = allocator._blocks[big]
    allocator.free(big)
    pin[1].size -= 2 * MIB  # something small lives at its end, so it cannot be given back
    pin[0].blocks.append(sim.Block(pin[1].address + pin[1].size, 2 * MIB, 2 * MIB, "active_allocated"))
    allocator.live += 2 * MIB
    ask(allocator, 150 * MIB)


def simply_full(allocator: Allocator) -> None:
    fill(allocator, 90 * MIB, 3)
    ask(allocator, 90 * MIB)


@pytest.mark.parametrize(
    ("story", "words"),
    [(fragmented, "fragmentation"), (on_another_stream, "another stream"), (simply_full, "did not fit")],
)
def test_an_oom_is_explained_by_the_rule_that_failed(opened: Any, story: Any, words: str) -> None:
    allocator = Allocator(capacity=310 * MIB)
    story(allocator)
    device = opened(sim.snapshot(allocator)).devices[0]
    assert len(device.ooms) == 1
    told = out_of_memory(device, *device.ooms[0])
    assert words in told.verdict and told.exact
    assert told.device_free == allocator.capacity - allocator.reserved
    assert (told.reserved, told.live) == (allocator.reserved, allocator.live)


def test_an_oom_in_the_past_is_explained_from_the_layout_of_then(opened: Any) -> None:
    allocator = Allocator(capacity=310 * MIB)
    fragmented(allocator)
    free = sorted(b.size for s in allocator.segments for b in s.blocks if b.state == "inactive")
    entry = len(allocator.trace) - 1
    for address in list(allocator.held):
        allocator.free(address)
    allocator.empty_cache()
    allocator.capacity *= 10
    sim.training(allocator, steps=2, layers=2)
    device = opened(sim.snapshot(allocator)).devices[0]
    assert sorted(part.size for part in free_at(device, entry)) == free
    told = out_of_memory(device, *device.ooms[0])
    assert "fragmentation" in told.verdict and not told.exact and told.fits == max(free)


def test_segments_that_waste_the_most_name_what_pins_them(opened: Any) -> None:
    allocator = Allocator(capacity=310 * MIB)
    fragmented(allocator)
    device = opened(sim.snapshot(allocator)).devices[0]
    first = segment_uses(device)[0]
    assert first.wasted == 15 * MIB and [device.block_size[pin] for pin in first.pins] == [5 * MIB]


def test_a_diff_names_what_grew(opened: Any) -> None:
    before, after = Allocator(), Allocator()
    sim.training(before, steps=10)
    sim.training(after, steps=30)
    first = difference(opened(sim.snapshot(before)).devices[0], opened(sim.snapshot(after)).devices[0])[0]
    assert first.frames[0].name == "log_loss"
    assert (first.bytes, first.count) == (20 * (3 * MIB + 100), 20)


def test_entries_of_whole_kinds_may_be_missing(opened: Any) -> None:
    """skip_actions of torch 2.11: whatever is left out, the end is right and what cannot be known is said."""
    allocator = Allocator()
    sim.chaos(allocator, 900, seed=11)
    data = sim.snapshot(allocator)
    whole = data["device_traces"][0]
    for skipped in ({"free_completed"}, {"free_requested"}, {"alloc"}, {"free_requested", "free_completed"}):
        data["device_traces"] = [[entry for entry in whole if entry["action"] not in skipped]]
        device = opened(data).devices[0]
        assert device.live(device.last) == allocator.live
        assert min(device.live(n) for n in range(device.entries)) >= 0
        assert_dump_agrees(device, allocator)


def test_pinned_host_memory_is_a_device_of_its_own(opened: Any) -> None:
    allocator, host = Allocator(), Allocator(5)
    sim.chaos(allocator, 50)
    sim.chaos(host, 50)
    data = sim.snapshot(allocator)
    data |= {"host_segments": host.segment_dicts(), "host_traces": [list(host.trace)]}
    snapshot = opened(data)
    assert [device.label for device in snapshot.devices] == ["device 0", "pinned host memory"]
    assert_dump_agrees(snapshot.devices[1], host)


def test_names_from_the_file_are_made_safe_to_show(opened: Any) -> None:
    allocator = Allocator()
    allocator.malloc(5, [sim.frame("f\x1b]0;x\x07\u202eevil", "/home/\x9bml.py", 3)])
    frame = opened(sim.snapshot(allocator)).frames.frame(0)
    assert "\x1b" not in str(frame) and "\u202e" not in str(frame) and "\x9b" not in str(frame)


def test_frames_lists_of_their_own_are_one_stack_and_doubling_frames_take_no_time() -> None:
    """Lists are compared where some of their frames are the same; what could take for ever to compare never is."""
    plain = [{"name": f"f{n}", "filename": "train.py", "line": n} for n in range(20)]
    other = [*plain[:5], {"name": "g", "filename": "train.py", "line": 5}, *plain[6:]]
    frames = FrameCollector()
    assert len(set(frames.stacks([list(plain), list(plain), tuple(plain)]))) == 1
    assert len(set(frames.stacks([list(plain), other, [*other]]))) == 2

    def bomb() -> object:
        doubled: object = [0]
        for _ in range(60):
            doubled = [doubled, doubled]
        return doubled

    began = time.process_time()
    bombs = [[*plain[:5], {"name": bomb()}, *plain[6:]] for _ in range(4)]
    bombs += [[*plain[:5], bomb(), *plain[6:]] for _ in range(4)]
    frames.stacks(bombs)
    frames = FrameCollector()
    frames.stacks([*bombs, list(plain)])
    assert time.process_time() - began < 5


def test_an_oom_is_told_in_the_size_of_torchs_own_message_too(opened: Any) -> None:
    """The allocator asks the driver for whole segments: 161 MiB are "Tried to allocate 162.00 MiB"."""
    for asked, message in ((161 * MIB, "162.00 MiB"), (5 * MIB, "20.00 MiB"), (600, "2.00 MiB"), (3 << 30, "3.00 GiB")):
        entry = {"action": "oom", "size": asked, "device_free": 0, "stream": 0}
        device = opened({"segments": [], "device_traces": [[entry]]}).devices[0]
        assert asked_for(out_of_memory(device, *device.ooms[0])).endswith(f"tried to allocate {message}")
