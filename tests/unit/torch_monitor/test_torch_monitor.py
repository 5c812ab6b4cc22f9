"""The monitor inside a training: what it says of an allocator of known contents, and what it never does to a script."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gputop.torch_monitor import (
    Alarm,
    MemoryMonitor,
    accelerate_tracker,
    lightning_callback,
    monitor,
    oom,
    runtime_directory,
    trainer_callback,
)
from tests.unit.torch_monitor.fake_torch import GIB, MIB, FakeTorch


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeTorch:
    """A torch in sys.modules, and a runtime directory of the test's own."""
    fake = FakeTorch()
    use(monkeypatch, fake)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(oom, "_attached", False)
    monkeypatch.setattr(oom, "_written", [])
    monkeypatch.setattr(oom, "_watched", type(oom._watched)())
    return fake


def use(monkeypatch: pytest.MonkeyPatch, fake: FakeTorch) -> FakeTorch:
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def report(tmp_path: Path) -> Any:
    return json.loads((tmp_path / "gputop" / f"{os.getpid()}.json").read_text())


# -- what it measures


def test_a_step_tells_what_is_allocated_and_its_peak(torch: FakeTorch) -> None:
    watch = MemoryMonitor(publish=False)
    torch.allocate(3 * GIB)
    watch.step()
    torch.allocate(2 * GIB)
    torch.allocate(-4 * GIB)
    step = watch.step(epoch=1)
    assert step is not None
    (memory,) = step.devices
    assert (memory.allocated_bytes, memory.reserved_bytes) == (GIB, 5 * GIB)
    assert step.peak_bytes == {0: 5 * GIB}
    assert step.labels == {"epoch": 1}
    assert watch.peak == {0: 5 * GIB}
    assert [one.number for one in watch.history] == [1, 2]


def test_peaks_belong_to_the_phase_they_happened_in(torch: FakeTorch) -> None:
    watch = MemoryMonitor(publish=False)
    torch.allocate(GIB)
    watch.step()
    with watch.phase("forward"):
        torch.allocate(3 * GIB)
    with watch.phase("backward"):
        with watch.phase("inner"):
            torch.allocate(GIB)
            torch.allocate(-GIB)
        torch.allocate(-3 * GIB)
    step = watch.step()
    assert step is not None
    assert {phase.name: phase.peak_bytes[0] for phase in step.phases} == {
        "forward": 4 * GIB,
        "inner": 5 * GIB,
        "backward": 5 * GIB,
    }
    assert {phase.name: phase.kept_bytes[0] for phase in step.phases} == {
        "forward": 3 * GIB,
        "inner": 0,
        "backward": -3 * GIB,
    }


def test_a_lower_peak_than_an_earlier_steps_is_the_most_seen_and_with_exact_peaks_the_true_one(
    torch: FakeTorch,
) -> None:
    for exact, peak in ((False, GIB), (True, 4 * GIB)):
        torch.memory[0].update(allocated=0, peak=0)
        watch = MemoryMonitor(publish=False, exact_peaks=exact)
        torch.allocate(8 * GIB)
        torch.allocate(-7 * GIB)
        watch.step()
        torch.allocate(3 * GIB)
        torch.allocate(-3 * GIB)
        step = watch.step()
        assert step is not None
        assert step.peak_bytes == {0: peak}
        assert watch.peak == {0: 8 * GIB}


def test_torchs_own_peaks_are_left_alone_unless_told(torch: FakeTorch) -> None:
    watch = MemoryMonitor(publish=False)
    torch.allocate(GIB)
    watch.step()
    torch.allocate(-GIB)
    watch.step()
    assert torch.calls == []
    watch.reset_peak()
    assert torch.calls == ["reset"]
    assert watch.peak == {0: 0} or watch.peak == {}


def test_the_alarm_comes_once_and_again_only_after_memory_was_well_below(torch: FakeTorch) -> None:
    said: list[Alarm] = []
    watch = MemoryMonitor(threshold=0.9, on_alarm=said.append, publish=False, exact_peaks=True)
    levels = (5, 9, 8.8, 9.1, 8.0, 9.5)
    for level in levels:
        torch.allocate(int(level * GIB) - torch.memory[0]["allocated"])
        watch.step()
        watch.step()
    assert [alarm.raised for alarm in said] == [True, False, True]
    assert said[0].limit_bytes == 10 * GIB


