"""What is to be known before a process is sent a signal: what it does for others, and who starts it again."""

from __future__ import annotations

import os
import re
from typing import Final

from gputop.model import HostFacts
from gputop.model.owner import Owner

_ROLES: Final = (
    (re.compile(r"Xorg|Xwayland|X$|gnome-shell|kwin|plasmashell|sway$|Hyprland|weston|mutter"),
     "a display server: the desktop session ends with it"),
    (re.compile(r"nvidia-cuda-mps-(control|server)"),
     "the MPS service: all its clients end with it; `echo quit | nvidia-cuda-mps-control` ends it in good order"),
    (re.compile(r"containerd-shim|conmon|runc|crun|docker-init|tini|dumb-init"),
     "a container's supervisor: the container ends with it"),
    (re.compile(r"dockerd|containerd$|podman$|kubelet|crio"), "a container engine: it looks after all containers"),
    (re.compile(r"slurmstepd"), "Slurm's step daemon: the whole job step ends with it"),
    (re.compile(r"slurmd"), "Slurm's node daemon: the node goes down for the cluster"),
    (re.compile(r"systemd$|\(sd-pam\)"), "systemd: the user's whole session ends with it"),
    (re.compile(r"sshd"), "an ssh server: a login ends with it"),
    (re.compile(r"nvidia-persiste"), "the driver's persistence daemon: GPUs lose their state when nobody uses them"),
    (re.compile(r"tmux|screen$|SCREEN$|zellij"), "a terminal multiplexer: everything in it ends with it"),
)  # fmt: skip


def kill_warnings(facts: HostFacts, owner: Owner | None = None) -> list[str]:
    """What could go wrong, in words; the worst first."""
    found = []
    name = facts.name or ""
    for pattern, words in _ROLES:
        if pattern.match(name):
            found.append(words)
            break
    if facts.uid is not None and facts.uid != os.geteuid():
        found.append(f"another user's process: it belongs to {facts.user or facts.uid}")
    if owner is not None and owner.stop_with is not None:
        found.append(f"{owner.where or 'its supervisor'} may start it again: {owner.stop_with} ends it for good")
    if facts.state == "T":
        found.append("stopped: it is sent SIGCONT too, or the signal would wait")
    elif facts.state == "D":
        found.append("in the kernel (state D): it may not end before the driver lets go")
    return found
