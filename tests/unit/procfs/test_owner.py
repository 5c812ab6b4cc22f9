"""To whom a process belongs: the cgroup patterns of Docker, Kubernetes, Slurm…, and what a real process says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gputop.leaks.proc_investigator import ProcInvestigator
from gputop.leaks.process_context import ProcessContext
from gputop.model import Gpu, HostFacts, ProcessKey
from gputop.model.owner import Owner, Relative
from gputop.procfs.owner import ENVIRONMENT, cgroup_paths, cuda_index, environment_from, owner_from
from gputop.procfs.proc_host_reader import ProcHostReader
from tests.unit.children import as_nobody, child, key_of, root, wait_for

ID = "3fa9c81d02ab" + "7" * 52
POD = "1f2e3d4c-5b6a-7988-a7b6-c5d4e3f20100"
INIT = Relative(1, "systemd")
FACTS = HostFacts(
    ProcessKey(4711, 1), 0.0, parent_pid=4000, session_id=4000, uid=1001, user="ml", name="python",
    command="python train.py",
)  # fmt: skip


def owner(
    cgroup: str = "/user.slice", env: dict[str, str] | None = None, ancestors: Sequence[str] = ("bash",), **more: Any
) -> Owner:
    relatives = [*(Relative(100 + n, name) for n, name in enumerate(ancestors)), INIT]
    return owner_from(FACTS, (cgroup,), {} if env is None else env, relatives, **more)


@pytest.mark.parametrize(
    ("cgroup", "engine", "where", "stop"),
    [
        (f"/docker/{ID}", "docker", "docker 3fa9c81d02ab", "docker stop 3fa9c81d02ab"),
        (f"/system.slice/docker-{ID}.scope", "docker", "docker 3fa9c81d02ab", "docker stop 3fa9c81d02ab"),
        (f"/machine.slice/libpod-{ID}.scope/container", "podman", "podman 3fa9c81d02ab", "podman stop 3fa9c81d02ab"),
        (
            f"/user.slice/user-1001.slice/user@1001.service/user.slice/libpod-{ID}.scope",
            "podman", "podman 3fa9c81d02ab", "podman stop 3fa9c81d02ab",
        ),
        (f"/libpod_parent/libpod-{ID}", "podman", "podman 3fa9c81d02ab", "podman stop 3fa9c81d02ab"),
        ("/lxc.payload.trainbox/system.slice", "lxc", "lxc trainbox", "lxc-stop -n trainbox"),
        ("/lxc/trainbox", "lxc", "lxc trainbox", "lxc-stop -n trainbox"),
        ("/machine.slice/machine-lab.scope/payload", "nspawn", "nspawn lab", "machinectl terminate lab"),
        (f"/system.slice/containerd.service/kubepods-burstable-pod{POD.replace('-', '_')}.slice:cri-containerd:{ID}",
         "kubernetes", "k8s 1f2e3d4c", None),
        (f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{POD.replace('-', '_')}.slice/"
         f"cri-containerd-{ID}.scope", "kubernetes", "k8s 1f2e3d4c", None),
        (f"/kubepods/burstable/pod{POD}/{ID}", "kubernetes", "k8s 1f2e3d4c", None),
        (f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/crio-{ID}.scope", "kubernetes", "k8s 1f2e3d4c",
         None),
    ],
)  # fmt: skip
def test_containers_by_their_cgroup(cgroup: str, engine: str, where: str, stop: str | None) -> None:
    found = owner(cgroup)
    assert found.container is not None
    assert (found.container.engine, found.where, found.stop_with) == (engine, where, stop)
    if engine in ("docker", "podman", "kubernetes"):
        assert found.container.id == ID
    assert found.container.pod == (POD if engine == "kubernetes" else None)


def test_podmans_monitor_is_not_its_container() -> None:
    assert owner(f"/machine.slice/libpod-conmon-{ID}.scope").container is None


def test_a_pod_is_deleted_by_its_name_which_is_its_host_name() -> None:
    found = owner(f"/kubepods/pod{POD}/{ID}", {"HOSTNAME": "trainer-0"})
    assert found.stop_with == "kubectl delete pod trainer-0"


@pytest.mark.parametrize(
    ("cgroup", "job", "step"),
    [
        ("/system.slice/slurmstepd.scope/job_88123/step_0/user/task_3", "88123", "0"),
        ("/system.slice/slurmstepd.scope/job_88123/step_batch/user/task_0", "88123", "batch"),
        ("/system.slice/slurmstepd.scope/job_88123/step_extern/user/task_special", "88123", "extern"),
        ("/system.slice/gpu01_slurmstepd.scope/job_7/step_interactive/slurm", "7", "interactive"),
        ("/slurm/uid_1001/job_99/step_0/task_1", "99", "0"),
        ("/slurm_gpu01/uid_1001/job_99/step_batch", "99", "batch"),
        ("/slurm/uid_1001/job_99", "99", None),
    ],
)
def test_slurm_jobs_by_their_cgroup(cgroup: str, job: str, step: str | None) -> None:
    found = owner(cgroup)
    assert (found.slurm_job, found.slurm_step) == (job, step)
    assert (found.where, found.stop_with) == (f"slurm {job}", f"scancel {job}")


@pytest.mark.parametrize(
    ("cgroup", "unit", "of_user", "where", "stop"),
    [
        ("/system.slice/vllm.service", "vllm.service", False, "unit vllm.service", "systemctl stop vllm.service"),
        ("/system.slice/system-serve.slice/serve@a.service", "serve@a.service", False, "unit serve@a.service",
         "systemctl stop serve@a.service"),
        ("/user.slice/user-1001.slice/user@1001.service/app.slice/serve.service", "serve.service", True,
         "unit serve.service", "systemctl --user stop serve.service"),
        ("/user.slice/user-1001.slice/user@1001.service/init.scope", None, False, "", None),
    ],
)  # fmt: skip
def test_units_of_systemd(cgroup: str, unit: str | None, of_user: bool, where: str, stop: str | None) -> None:
    found = owner(cgroup)
    assert (found.unit, found.unit_of_user, found.where, found.stop_with) == (unit, of_user, where, stop)


def test_a_login_session_is_no_unit_that_could_be_stopped() -> None:
    found = owner("/user.slice/user-1001.slice/session-17.scope")
    assert (found.login_session, found.unit, found.stop_with, found.where) == ("17", None, None, "session 17")


def test_names_of_units_are_quoted_for_the_shell() -> None:
    assert owner("/system.slice/a;reboot.service").stop_with == "systemctl stop 'a;reboot.service'"


@pytest.mark.parametrize(
    ("env", "ancestors", "more", "where"),
    [
        ({"TMUX_PANE": "%5"}, ("bash", "tmux: server"), {"window": "2:serve", "terminal": "pts/3"}, "tmux 2:serve"),
        ({"TMUX_PANE": "%5"}, ("bash", "tmux: server"), {}, "tmux %5"),
        ({"TMUX_PANE": "%5"}, ("bash",), {"terminal": "pts/3"}, "tty pts/3"),  # started from one, and no longer in it
        ({"STY": "4711.train"}, ("bash", "screen"), {}, "screen 4711.train"),
        ({}, ("bash", "sshd"), {"terminal": "pts/3"}, "ssh pts/3"),
        ({}, ("bash", "sshd-session"), {"terminal": "pts/3"}, "ssh pts/3"),
        ({}, ("bash", "login"), {"terminal": "tty1"}, "tty tty1"),
        ({"JPY_PARENT_PID": "9"}, ("bash", "sshd"), {"terminal": "pts/3"}, "jupyter"),
        ({"PBS_JOBID": "4711.head"}, ("bash",), {}, "pbs 4711.head"),
        ({"LSB_JOBID": "815"}, ("bash",), {}, "lsf 815"),
        ({"JOB_ID": "5", "SGE_TASK_ID": "undefined"}, ("bash",), {}, "sge 5"),
        ({"APPTAINER_NAME": "torch.sif"}, ("bash",), {}, "apptainer torch.sif"),
        ({"container": "oci"}, ("bash",), {"pids_inside": (7,)}, "oci"),
        ({}, (), {"pids_inside": (7,), "marks": ("dockerenv",)}, "docker"),
        ({}, ("bash",), {"root_mount": "571 / / rw - overlay enroot-data/user-1001/pyxis_88123.0"},
         "enroot pyxis_88123.0"),
    ],
)  # fmt: skip
def test_where_it_runs(env: dict[str, str], ancestors: tuple[str, ...], more: dict[str, Any], where: str) -> None:
    assert owner(env=env, ancestors=ancestors, **more).where == where


def test_a_job_says_more_than_the_container_in_it_and_that_more_than_the_terminal() -> None:
    job = "/system.slice/slurmstepd.scope/job_88123/step_0"
    found = owner(job, {"APPTAINER_NAME": "t.sif"}, ("tmux: server",), terminal="pts/1")
    assert found.where == "slurm 88123" and found.container is not None and found.multiplexer is not None
    assert owner(env={"APPTAINER_NAME": "t.sif"}, terminal="pts/1").where == "apptainer t.sif"


@pytest.mark.parametrize(
    ("env", "rank", "local", "world"),
    [
        ({"RANK": "11", "LOCAL_RANK": "3", "WORLD_SIZE": "16"}, 11, 3, 16),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, 2, 0, 4),
        ({"SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}, 1, 1, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None, None, None),  # every batch step has one
        ({"RANK": "many"}, None, None, None),
        ({"LOCAL_RANK": "0"}, None, None, None),
    ],
)
def test_ranks(env: dict[str, str], rank: int | None, local: int | None, world: int | None) -> None:
    found = owner(env=env)
    assert (found.rank, found.local_rank, found.world_size) == (rank, local, world)


@pytest.mark.parametrize(
    ("env", "executable", "words"),
    [
        ({"VIRTUAL_ENV": "/home/ml/venv"}, None, "venv /home/ml/venv"),
        ({"CONDA_DEFAULT_ENV": "ml", "CONDA_PREFIX": "/opt/conda/envs/ml"}, None, "conda ml"),
        ({}, "/opt/conda/envs/llm/bin/python3.12", "conda llm"),
        ({}, "/usr/bin/python3", None),
    ],
)
def test_pythons_environment(env: dict[str, str], executable: str | None, words: str | None) -> None:
    assert owner(env=env, executable=executable).environment == words


def test_only_the_allow_listed_names_are_read() -> None:
    raw = b"\0".join(
        [b"SECRET_TOKEN=hunter2", b"RANK=1", b"RANK=2", b"APPTAINER_DOCKER_PASSWORD=x", b"broken", b"\xff=\xff"]
    )
    assert environment_from(raw) == {"RANK": "1"}, "and of a name the first"
    assert not any(word in name for name in ENVIRONMENT for word in ("TOKEN", "PASSWORD", "SECRET", "KEY"))


def test_texts_of_the_outside_are_cleaned() -> None:
    assert "\x1b" not in environment_from(b"CONDA_DEFAULT_ENV=\x1b]0;owned\x07")["CONDA_DEFAULT_ENV"]
    assert "\x1b" not in "".join(cgroup_paths(b"0::/a\x1b[2J/b.service\n"))


def test_of_the_controllers_of_cgroup_v1_the_longest_path_counts() -> None:
    raw = f"12:memory:/docker/{ID}\n3:cpu:/\n1:name=systemd:/docker/{ID}\n0::/\n".encode()
    assert cgroup_paths(raw) == (f"/docker/{ID}", "/")


def test_what_is_known_is_listed_for_the_details() -> None:
    found = owner(
        "/system.slice/slurmstepd.scope/job_88123/step_0", {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3"}
    )
    assert ("slurm job", "88123 step 0") in found.facts()
    assert ("rank", "3 of 8, local rank 3") in found.facts()
    assert ("stop with", "scancel 88123") in found.facts()
    assert all(text for _, text in found.facts())


# ------------------------------------------------------------------------- CUDA's index


def gpus(*names: str) -> list[Gpu]:
    """On the bus in reverse order of their indices."""
    return [
        Gpu(
            index, f"GPU-{index}{index}{index}{index}0000-aa", name, 0.0, pci_bus_id=f"00000000:{0x90 - index:02X}:00.0"
        )
        for index, name in enumerate(names or ("H200",) * 4)
    ]


def index_of(number: int, made: list[Gpu], **fields: Any) -> int | None:
    return cuda_index(Owner(**fields), made[number], made)


def test_without_a_mask_cuda_counts_along_the_bus() -> None:
    assert [index_of(n, gpus()) for n in range(4)] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("visible", "number", "expected"),
    [
        ("2", 1, 0), ("2", 0, None), ("3,2,1", 1, 1), ("", 0, None), ("0,9,1", 2, None), ("9,0", 3, None),
        ("GPU-1111", 1, 0), ("GPU-2222,GPU-1111", 1, 1), ("GPU-", 1, None), ("MIG-5", 1, None), (" 2 , 3 ", 0, 1),
        ("-1", 3, None), ("none", 3, None),
    ],
)  # fmt: skip
def test_the_grammar_of_cuda_visible_devices(visible: str, number: int, expected: int | None) -> None:
    assert index_of(number, gpus(), visible_devices=visible) == expected


def test_where_the_order_is_cudas_own_nothing_is_claimed() -> None:
    mixed = gpus("H200", "RTX 6000")
    assert index_of(0, mixed) is None and index_of(0, mixed, visible_devices="0") is None
    assert index_of(0, mixed, device_order="PCI_BUS_ID") == 1
    assert index_of(0, mixed, visible_devices="GPU-0000") == 0


def test_in_a_job_or_behind_another_user_nothing_is_claimed() -> None:
    assert index_of(0, gpus(), slurm_job="1", visible_devices="0") is None
    assert index_of(0, gpus(), readable=False) is None
    assert index_of(0, gpus(), slurm_job="1", visible_devices="GPU-0000") == 0


# ---------------------------------------------------------------------- real processes


def look(pid: int) -> ProcessContext:
    reader = ProcHostReader()
    found = ProcInvestigator(reader.facts_of).context(reader.read([pid])[pid])
    reader.close()
    assert found is not None and found.facts.key == key_of(pid)
    return found


def test_a_real_process_tells_its_environment_terminal_and_family() -> None:
    env = {**os.environ, "RANK": "3", "WORLD_SIZE": "8", "CUDA_VISIBLE_DEVICES": "1,0", "SECRET_TOKEN": "hunter2"}
    with child(
        "import subprocess\nkid = subprocess.Popen(['sleep', '600'])", env=env, start_new_session=True
    ) as process:
        found = look(process.pid)
        assert (found.owner.rank, found.owner.world_size, found.owner.visible_devices) == (3, 8, "1,0")
        assert "hunter2" not in repr(found)
        assert found.ancestors[0].pid == os.getpid()
        assert found.leader_exists and found.has_terminal is False and found.ignores_hangup is False
        assert found.children is not None and len(found.children) == 1
        os.kill(found.children[0].pid, 9)


def test_a_signal_that_is_ignored_is_seen() -> None:
    with child("import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)") as process:
        assert look(process.pid).ignores_hangup is True


def test_a_deleted_directory_and_program_are_seen(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    shutil.copy2("/bin/sleep", program)
    process = subprocess.Popen([program, "600"], cwd=tmp_path)
    try:
        wait_for(lambda: os.readlink(f"/proc/{process.pid}/exe") == str(program), "exec")
        program.unlink()
        found = look(process.pid)
        assert found.deleted_executable == str(program) and found.deleted_directory is None
    finally:
        process.kill()
        process.wait()


def test_a_slurm_job_lives_as_long_as_a_cgroup_of_it(tmp_path: Path) -> None:
    with child(env={**os.environ, "SLURM_JOB_ID": "88123"}) as process:
        reader = ProcHostReader()
        facts = reader.read([process.pid])[process.pid]

        def lives() -> bool | None:
            found = ProcInvestigator(reader.facts_of, cgroups=tmp_path).context(facts)
            assert found is not None and found.slurm_job_claimed == "88123"
            return found.slurm_job_running

        assert lives() is None, "no Slurm here"
        (tmp_path / "system.slice" / "slurmstepd.scope" / "job_4").mkdir(parents=True)
        assert lives() is False
        (tmp_path / "system.slice" / "slurmstepd.scope" / "job_88123").mkdir()
        assert lives() is True
        reader.close()


@root
def test_of_another_users_process_is_told_what_anybody_may_see() -> None:
    # a session of its own: where the tests run in a container, the leader of theirs is out of sight
    with child(env={**os.environ, "RANK": "3"}, start_new_session=True) as process:

        def peep() -> list[object]:
            found = look(process.pid)
            return [found.owner.readable, found.owner.rank, len(found.ancestors) > 0, found.leader_exists]

        assert as_nobody(peep) == [False, None, True, True]


def test_a_process_that_is_gone_has_no_context() -> None:
    reader = ProcHostReader()
    with child() as process:
        facts = reader.read([process.pid])[process.pid]
    assert ProcInvestigator(reader.facts_of).context(facts) is None
    reader.close()


@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here")
def test_the_tmux_window_is_asked_of_ones_own_server(tmp_path: Path) -> None:
    tmux = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null"]
    sleep = f"{sys.executable} -c 'import time; time.sleep(600)'"
    subprocess.run([*tmux, "new-session", "-d", "-n", "first", "sleep 600"], check=True)
    try:
        subprocess.run([*tmux, "new-window", "-d", "-n", "serve", sleep], check=True)
        listed = subprocess.run([*tmux, "list-panes", "-a", "-F", "#{pane_pid} #{window_index}:#{window_name}"],
                                check=True, capture_output=True, text=True).stdout.split()  # fmt: skip
        pid, window = int(listed[2]), listed[3]
        assert window.endswith(":serve")
        wait_for(lambda: b"time.sleep" in Path(f"/proc/{pid}/cmdline").read_bytes(), "exec")
        assert look(pid).owner.where == f"tmux {window}"
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
