"""To whom a process belongs: container, job, unit, terminal, Python environment, rank.

The cgroup says it surely and to everybody; the environment only to its owner and root, and only what it was at the
start. Of the environment nothing but the names below is ever looked at.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from gputop.model import Gpu, HostFacts, clean_text, replace
from gputop.model.owner import Container, Owner, Relative

#: The only names that are read of an environment.
ENVIRONMENT: Final = frozenset((
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS",
    "PBS_JOBID", "LSB_JOBID", "JOB_ID", "SGE_TASK_ID",
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
    "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "VIRTUAL_ENV", "JPY_PARENT_PID",
    "APPTAINER_CONTAINER", "APPTAINER_NAME", "SINGULARITY_CONTAINER", "SINGULARITY_NAME", "container",
    "KUBERNETES_SERVICE_HOST", "HOSTNAME", "TMUX", "TMUX_PANE", "STY", "WINDOW",
))  # fmt: skip

_HEX64: Final = r"([0-9a-f]{64})"
_KUBERNETES: Final = re.compile(r"kubepods")
_POD: Final = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f_-]{27})")
_POD_CONTAINER: Final = re.compile(rf"(?:^|[/:])(?:cri-containerd-|crio-|docker-|cri-o-)?{_HEX64}(?:\.scope)?(?:/|$)")
_ENGINES: Final = (
    ("docker", re.compile(rf"/docker/{_HEX64}|docker-{_HEX64}\.scope")),
    ("podman", re.compile(rf"libpod-{_HEX64}\.scope|/libpod_parent/libpod-{_HEX64}")),
    ("containerd", re.compile(rf"cri-containerd[:-]{_HEX64}|nerdctl-{_HEX64}\.scope")),
    ("lxc", re.compile(r"/lxc(?:\.payload)?[./]([^/]+)")),
    ("nspawn", re.compile(r"/machine-([^/]+)\.scope")),
)
_SLURM_V2: Final = re.compile(
    r"/(?:[^/]*_)?slurmstepd\.scope/job_(\d+)(?:/step_(\w+))?(?:/(?:user|slurm))?(?:/task_(?:\d+|special))?"
)
_SLURM_V1: Final = re.compile(r"/slurm(?:_[^/]+)?/uid_\d+/job_(\d+)(?:/step_([^/]+))?")
_SESSION: Final = re.compile(r"/session-(\w+)\.scope")
_USER_MANAGER: Final = re.compile(r"/user@\d+\.service/(.+)")
_CONDA_EXE: Final = re.compile(r"/envs/([^/]+)/bin/")
_ENROOT: Final = re.compile(r"enroot\S*/(pyxis_[\w.]+|[\w.-]+)")
_SSH: Final = ("sshd", "sshd-session", "dropbear", "mosh-server")


def cgroup_paths(raw: bytes) -> tuple[str, ...]:
    """The paths of a /proc/PID/cgroup, the longest first (v1 has one a controller, v2 one)."""
    paths = []
    for line in raw.decode("utf-8", "replace").splitlines():
        number, _, rest = line.partition(":")
        if number.isdecimal():
            paths.append(clean_text(rest.partition(":")[2]))
    return tuple(sorted(dict.fromkeys(paths), key=len, reverse=True))


def environment_from(raw: bytes) -> dict[str, str]:
    """What of a /proc/PID/environ is in :data:`ENVIRONMENT`. As getenv: the first entry of a name counts."""
    found: dict[str, str] = {}
    for entry in raw.split(b"\0"):
        name, separator, value = entry.partition(b"=")
        key = name.decode("ascii", "replace")
        if separator and key in ENVIRONMENT:
            found.setdefault(key, clean_text(value, 512))
    return found


def owner_from(
    facts: HostFacts,
    cgroups: Sequence[str],
    environment: Mapping[str, str] | None,
    ancestors: Sequence[Relative] = (),
    terminal: str | None = None,
    *,
    executable: str | None = None,
    pids_inside: Sequence[int] = (),
    root_mount: str | None = None,
    marks: Sequence[str] = (),
    ignores_hangup: bool | None = None,
    window: str | None = None,
    namespace: str | None = None,
) -> Owner:
    """The owner, from what was read of the process.

    *environment* None: it may not be read. *pids_inside* is NSpid of /proc/PID/status after the first, *root_mount* the
    mount of its root directory where that is not the host's, *marks* which marker files are in that directory
    ("dockerenv", "containerenv", "singularity"), *window* the tmux window where tmux told it, *namespace* a pod's.
    """
    env = environment or {}
    container = _container(cgroups, env, pids_inside, root_mount, marks, namespace)
    job, step = _slurm(cgroups)
    unit, of_user, session = _unit(cgroups)
    multiplexer = _multiplexer(env, ancestors, window)
    remote = any(relative.name.startswith(_SSH) for relative in ancestors)
    notebook = "JPY_PARENT_PID" in env or "ipykernel" in (facts.command or "") or "/kernel-" in (facts.command or "")
    rank = _number(env, "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
    if rank is None and _number(env, "SLURM_NTASKS") not in (None, 1):
        rank = _number(env, "SLURM_PROCID")
    return _told(
        Owner(
            container=container,
            slurm_job=job,
            slurm_step=step,
            batch_job=_batch(env),
            unit=unit,
            unit_of_user=of_user,
            multiplexer=multiplexer,
            terminal=terminal,
            remote=remote,
            login_session=session,
            notebook=notebook,
            detached=_detached(facts, terminal, ignores_hangup),
            environment=_python(env, executable),
            rank=rank,
            local_rank=_number(env, "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
            if rank is not None
            else None,
            world_size=_number(env, "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE") if rank is not None else None,
            run_id=env.get("TORCHELASTIC_RUN_ID"),
            visible_devices=env.get("CUDA_VISIBLE_DEVICES"),
            device_order=env.get("CUDA_DEVICE_ORDER"),
            readable=environment is not None,
        ),
        env,
    )


def _told(owner: Owner, env: Mapping[str, str]) -> Owner:
    return replace(owner, where=_where(owner), stop_with=_stop_with(owner, env))


def _container(
    cgroups: Sequence[str],
    env: Mapping[str, str],
    pids_inside: Sequence[int],
    root_mount: str | None,
    marks: Sequence[str],
    namespace: str | None,
) -> Container | None:
    inside = pids_inside[-1] if pids_inside else None
    for path in cgroups:
        if _KUBERNETES.search(path):
            pod, one = _POD.search(path), _POD_CONTAINER.search(path)
            uid, name = pod and pod[1].replace("_", "-"), env.get("HOSTNAME") or None
            return Container("kubernetes", one and one[1], uid, inside, name, namespace)
        for engine, pattern in _ENGINES:
            found = pattern.search(path)
            if found and "conmon" not in found[0]:
                return Container(engine, next(group for group in found.groups() if group), pid_inside=inside)
    for engine, names in (("apptainer", ("APPTAINER_NAME", "SINGULARITY_NAME")),):
        name = next((env[name] for name in names if name in env), None)
        if name is not None or "APPTAINER_CONTAINER" in env or "SINGULARITY_CONTAINER" in env or "singularity" in marks:
            return Container(engine, name, pid_inside=inside)
    if root_mount is not None and (enroot := _ENROOT.search(root_mount)):
        return Container("enroot", enroot[1], pid_inside=inside)
    if "KUBERNETES_SERVICE_HOST" in env and inside is not None:
        return Container("kubernetes", pid_inside=inside)
    if "dockerenv" in marks:
        return Container("docker", pid_inside=inside)
    if "containerenv" in marks:
        return Container("podman", pid_inside=inside)
    if inside is not None:
        return Container(env.get("container") or "container", pid_inside=inside)
    return None


def _slurm(cgroups: Sequence[str]) -> tuple[str | None, str | None]:
    for path in cgroups:
        found = _SLURM_V2.search(path) or _SLURM_V1.search(path)
        if found:
            return found[1], found[2]
    return None, None


def _unit(cgroups: Sequence[str]) -> tuple[str | None, bool, str | None]:
    """(unit, whether systemd --user's, N of session-N.scope)."""
    for path in cgroups:
        session = _SESSION.search(path)
        if session:
            return None, False, session[1]
        inner = _USER_MANAGER.search(path)
        parts = [part for part in (inner[1] if inner else path).split("/") if part]
        units = [part for part in parts if part.endswith((".service", ".scope"))]
        if units and not units[-1].startswith(("tmux-spawn-", "init.scope")):
            return units[-1], inner is not None, None
        if units:
            return None, False, None
    return None, False, None


def _multiplexer(env: Mapping[str, str], ancestors: Sequence[Relative], window: str | None) -> str | None:
    names = [relative.name for relative in ancestors]
    if any(name.startswith("tmux") for name in names):
        return f"tmux {window or env.get('TMUX_PANE', '')}".rstrip()
    if any(name in ("screen", "SCREEN") for name in names):
        return f"screen {env.get('STY', '')}".rstrip()
    if any(name.startswith("zellij") for name in names):
        return "zellij"
    return None


def _batch(env: Mapping[str, str]) -> str | None:
    for name, system in (("PBS_JOBID", "pbs"), ("LSB_JOBID", "lsf")):
        if env.get(name):
            return f"{system} {env[name]}"
    if env.get("JOB_ID") and "SGE_TASK_ID" in env:
        return f"sge {env['JOB_ID']}"
    return None


def _detached(facts: HostFacts, terminal: str | None, ignores_hangup: bool | None) -> str | None:
    if ignores_hangup and facts.parent_pid == 1:
        return "nohup"
    if terminal is None and facts.session_id == facts.key.pid and facts.parent_pid == 1:
        return "setsid"
    return None


def _python(env: Mapping[str, str], executable: str | None) -> str | None:
    if env.get("VIRTUAL_ENV"):
        return f"venv {env['VIRTUAL_ENV']}"
    if env.get("CONDA_DEFAULT_ENV") or env.get("CONDA_PREFIX"):
        return f"conda {env.get('CONDA_DEFAULT_ENV') or env['CONDA_PREFIX']}"
    found = _CONDA_EXE.search(executable or "")
    return f"conda {found[1]}" if found else None


def _number(env: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        value = env.get(name, "")
        if value.isascii() and value.isdecimal() and len(value) < 8:
            return int(value)
    return None


def _where(owner: Owner) -> str:
    container = owner.container
    if owner.slurm_job:
        return f"slurm {owner.slurm_job}"
    if container is not None:
        if container.engine == "kubernetes":
            return f"k8s {(container.pod or container.id or '')[:8]}".rstrip()
        return f"{container.engine} {_short(container.id)}".rstrip()
    if owner.batch_job:
        return owner.batch_job
    if owner.notebook:
        return "jupyter"
    if owner.unit and not owner.unit_of_user:
        return f"unit {owner.unit}"
    if owner.multiplexer:
        return owner.multiplexer
    if owner.terminal:
        return f"{'ssh' if owner.remote else 'tty'} {owner.terminal}"
    if owner.detached:
        return owner.detached
    if owner.unit:
        return f"unit {owner.unit}"
    return f"session {owner.login_session}" if owner.login_session else ""


def _short(container_id: str | None) -> str:
    """The first digits of an id, as the engines show it; a name whole."""
    return (container_id or "")[:12] if len(container_id or "") == 64 else container_id or ""


def _stop_with(owner: Owner, env: Mapping[str, str]) -> str | None:
    """The command by which its manager ends it for good: what is only killed may be started again."""
    container = owner.container
    if owner.slurm_job:
        return f"scancel {owner.slurm_job}"
    if owner.batch_job:
        system, _, job = owner.batch_job.partition(" ")
        return f"{'bkill' if system == 'lsf' else 'qdel'} {shlex.quote(job)}"
    if container is not None:
        name = shlex.quote(_short(container.id))
        if container.engine == "kubernetes":
            return f"kubectl delete pod {shlex.quote(env['HOSTNAME'])}" if env.get("HOSTNAME") else None
        commands = {
            "docker": "docker stop",
            "podman": "podman stop",
            "containerd": "nerdctl stop",
            "lxc": "lxc-stop -n",
        }
        commands["nspawn"] = "machinectl terminate"
        return f"{commands[container.engine]} {name}" if container.id and container.engine in commands else None
    if owner.unit and owner.unit.endswith(".service"):
        return f"systemctl{' --user' if owner.unit_of_user else ''} stop {shlex.quote(owner.unit)}"
    return None


def cuda_index(owner: Owner, gpu: Gpu, gpus: Sequence[Gpu]) -> int | None:
    """The number by which the process itself calls *gpu* (``cuda:N``); None where it cannot see it or that is not
    certain: with GPUs of different models CUDA's own order (the fastest first) is not known from outside, and in a
    container or job the numbers count the devices that it was given.
    """
    if not owner.readable:
        return None
    ordered = sorted(gpus, key=lambda one: (one.pci_bus_id or "", one.index))
    by_number = owner.device_order == "PCI_BUS_ID" or len({one.name for one in gpus}) == 1
    confined = owner.container is not None or owner.slurm_job is not None
    if owner.visible_devices is None:
        return ordered.index(gpu) if by_number and not confined and gpu in ordered else None
    for position, name in enumerate(owner.visible_devices.split(",")):
        name = name.strip()
        if name.isascii() and name.isdecimal():
            if not by_number or confined or int(name) >= len(ordered):
                return None  # CUDA stops at the first that is not there
            seen = ordered[int(name)]
        else:
            found = [one for one in gpus if name and one.uuid.startswith(name)]
            if len(found) != 1:
                return None
            seen = found[0]
        if seen.uuid == gpu.uuid:
            return position
    return None
