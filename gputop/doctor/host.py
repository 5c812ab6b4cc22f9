"""What this machine lets gputop see: device files, PID namespace, /proc, containers, signals."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from gputop.doctor import FAIL, OK, WARN, Check
from gputop.procfs.host_facts import command_line
from gputop.procfs.lookups import Key, Lookups
from gputop.procfs.machine import pids_are_host
from gputop.procfs.stat import read_stat
from gputop.procfs.user_names import UserNames
from gputop.sources.nvml.driver.errors import in_container

_CONTAINERS: Final = {
    "kubepods": "Kubernetes",
    "libpod": "Podman",
    "docker": "Docker",
    "lxc": "LXC",
    "containerd": "containerd",
}
LOOKUP_SECONDS: Final = 2.0  # for all command lines together, and for all names of users
_NEEDED_CAPABILITIES: Final = {"CAP_SYS_PTRACE": 19, "CAP_KILL": 5}  # their bits (linux/capability.h)
_ALLOWS: Final = {"CAP_SYS_PTRACE": "inspected", "CAP_KILL": "signaled"}
_EVERYTHING: Final = "`docker run --gpus all --pid=host` shows every process"


def devices(root: Path = Path("/")) -> Iterator[Check]:
    """/dev/nvidia*: are they there, may we use them."""
    control = root / "dev/nvidiactl"
    if not control.exists():
        if (root / "dev/dxg").exists():
            yield Check("devices", OK, "/dev/dxg: this is WSL")
            return
        fix = "start the container with `--gpus all`" if in_container(root) else "run `nvidia-modprobe` as root"
        yield Check("devices", FAIL, "/dev/nvidiactl is missing", fix)
        return
    gpus = sorted(path for path in (root / "dev").glob("nvidia[0-9]*") if path.name[6:].isdecimal())
    denied = [path for path in (control, *gpus) if not os.access(path, os.R_OK | os.W_OK)]
    if denied:
        names = ", ".join(f"/dev/{path.name} ({_mode(path)})" for path in denied)
        yield Check("devices", FAIL, f"no access to {names}", "join the group that owns them, or request access")
    elif _cut_off(control):
        yield Check(
            "devices",
            FAIL,
            "/dev/nvidiactl has the right mode, but a cgroup denies access",
            "restart the container (`systemctl daemon-reload` on the host removes its GPUs); in a job, request GPUs",
        )
    else:
        yield Check("devices", OK, f"/dev/nvidiactl and {len(gpus)} GPU(s), readable and writable")
    known = len(list((root / "proc/driver/nvidia/gpus").glob("*")))
    if known > len(gpus):
        words = f"the kernel has {known} GPUs, but there are device files for {len(gpus)}"
        yield Check(
            "devices", OK if in_container(root) else WARN, words, "the others are not available in this container"
        )
    if not (root / "dev/nvidia-uvm").exists():
        words = "no /dev/nvidia-uvm: CUDA needs it, gputop does not"
        yield Check("devices", WARN, words, "run `nvidia-modprobe -u -c0`, or any CUDA program, as root")


def _mode(path: Path) -> str:
    try:
        return stat.filemode(path.stat().st_mode)
    except OSError:
        return "?"


def _cut_off(control: Path) -> bool:
    """Whether a cgroup forbids what the file's mode allows. (The control device: opening it wakes no GPU.)"""
    try:
        os.close(os.open(control, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in (errno.EPERM, errno.EACCES)
    return False


def processes(root: Path = Path("/")) -> Iterator[Check]:
    """Which processes can be seen, and signaled."""
    host = pids_are_host(root / "proc")
    if host is None:
        yield Check("PID namespace", WARN, "unknown", "is /proc mounted?")
    elif host:
        yield Check("PID namespace", OK, "the host's: the pids are those of the driver")
    else:
        words = "our own: the driver lists only processes in it; all used memory is shown, but not who uses it"
        yield Check("PID namespace", WARN, words, _EVERYTHING)
    hidden = re.search(r"hidepid=(\w+)", _proc_options(root))
    if hidden and hidden[1] not in ("0", "off"):
        words = f"/proc is mounted with hidepid={hidden[1]}: names and commands of other users' processes are hidden"
        yield Check("/proc", WARN, words, "run as root, or join the group given by the mount's gid= option")
    yield _rights(root)
    yield _pidfd()


def _rights(root: Path) -> Check:
    """Whose processes can be inspected and signaled. Root is so in its user namespace, as its capabilities go."""
    if os.geteuid() != 0:
        words = "ordinary user: other users' processes are listed, but cannot be inspected or signaled"
        return Check("rights", OK, words)
    others = "other users' processes are listed, but"
    if not _has_all_users(root):
        words = f"root of a user namespace only: {others} cannot be inspected or signaled"
        fix = "run as root outside of it (rootless containers and `unshare -r` have one)"
        return Check("rights", WARN, words, fix)
    missing = [name for name, bit in _NEEDED_CAPABILITIES.items() if not _effective_capabilities(root) >> bit & 1]
    if missing:
        verbs = " or ".join(_ALLOWS[name] for name in missing)
        words = f"root without {' and '.join(missing)}: {others} cannot be {verbs}"
        fix = f"`docker run {' '.join(f'--cap-add {name[4:]}' for name in missing)}`"
        return Check("rights", WARN, words, fix)
    return Check("rights", OK, "root: every process can be inspected and signaled")


def _has_all_users(root: Path) -> bool:
    """Whether this user namespace is the machine's first: it alone has all users, each under its own number."""
    try:
        return (root / "proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    except OSError:  # a kernel without user namespaces
        return True


def _effective_capabilities(root: Path) -> int:
    """This process's capabilities, a bit each (capabilities(7)); all where they cannot be read."""
    try:
        found = re.search(r"^CapEff:\s*([0-9a-f]+)$", (root / "proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return int(found[1], 16) if found else -1


def slow_lookups(root: Path = Path("/"), users: UserNames | None = None) -> Iterator[Check]:
    """Whether what is asked for each process answers: its command line, and the name of its user."""
    lookups = Lookups()
    users = users or UserNames(lookups)
    proc = root / "proc"
    commands: dict[Key, Callable[[], object]] = {}
    uids = {os.geteuid()}
    pids = sorted(int(path.name) for path in proc.iterdir() if path.name.isdecimal())
    for pid in pids:
        with suppress(OSError):
            uids.add((proc / str(pid)).stat().st_uid)
            stat = read_stat(f"{proc}/{pid}/stat")
            if stat is not None and stat.state not in "DZX":
                commands["command", pid] = partial(command_line, str(proc), pid)
    lookups.ask(commands, LOOKUP_SECONDS)
    hanging = [pid for pid in pids if lookups.waits(("command", pid))]
    if hanging:
        some = ", ".join(map(str, hanging[:5])) + (f" and {len(hanging) - 5} more" if len(hanging) > 5 else "")
        words = f"no answer within {LOOKUP_SECONDS:g} s: /proc/PID/cmdline of pid {some}. [comm] is shown instead"
        fix = "a thread of the process is stuck in the kernel and holds its memory lock: see dmesg for hung tasks"
        yield Check("/proc", WARN, words, fix)
    names = users.calls(uids)
    asked_at = time.monotonic()
    answers = users.lookups.ask(names, LOOKUP_SECONDS)
    took = time.monotonic() - asked_at
    if late := sorted(uid for uid in uids if ("user", uid) in names and ("user", uid) not in answers):
        words = f"no answer within {LOOKUP_SECONDS:g} s: the name of user {', '.join(map(str, late[:5]))}. The number"
        fix = f"try `getent passwd {late[0]}`: the name service (nsswitch.conf: LDAP, SSSD, nscd) is slow or down"
        yield Check("user names", WARN, f"{words} is shown instead", fix)
    else:
        yield Check("user names", OK, f"{len(names)} looked up in {took:.2f} s")


def _proc_options(root: Path) -> str:
    """The mount options of /proc."""
    try:
        lines = (root / "proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.split()[3] for line in lines if len(line.split()) > 3 and line.split()[1] == "/proc"), "")


def _pidfd() -> Check:
    """Whether a signal can be tied to a process, and not only to its number."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        words = "no pidfd: only the start time is checked before a signal is sent"
        return Check("signals", WARN, words, "Linux 5.3 or later has pidfd; some sandboxes forbid it")
    return Check("signals", OK, "pidfd: a reused pid cannot be signaled by mistake")


def container(root: Path = Path("/")) -> Iterator[Check]:
    """Whether this is a container, and what it was given."""
    if not in_container(root):
        yield Check("container", OK, "none detected")
        return
    yield Check("container", OK, _kind(root))
    capabilities = os.environ.get("NVIDIA_DRIVER_CAPABILITIES")
    if capabilities and not {"utility", "all"} & set(capabilities.split(",")):
        words = f"NVIDIA_DRIVER_CAPABILITIES={capabilities}: without `utility`, libnvidia-ml.so.1 is missing"
        yield Check("container", WARN, words, "add `utility` to it")
    visible = os.environ.get("NVIDIA_VISIBLE_DEVICES")
    if visible in ("none", "void", ""):
        yield Check("container", WARN, f"NVIDIA_VISIBLE_DEVICES={visible or '(empty)'}", "set it to `all`")


def _kind(root: Path) -> str:
    try:
        cgroup = (root / "proc/self/cgroup").read_text(errors="replace")
    except OSError:
        cgroup = ""
    if (root / "run/.containerenv").exists():
        return "Podman"
    named = next((name for mark, name in _CONTAINERS.items() if mark in cgroup), None)
    return named or ("Docker or similar" if (root / ".dockerenv").exists() else "unknown type")
