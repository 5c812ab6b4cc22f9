"""What to know before a process is signaled: what it does for others, and who restarts it."""

from __future__ import annotations

import os
import re
from typing import Final

from gputop.model import HostFacts
from gputop.model.owner import Owner

_ROLES: Final = (
    (re.compile(r"Xorg|Xwayland|X$|gnome-shell|kwin|plasmashell|sway$|Hyprland|weston|mutter"),
     "a display server: killing it ends the desktop session"),
    (re.compile(r"nvidia-cuda-mps-(control|server)"),
     "the MPS service: killing it ends all its clients; `echo quit | nvidia-cuda-mps-control` stops it cleanly"),
    (re.compile(r"containerd-shim|conmon|runc|crun|docker-init|tini|dumb-init"),
     "a container's supervisor: killing it ends the container"),
    (re.compile(r"dockerd|containerd$|podman$|kubelet|crio"), "a container engine: all containers depend on it"),
    (re.compile(r"slurmstepd"), "Slurm's step daemon: killing it ends the whole job step"),
    (re.compile(r"slurmd"), "Slurm's node daemon: killing it takes the node down for the cluster"),
    (re.compile(r"systemd$|\(sd-pam\)"), "systemd: killing it ends the user's whole session"),
    (re.compile(r"sshd"), "an SSH server: killing it ends a login"),
    (re.compile(r"nvidia-persiste"), "the driver's persistence daemon: without it, GPUs lose their state when idle"),
    (re.compile(r"tmux|screen$|SCREEN$|zellij"), "a terminal multiplexer: killing it ends everything in it"),
)  # fmt: skip


def kill_warnings(facts: HostFacts, owner: Owner | None = None) -> list[str]:
    """What could go wrong, the worst first."""
    found = []
    name = facts.name or ""
    for pattern, warning in _ROLES:
        if pattern.match(name):
            found.append(warning)
            break
    if facts.uid is not None and facts.uid != os.geteuid():
        found.append(f"another user's process, owned by {facts.user or facts.uid}")
    if owner is not None and owner.stop_with is not None:
        found.append(f"{owner.where or 'its supervisor'} may restart it: {owner.stop_with} stops it for good")
    if facts.state == "T":
        found.append("stopped: SIGCONT is sent as well, or the signal would stay pending")
    elif facts.state == "D":
        found.append("stuck in the kernel (state D): it may not die until that call returns")
    return found