def test_only_devices_in_use_are_asked(monkeypatch: pytest.MonkeyPatch, torch: FakeTorch) -> None:
    fake = use(monkeypatch, FakeTorch(devices=8))
    fake.allocate(GIB, device=5)
    step = MemoryMonitor(publish=False).step()
    assert step is not None
    assert [memory.device for memory in step.devices] == [5]


# -- what it never does


def test_without_torch_it_does_nothing_and_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    watch = MemoryMonitor()
    with watch.phase("forward"):
        pass
    assert watch.step() is None
    assert "torch" not in sys.modules


def test_before_cuda_is_used_it_asks_nothing(torch: FakeTorch) -> None:
    torch.initialized = False
    watch = MemoryMonitor(publish=False)
    with watch.phase("forward"):
        assert watch.step() is None
    torch.initialized = True
    torch.allocate(GIB)
    assert watch.step() is not None


def test_it_needs_nothing_but_the_standard_library() -> None:
    code = "import sys; import gputop.torch_monitor; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.startswith("gputop")}
    assert ours == {"gputop", *(f"gputop.{name}" for name in
        ("torch_monitor", "torch_monitor.allocator", "torch_monitor.monitor", "torch_monitor.oom",
         "torch_monitor.publisher", "torch_monitor.runtime_directory", "torch_monitor.tracker"))}  # fmt: skip
    assert not {"torch", "textual", "pynvml", "psutil", "numpy"} & set(done.stdout.split())


def test_a_threshold_that_is_no_share_is_refused() -> None:
    with pytest.raises(ValueError, match="share"):
        MemoryMonitor(threshold=90)


def test_a_backend_without_statistics_gives_steps_without_devices(torch: FakeTorch) -> None:
    torch._C._cuda_memoryStats = lambda device: {}
    step = MemoryMonitor(publish=False, devices=[0]).step()
    assert step is not None
    assert step.devices == ()


# -- published


def test_the_report_is_the_users_alone_and_goes_with_the_monitor(torch: FakeTorch, tmp_path: Path) -> None:
    torch.allocate(GIB)
    with MemoryMonitor() as watch:
        with watch.phase("forward"):
            pass
        watch.step(loss=0.25, bad=object())
        found = report(tmp_path)
        assert (tmp_path / "gputop").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "gputop" / f"{os.getpid()}.json").stat().st_mode & 0o777 == 0o600
    assert found["schema"] == runtime_directory.SCHEMA
    assert found["start_ticks"] == runtime_directory.start_ticks(os.getpid())
    (device,) = found["devices"]
    assert device["uuid"] == "GPU-00000000-0000-4000-8000-000000000000"
    assert device["pci_bus_id"] == "00000000:18:00.0"
    assert device["allocated_bytes"] == GIB
    assert [phase["name"] for phase in device["phases"]] == ["forward"]
    assert found["labels"] == [["loss", "0.25"], ["bad", "object"]]
    assert not (tmp_path / "gputop" / f"{os.getpid()}.json").exists()


