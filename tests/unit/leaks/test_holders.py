"""Who holds a device open: found by its number among real processes, whatever it is called there."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.leaks.holders.holder import Holder, HolderScan
from gputop.leaks.holders.scanner import HolderScanner, benign
from gputop.model import HostFacts, ProcessKey
from gputop.procfs.devices import NvidiaDevices
from gputop.procfs.proc_host_reader import ProcHostReader
from tests.unit.children import DEAD_FIRST_THREAD, as_nobody, child, descriptors, key_of, root, state_of, wait_for

OPEN = "import os\ngpu = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)\n"


@pytest.fixture
def device() -> Iterator[str]:
    """A character device of this test's own: the slave end of a pty."""
    master, slave = os.openpty()
    name = os.ttyname(slave)
    os.close(slave)
    yield name
    os.close(master)


def scanner(*gpus: str) -> HolderScanner:
    """One that takes *gpus* for /dev/nvidia0, /dev/nvidia1…"""
    numbers = {os.stat(path).st_rdev: number for number, path in enumerate(gpus)}
    return HolderScanner(ProcHostReader().facts_of, devices=NvidiaDevices(gpus=numbers))


def holders(scan: HolderScan) -> dict[int, Holder]:
    return {holder.key.pid: holder for holder in scan.holders}


def test_an_open_device_is_found_with_its_descriptor(device: str) -> None:
    with child(OPEN, device) as process:
        before = descriptors()
        scan = scanner(device).scan()
        assert descriptors() == before
        found = holders(scan)[process.pid]
        assert found.key == key_of(process.pid) and found.benign is None
        (held,) = found.devices
        folder = f"/proc/{process.pid}/fd"
        numbers = [int(name) for name in os.listdir(folder) if os.readlink(f"{folder}/{name}") == device]
        assert (held.path, held.minor, list(held.descriptors)) == ("/dev/nvidia0", 0, numbers)
        assert scan.complete and scan.inspected > 1


def test_who_has_none_open_is_not_found(device: str) -> None:
    with child("", device) as process:
        assert process.pid not in holders(scanner(device).scan())


def test_two_devices_of_one_process_are_told_apart(device: str) -> None:
    master, slave = os.openpty()
    other = os.ttyname(slave)
    os.close(slave)
    try:
        code = OPEN + "more = [os.open(sys.argv[2], os.O_RDWR | os.O_NOCTTY) for _ in range(2)]\n"
        with child(code, device, other) as process:
            found = holders(scanner(device, other).scan())[process.pid]
            assert [(held.path, len(held.descriptors)) for held in found.devices] == [
                ("/dev/nvidia0", 1), ("/dev/nvidia1", 2),
            ]  # fmt: skip
            assert found.device(1) is found.devices[1] and found.device(7) is None
    finally:
        os.close(master)


@root
@pytest.mark.parametrize("name", ["gpu", "dev"])
def test_a_node_of_another_name_elsewhere_is_the_same_device(tmp_path: Path, name: str) -> None:
    """Containers have their nodes where they like."""
    number = os.makedev(1, 7)  # /dev/full
    node = tmp_path / name
    os.mknod(node, 0o666 | stat.S_IFCHR, number)
    with child("import os\ngpu = os.open(sys.argv[1], os.O_RDWR)\n", node) as process:
        scan = HolderScanner(ProcHostReader().facts_of, devices=NvidiaDevices(gpus={number: 5})).scan()
        held = holders(scan)[process.pid].devices
        assert [(one.path, one.minor) for one in held] == [("/dev/nvidia5", 5)]


