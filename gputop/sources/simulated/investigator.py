"""What the leak rules find out on a simulated machine, by the same reading of cgroups and environments as on a real
one."""

from __future__ import annotations

import time
from collections.abc import Iterable

from gputop.leaks.holders.holder import HeldDevice, Holder, HolderScan
from gputop.leaks.holders.scanner import benign
from gputop.leaks.process_context import ProcessContext
from gputop.model import HostFacts, ProcessKey
from gputop.model.owner import Owner, Relative
from gputop.procfs.owner import owner_from
from gputop.sources.simulated.host import SimulatedHost
from gputop.sources.simulated.machine import SimulatedWorld
from gputop.sources.simulated.population import SimulatedProcess


class SimulatedInvestigator:
    """See :class:`gputop.leaks.process_context.Investigator`. Nothing of the real /proc is read."""

    def __init__(self, world: SimulatedWorld, host: SimulatedHost) -> None:
        self._world = world
        self._host = host

    def context(self, facts: HostFacts) -> ProcessContext | None:
        with self._world.lock:
            t = self._world.now()
            process = self._find(facts.key, t)
            return None if process is None else self._context(process, facts, t)

    def owner(self, facts: HostFacts) -> Owner:
        found = self.context(facts)
        return Owner() if found is None else found.owner

    def is_alive(self, key: ProcessKey) -> bool:
        with self._world.lock:
            return self._find(key, self._world.now()) is not None

    def forget(self, living: Iterable[ProcessKey]) -> None:
        """Nothing is kept."""

    def scan(self, with_maps: bool = False) -> HolderScan:
        """Everybody who uses a GPU, and the children that inherited their parents' descriptors. Of root's processes the
        files may not be read, as by any user."""
        with self._world.lock:
            t = self._world.now()
            living = [p for p in self._world.population.processes.values() if p.started <= t < p.ends_at]
            holders = []
            for process in living:
                minors = self._minors(process)
                if minors and process.uid:
                    facts = self._host.facts_of(process, t)
                    devices = [HeldDevice(f"/dev/nvidia{n}", n, (36 + 2 * k,)) for k, n in enumerate(minors)]
                    control = HeldDevice("/dev/nvidiactl", None, (33,))
                    holders.append(Holder(facts, (*devices, control), benign(facts)))
            roots = sum(1 for process in living if process.uid == 0)
            return HolderScan(
                taken_at=self._world.epoch + t,
                took=0.04,
                holders=tuple(holders),
                inspected=len(living) - roots,
                denied=(("root", roots),) if roots else (),
                with_maps=with_maps,
            )

    def _find(self, key: ProcessKey, t: float) -> SimulatedProcess | None:
        process = self._world.population.alive(key.pid, t)
        return process if process is not None and process.key == key else None

    def _minors(self, process: SimulatedProcess) -> list[int]:
        """N of the /dev/nvidiaN it has open: its own, and those of the parent that forked it."""
        population = self._world.population
        from_whom = process.held_from or (process.parent if process.follows_parent else 0)
        owner = population.processes.get(from_whom)
        uses = (*process.uses, *(owner.uses if owner is not None else ()))
        return sorted({use.gpu for use in uses})

    def _context(self, process: SimulatedProcess, facts: HostFacts, t: float) -> ProcessContext:
        population = self._world.population
        ancestors = []
        parent = population.alive(process.parent, t)
        while parent is not None:
            ancestors.append(Relative(parent.pid, parent.name, parent.command, parent.start_ticks))
            parent = population.alive(parent.parent, t)
        leader = population.alive(process.session, t)
        multiplexed = any(relative.name.startswith("tmux") for relative in ancestors)
        orphan = process.parent == 1 and leader is None
        terminal = f"pts/{process.session % 23}" if multiplexed else None
        environment = self._host.environment_of(process)
        children = [p.key for p in population.processes.values() if p.parent == process.pid and p.ends_at > t]
        return ProcessContext(
            facts=facts,
            read_at=time.time(),
            owner=owner_from(
                facts,
                (self._host.cgroup_of(process),),
                None if environment is None else dict(environment),
                ancestors,
                terminal,
                executable=process.executable,
                pids_inside=(process.pid % 50 + 1,) if "docker" in process.cgroup else (),
                window=f"{process.session % 5}:{_script(process.command)}" if multiplexed else None,
            ),
            ancestors=tuple(ancestors),
            leader_exists=leader is not None,
            group_leader_exists=population.alive(process.group, t) is not None,
            ignores_hangup=False,
            has_terminal=terminal is not None,
            lost_terminal=f"/dev/pts/{process.session % 23}" if orphan and process.uid else None,
            waits_in="nv_wait_for_event" if process.stuck else None,
            children=tuple(children),
        )


def _script(command: str) -> str:
    """What somebody might call a window in which this runs."""
    words = [word.rpartition("/")[2] for word in command.split() if not word.startswith("-")]
    name = words[1] if len(words) > 1 and words[0].startswith("python") else words[0] if words else "sh"
    return name.removesuffix(".py")[:12]