def test_reports_are_written_at_most_twice_a_second(
    torch: FakeTorch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(runtime_directory, "write", lambda directory, name, value, owner=None: written.append(name))
    with MemoryMonitor() as watch:
        for _ in range(200):
            watch.step()
    assert len(written) < 20  # one, and another for each half second that this took


def test_a_runtime_directory_that_is_a_link_or_open_to_others_is_not_used(torch: FakeTorch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "gputop").symlink_to(tmp_path / "elsewhere")
    assert runtime_directory.open_directory(str(tmp_path / "gputop"), os.getuid()) is None
    (tmp_path / "gputop").unlink()
    (tmp_path / "gputop").mkdir()
    (tmp_path / "gputop").chmod(0o755)
    assert runtime_directory.open_directory(str(tmp_path / "gputop"), os.getuid()) is None


def test_a_full_or_vanished_directory_does_not_stop_the_training(
    torch: FakeTorch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "TEND_SECONDS", 0.0)
    watch = MemoryMonitor()
    watch.step()
    (tmp_path / "gputop" / f"{os.getpid()}.json").unlink()
    (tmp_path / "gputop").rmdir()
    watch.step()
    watch.step()
    assert report(tmp_path)["steps"] == 3
    watch.close()


# -- asked


def ask(tmp_path: Path, **changes: Any) -> None:
    pid = os.getpid()
    request = {"schema": 1, "pid": pid, "start_ticks": runtime_directory.start_ticks(pid), "id": "a1", "action": "dump"}
    path = tmp_path / "gputop" / f"{pid}.ask"
    path.write_text(json.dumps(request | changes))


def test_asked_for_a_snapshot_it_writes_one_and_says_where(
    torch: FakeTorch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "TEND_SECONDS", 0.0)
    with MemoryMonitor() as watch:
        watch.step()
        ask(tmp_path)
        watch.step()
        (answer,) = report(tmp_path)["answers"]
        assert answer["id"] == "a1"
        assert set(pickle.loads(Path(answer["path"]).read_bytes())) == {"segments", "device_traces"}
        assert not (tmp_path / "gputop" / f"{os.getpid()}.ask").exists()
        watch.step()
        assert len(report(tmp_path)["answers"]) == 1


def test_recording_is_started_and_stopped_on_demand(
    torch: FakeTorch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "TEND_SECONDS", 0.0)
    with MemoryMonitor() as watch:
        watch.step()
        for action, recording in (("record", True), ("stop", False)):
            ask(tmp_path, action=action)
            watch.step()
            assert report(tmp_path)["recording"] is recording
    assert torch.recording == ["all", None]


@pytest.mark.parametrize("changes", [
    {"start_ticks": 1}, {"pid": 1}, {"schema": 99}, {"action": "rm -rf /"}, {"action": ["dump"]}, {"id": 7},
])  # fmt: skip
def test_a_request_for_another_process_or_of_another_kind_is_not_obeyed(
    torch: FakeTorch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(monitor, "TEND_SECONDS", 0.0)
    with MemoryMonitor() as watch:
        watch.step()
        ask(tmp_path, **changes)
        watch.step()
        assert report(tmp_path)["answers"] == []


def test_an_old_torch_says_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch, torch: FakeTorch, tmp_path: Path) -> None:
    old = use(monkeypatch, FakeTorch(version="1.13.1"))
    del old.cuda.memory._record_memory_history
    monkeypatch.setattr(monitor, "TEND_SECONDS", 0.0)
    with MemoryMonitor() as watch:
        watch.step()
        ask(tmp_path, action="record")
        watch.step()
        (answer,) = report(tmp_path)["answers"]
    assert "1.13.1 cannot record" in answer["words"]
    assert answer["path"] is None


def test_history_of_torch_2_0_is_started_with_its_own_arguments(
    monkeypatch: pytest.MonkeyPatch, torch: FakeTorch
) -> None:
    old = use(monkeypatch, FakeTorch(version="2.0.1"))
    MemoryMonitor(publish=False, record_history=True).step()
    assert old.recording == [True]


# -- out of memory


def test_an_oom_leaves_a_snapshot_and_a_page_that_names_the_line(torch: FakeTorch, tmp_path: Path, capfd: Any) -> None:
    watch = MemoryMonitor(publish=False, directory=tmp_path / "ooms")
    for _ in range(5):
        torch.allocate(2 * GIB)
        watch.step()
    watch.enter("forward")
    torch.out_of_memory(300 * MIB)  # the line that asked
    (page,) = (tmp_path / "ooms").glob("*.txt")
    text = page.read_text()
    assert "requested      300.00 MiB" in text
    assert "allocated      10.00 GiB" in text
    assert "In step 6, phase forward" in text
    assert "each step keeps 2.00 GiB more" in text
    assert "test_torch_monitor.py" in text
    (snapshot,) = (tmp_path / "ooms").glob("*.pickle")
    assert f"gputop torch-snapshot {snapshot}" in text
    assert snapshot.stat().st_mode & 0o777 == 0o600
    assert str(page) in capfd.readouterr().err


def test_who_runs_out_of_memory_on_purpose_is_not_buried_in_reports(torch: FakeTorch, tmp_path: Path) -> None:
    watch = MemoryMonitor(publish=False, directory=tmp_path / "ooms")
    watch.step()
    for _ in range(50):
        torch.out_of_memory(GIB)
    assert len(list((tmp_path / "ooms").glob("*.txt"))) == 1


def test_a_fault_in_the_oom_report_does_not_take_the_place_of_the_oom(torch: FakeTorch, tmp_path: Path) -> None:
    watch = MemoryMonitor(publish=False, directory="/proc/no/such/place")
    watch.step()
    torch.out_of_memory(GIB)  # raises nothing


# -- the real torch, where it is installed


def test_real_torch_without_a_gpu_is_left_uninitialised() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    code = (
        "import torch; from gputop.torch_monitor import MemoryMonitor\n"
        "with MemoryMonitor() as m:\n"
        "    with m.phase('a'): torch.zeros(10)\n"
        "    print(m.step(), torch.cuda.is_initialized())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["None", "False"], done.stderr


# -- inside frameworks: stand-ins with the hooks that these call, in their order


def framework(monkeypatch: pytest.MonkeyPatch, name: str, base: str) -> None:
    module = ModuleType(name)
    setattr(module, base, type(base, (), {}))
    for n, parent in enumerate(parents := name.split(".")[:-1]):
        monkeypatch.setitem(sys.modules, ".".join(parents[: n + 1]), ModuleType(parent))
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_steps_have_phases(monkeypatch: pytest.MonkeyPatch, torch: FakeTorch, name: str) -> None:
    if name == "pytorch_lightning":
        monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    framework(monkeypatch, name, "Callback")
    watch = MemoryMonitor(publish=False)
    callback, trainer = lightning_callback(watch), SimpleNamespace(current_epoch=1, global_step=5)
    callback.on_train_batch_start(trainer, None, None, 0)
    torch.allocate(GIB)
    callback.on_before_backward(trainer, None, None)
    callback.on_after_backward(trainer, None)
    callback.on_before_optimizer_step(trainer, None, None)
    callback.on_train_batch_end(trainer, None, None, None, 0)
    (step,) = watch.history
    assert [phase.name for phase in step.phases] == ["forward", "backward", "optimizer"]
    assert step.phases[0].peak_bytes == {0: GIB}
    assert step.labels == {"epoch": 1, "global_step": 5}
    callback.teardown(trainer, None, "fit")
    assert watch.step() is None


def test_hugging_faces_trainer(monkeypatch: pytest.MonkeyPatch, torch: FakeTorch) -> None:
    framework(monkeypatch, "transformers", "TrainerCallback")
    watch = MemoryMonitor(publish=False)
    callback, state = trainer_callback(watch), SimpleNamespace(global_step=3)
    callback.on_step_begin(None, state, None, model=None)
    callback.on_pre_optimizer_step(None, state, None, model=None)
    callback.on_step_end(None, state, None, model=None)
    (step,) = watch.history
    assert [phase.name for phase in step.phases] == ["forward+backward", "optimizer"]
    callback.on_train_end(None, state, None)


def test_accelerate(monkeypatch: pytest.MonkeyPatch, torch: FakeTorch) -> None:
    framework(monkeypatch, "accelerate.tracking", "GeneralTracker")
    watch = MemoryMonitor(publish=False)
    tracker = accelerate_tracker(watch)
    tracker.store_init_configuration({})
    tracker.log({"loss": 1.0}, step=4)
    assert watch.history[0].labels == {"step": 4}
    assert tracker.tracker is watch
    tracker.finish()


def test_a_limit_of_the_processs_own_makes_no_negative_memory_of_others() -> None:
    """On an H200 with set_per_process_memory_fraction the page said: others -136.40 GiB."""
    from gputop.torch_monitor.oom import _others

    assert _others(-(136 << 30)) == []
    assert "2.00 GiB" in _others(2 << 30)[0]