MAPPED_ONLY = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
gpu = os.open("/dev/zero", os.O_RDWR)
assert libc.mmap(None, 4096, 1, 2, gpu, 0) != 2**64 - 1
os.close(gpu)
"""


def test_a_mapping_outlives_its_descriptor() -> None:
    with child(MAPPED_ONLY) as process:
        made = scanner("/dev/zero")
        assert process.pid not in holders(made.scan())
        held = holders(made.scan(with_maps=True))[process.pid].devices
        assert [(one.minor, one.descriptors, one.mapped) for one in held] == [(0, (), True)]


def test_the_files_of_a_dead_first_thread_are_those_of_its_siblings(device: str) -> None:
    with child(OPEN + DEAD_FIRST_THREAD, device) as process:
        wait_for(lambda: state_of(process.pid) == "Z", "a dead first thread")
        assert process.pid in holders(scanner(device).scan())


def test_a_zombie_holds_nothing_and_is_no_obstacle(device: str) -> None:
    with child(OPEN, device) as process:
        process.kill()
        wait_for(lambda: state_of(process.pid) == "Z", "a zombie")
        scan = scanner(device).scan()
        assert process.pid not in holders(scan) and scan.complete


@root
def test_another_user_is_told_how_many_processes_it_may_not_look_into(device: str) -> None:
    made = scanner(device)
    with child(OPEN, device) as process:

        def look() -> list[object]:
            scan = made.scan()
            return [[holder.key.pid for holder in scan.holders], dict(scan.denied), scan.inspected, scan.summary()]

        found, denied, inspected, words = as_nobody(look)
        assert process.pid not in found
        assert denied["root"] >= 2 and inspected >= 1  # this test and its child; itself
        assert f"{denied['root']} of root" in words and "not permitted: run gputop as root" in words


def test_processes_that_end_while_they_are_looked_at_do_no_harm(device: str) -> None:
    made = scanner(device)
    over = threading.Event()

    def churn() -> None:
        while not over.is_set():
            pid = os.posix_spawn("/bin/true", ["true"], os.environ)
            os.waitpid(pid, 0)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        with child(OPEN, device) as process:
            for _ in range(5):
                assert process.pid in holders(made.scan())
    finally:
        over.set()
        thread.join()


def named(name: str, command: str = "") -> HostFacts:
    return HostFacts(ProcessKey(1234567, 1), 0.0, name=name, command=command or name)


@pytest.mark.parametrize(
    ("name", "command", "words"),
    [
        ("nvidia-persiste", "/usr/bin/nvidia-persistenced --verbose", "daemon"),
        ("nv-hostengine", "", "monitor"),
        ("dcgm-exporter", "", "monitor"),
        ("nvidia-smi", "nvidia-smi -l", "monitor"),
        ("python3", "/usr/bin/python3 /home/ml/.local/bin/nvitop -m", "monitor"),
        ("nvitop", "nvitop", "monitor"),
        ("Xorg", "/usr/lib/xorg/Xorg vt2", "display"),
        ("kwin_wayland", "", "display"),
        ("nvidia-cuda-mps", "nvidia-cuda-mps-server", "MPS"),
        ("nvidia-fabricma", "", "daemon"),
    ],
)
def test_whose_job_it_is_to_hold_devices_is_harmless(name: str, command: str, words: str) -> None:
    assert words in (benign(named(name, command)) or "")


@pytest.mark.parametrize(
    ("name", "command"),
    [("python", "python train.py"), ("pt_data_worker", ""), ("python", "python my_nvtop.py --x"), ("Xvfb-run", "")],
)
def test_anybody_else_is_not(name: str, command: str) -> None:
    assert benign(named(name, command)) is None


def test_where_no_program_can_be_started_it_looks_itself_and_rests(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a machine with thousands of processes keeps a core to itself."""
    rests: list[float] = []
    monkeypatch.setattr("gputop.leaks.holders.scanner.WORK_SECONDS", 0.0)
    with child(OPEN, device) as process:
        made = scanner(device)
        monkeypatch.setattr(sys, "executable", "/nonexistent/python")
        monkeypatch.setattr(time, "sleep", rests.append)
        scan = made.scan()
        assert process.pid in holders(scan) and scan.complete
        assert len(rests) >= scan.inspected > 1


def test_a_scan_that_hangs_is_cut_short_and_says_so(
    device: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 600\n")
    hanging.chmod(0o755)
    made = scanner(device)
    monkeypatch.setattr(sys, "executable", str(hanging))
    monkeypatch.setattr("gputop.leaks.holders.scanner.PATIENCE", 0.3)
    scan = made.scan()
    assert scan.cut_short and not scan.complete and "took too long" in scan.summary()


def test_the_look_at_others_files_leaves_no_process_behind(device: str) -> None:
    scanner(device).scan()
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    assert not [pid for pid in children if b"holder_probe" in Path(f"/proc/{pid}/cmdline").read_bytes()]
