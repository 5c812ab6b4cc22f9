"""Details of one process: what is shown, what never is, and the words for what could not be read."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil  # noqa: F401  (as_nobody could not import it any more)
import pytest

from gputop.procfs.details import SHOWN_ENVIRONMENT, read_details
from gputop.procfs.devices import NvidiaDevices, device_name
from gputop.procfs.host_reader import ProcessDetails
from gputop.procfs.proc_host_reader import ProcHostReader
from tests.unit.children import (
    DEAD_FIRST_THREAD,
    STUCK,
    as_nobody,
    child,
    descriptors,
    key_of,
    root,
    state_of,
    wait_for,
)

FULL = os.makedev(1, 7)  # /dev/full stands for a GPU


@pytest.fixture
def reader() -> Iterator[ProcHostReader]:
    reader = ProcHostReader()
    yield reader
    reader.close()


def details_of(reader: ProcHostReader, pid: int) -> ProcessDetails:
    before = descriptors()
    details = reader.details(key_of(pid))
    assert details is not None
    assert descriptors() == before
    return details


def devices_of(pid: int, is_nvidia: int = FULL) -> tuple[str, ...] | None:
    process = os.open(f"/proc/{pid}", os.O_RDONLY)
    try:
        return NvidiaDevices(is_nvidia=lambda device: device == is_nvidia).held_by(process)
    finally:
        os.close(process)


def test_where_it_runs_and_who_started_it(reader: ProcHostReader, tmp_path: Path) -> None:
    code = "import subprocess\nworker = subprocess.Popen(['sleep', '600'])"
    with child(code, cwd=tmp_path) as process:
        details = details_of(reader, process.pid)
        assert details.cwd == str(tmp_path)
        assert details.executable == os.path.realpath(sys.executable)
        assert details.facts.key == key_of(process.pid)
        parents = [facts.key.pid for facts in details.ancestors]
        assert parents[:2] == [pid for pid in (os.getpid(), os.getppid()) if pid]
        assert parents[-1] == 1
        assert [facts.parent_pid for facts in details.children] == [process.pid]
        assert details.children[0].name in ("sleep", "python", "python3")
        assert details.cgroup is not None and details.cgroup.startswith("/")
        assert details.nvidia_devices == () and details.problems == ()
        os.kill(details.children[0].key.pid, signal.SIGKILL)


def test_its_cpu_use_is_that_of_the_table(reader: ProcHostReader) -> None:
    with child() as process:
        reader.read([process.pid])
        wait_for(lambda: reader.read([process.pid])[process.pid].cpu_percent is not None, "a second look")
        assert details_of(reader, process.pid).facts.cpu_percent is not None
        assert details_of(ProcHostReader(), process.pid).facts.cpu_percent is None


def test_no_secret_of_the_environment_is_shown(reader: ProcHostReader) -> None:
    environment = {
        "CUDA_VISIBLE_DEVICES": "0,3",
        "RANK": "7",
        "SLURM_JOB_ID": "88123",
        "CONDA_DEFAULT_ENV": "a\x1b[2Jb\nc",
        "WANDB_API_KEY": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "APPTAINER_DOCKER_PASSWORD": "secret",
        "SINGULARITY_DOCKER_PASSWORD": "secret",
        "SLURM_JWT": "secret",
        "RANK_TOKEN": "secret",
        "cuda_visible_devices": "secret",
        "MASTER_ADDR": "",
    }
    with child(env=environment) as process:
        details = details_of(reader, process.pid)
        assert details.environment is not None
        assert dict(details.environment) == {
            "CUDA_VISIBLE_DEVICES": "0,3",
            "RANK": "7",
            "SLURM_JOB_ID": "88123",
            "CONDA_DEFAULT_ENV": "a\ufffd[2Jb c",
            "MASTER_ADDR": "",
        }
        assert "secret" not in repr(details)


def test_the_names_shown_are_whole_names_and_none_sounds_secret() -> None:
    for name in SHOWN_ENVIRONMENT:
        assert not any(
            word in name for word in ("*", "TOKEN", "SECRET", "PASS", "AUTH", "JWT", "CREDENTIAL", "API_KEY")
        )
    assert len(set(SHOWN_ENVIRONMENT)) == len(SHOWN_ENVIRONMENT)


def test_the_whole_command_line_is_there(reader: ProcHostReader) -> None:
    with child("", "x" * 9000, "end") as process:
        table = reader.read([process.pid])[process.pid].command
        whole = details_of(reader, process.pid).facts.command
        assert table is not None and whole is not None
        assert len(table) <= 4096 < 9000 < len(whole) and whole.endswith("x end")


def test_a_deleted_program_and_directory_say_so(reader: ProcHostReader, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/sleep").resolve().read_bytes())
    program.chmod(0o755)
    with subprocess.Popen([program, "600"], cwd=directory) as process:
        try:
            wait_for(lambda: os.readlink(f"/proc/{process.pid}/exe") == str(program), "exec")
            program.unlink()
            directory.rmdir()
            details = details_of(reader, process.pid)
            assert details.executable == f"{program} (deleted)"
            assert details.cwd == f"{directory} (deleted)"
        finally:
            process.kill()


def test_a_hostile_directory_name_is_clean(reader: ProcHostReader, tmp_path: Path) -> None:
    directory = os.fsencode(tmp_path) + b"/\x1b[31m\xff[b]"
    os.mkdir(directory)
    with child(cwd=directory) as process:
        assert details_of(reader, process.pid).cwd == f"{tmp_path}/\ufffd[31m\ufffd[b]"


def test_a_process_that_is_gone_or_another_one_has_no_details(reader: ProcHostReader) -> None:
    with child() as process:
        key = key_of(process.pid)
        assert key.start_ticks is not None
        assert reader.details(key._replace(start_ticks=key.start_ticks - 1)) is None
        assert reader.details(key._replace(start_ticks=None)) is None
        assert reader.details(key) is not None
    before = descriptors()
    assert reader.details(key) is None
    assert descriptors() == before


@root
def test_what_is_not_permitted_is_said_with_what_to_do(reader: ProcHostReader) -> None:
    with child() as process:
        key = key_of(process.pid)

        def try_it() -> list[object]:
            d = reader.details(key)
            assert d is not None
            return [d.cwd, d.executable, d.environment, d.nvidia_devices, d.facts.command, list(d.problems)]

        cwd, executable, environment, devices, command, problems = as_nobody(try_it)
        assert (cwd, executable, environment, devices) == (None, None, None, None)
        assert command.startswith(sys.executable), "the command line is everybody's to read"
        assert problems == [
            "not permitted: working directory, executable, environment, open devices; run gputop as root or with sudo"
        ]


def test_a_zombie_names_the_parent_it_waits_for(reader: ProcHostReader) -> None:
    with child() as process:
        process.send_signal(signal.SIGKILL)
        wait_for(lambda: state_of(process.pid) == "Z", "the zombie")
        problems = details_of(reader, process.pid).problems
        assert problems == (f"already exited; its parent {os.getpid()} has not reaped it yet",)


def test_a_stuck_process_is_not_asked_what_could_hang(reader: ProcHostReader) -> None:
    with child(STUCK) as process:
        wait_for(lambda: state_of(process.pid) == "D", "state D")
        details = details_of(reader, process.pid)
        assert details.environment is None
        assert any("uninterruptible" in problem for problem in details.problems)


def test_a_kernel_thread_has_details_too(reader: ProcHostReader) -> None:
    if not Path("/proc/2").exists() or Path("/proc/2/cmdline").read_bytes():
        pytest.skip("no kernel threads to be seen here (a container)")
    details = details_of(reader, 2)
    assert details.executable is None and details.ancestors == ()


# ------------------------------------------------------------------------------------ devices


def test_devices_are_found_by_number_whatever_their_name(tmp_path: Path) -> None:
    node = tmp_path / "gpu-in-a-container"
    try:
        os.mknod(node, 0o20666, FULL)
        open(node).close()
    except PermissionError:
        pytest.skip("no device nodes can be made or opened here")
    with child("kept = open(sys.argv[1])", str(node)) as process:
        assert devices_of(process.pid) == (str(node),)


def test_a_file_of_a_devices_name_is_no_device(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").write_text("")
    with child("kept = open(sys.argv[1])", str(tmp_path / "nvidia0")) as process:
        assert devices_of(process.pid) == ()


def test_a_dead_first_thread_still_holds_its_devices(reader: ProcHostReader) -> None:
    with child("kept = open('/dev/full')\n" + DEAD_FIRST_THREAD) as process:
        wait_for(lambda: state_of(process.pid) == "Z", "the first thread's end")
        assert os.listdir(f"/proc/{process.pid}/fd") == []
        assert devices_of(process.pid) == ("/dev/full",)
        assert details_of(reader, process.pid).problems[0] == "its main thread has exited, 1 thread still running"


def test_nobody_can_tell_for_a_process_that_is_gone() -> None:
    with child("kept = open('/dev/full')") as process:
        descriptor = os.open(f"/proc/{process.pid}", os.O_RDONLY)
    assert NvidiaDevices(is_nvidia=lambda device: True).held_by(descriptor) is None
    os.close(descriptor)


def test_without_maps_nothing_found_means_nothing_known() -> None:
    with child() as process:
        descriptor = os.open(f"/proc/{process.pid}", os.O_RDONLY)
        devices = NvidiaDevices(is_nvidia=lambda device: device == FULL)
        assert devices.held_by(descriptor) == ()
        assert devices.held_by(descriptor, with_maps=False) is None
        os.close(descriptor)


def test_devices_have_the_names_of_the_host() -> None:
    assert device_name(os.makedev(195, 3), "/dev/gpu") == "/dev/nvidia3"
    assert device_name(os.makedev(195, 255), "/x") == "/dev/nvidiactl"
    assert device_name(os.makedev(195, 254), "/x") == "/dev/nvidia-modeset"
    assert device_name(os.makedev(510, 0), "/dev/nvidia-uvm") == "/dev/nvidia-uvm"


@root
def test_a_mapping_that_outlives_the_descriptor_counts(tmp_path: Path) -> None:
    """CUDA keeps its descriptors, but nothing is refused on that."""
    made = Path("/dev/nvidia-gputop-test")
    made.write_bytes(b"\0" * mmap.PAGESIZE)
    try:
        code = "import mmap, os\nwith open(sys.argv[1], 'r+b') as file: kept = mmap.mmap(file.fileno(), 0)"
        code += "\nos.closerange(3, 64)  # mmap keeps a duplicate"
        with child(code, str(made)) as process:
            assert devices_of(process.pid) == ("/dev/nvidia* (mapped)",)
    finally:
        made.unlink()


def test_details_read_without_psutils_table(reader: ProcHostReader) -> None:
    """Relatives are read as rows are: the same key, the same cleaning."""
    with child() as process:
        details = read_details("/proc", key_of(process.pid), None, reader.facts_of)
        assert details is not None
        assert details.ancestors[0].key == key_of(os.getpid())
