"""Enter on a process: everything that is known about it, live."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from gputop import units
from gputop.history.detail_history import DetailHistory
from gputop.leaks.report import DeadPid
from gputop.model import GpuProcess, HostFacts, ProcessKey, Snapshot
from gputop.model.owner import Owner
from gputop.monitor import Monitor
from gputop.procfs.host_reader import ProcessDetails
from gputop.sampling.messages import LeaksReported, SnapshotTaken
from gputop.signals.protocol import Target
from gputop.text import fit, wrap
from gputop.ui.gpus.parts import tall_sparkline
from gputop.ui.kill.start import kill
from gputop.ui.kill.targets import KillRequest, with_holders
from gputop.ui.leaks.text import about_holders, about_verdict
from gputop.ui.monitor_screen import MonitorScreen
from gputop.ui.processes.listing.entry import memory_capacities, memory_capacity
from gputop.ui.toolkit.background import in_background
from gputop.ui.toolkit.cells import Line, Span
from gputop.ui.toolkit.frame import Hint
from gputop.ui.toolkit.palette import gpu_role, soft_role
from gputop.ui.toolkit.scrolling_page import Part, ScrollingPage, field

_FETCH_SECONDS: Final = 1.95  # between questions to the host, at most one a snapshot
_CURVE_ROWS: Final = 3
_STATES: Final = {
    "R": "running (R)",
    "S": "sleeping (S)",
    "D": "uninterruptible sleep (D): signals wait until the kernel call returns",
    "T": "stopped (T): keeps its GPU memory; SIGCONT resumes it",
    "t": "stopped by a debugger (t)",
    "Z": "zombie (Z): exited, not yet reaped by its parent",
    "X": "dead (X)",
    "I": "idle kernel thread (I)",
}
#: Why the environment of a process in this state is not read, whosever it is.
_NO_ENVIRONMENT: Final = {"Z": "it has exited", "X": "it has exited", "D": "it is stuck in the kernel"}


class ProcessScreen(MonitorScreen, ScrollingPage[None]):
    """Details of the process behind *process*, a row of the table: as it is now, or as it was in *then*. Of an earlier
    time the host is not asked, as it tells of now only, and no signal is sent."""

    shows = (SnapshotTaken, LeaksReported)

    def __init__(self, monitor: Monitor, process: GpuProcess, then: Snapshot | None = None) -> None:
        super().__init__(monitor)
        self.key = process.key
        self._then, self._signals = then, monitor.signals if then is None else None
        self._past = monitor.detail_history if then is None else DetailHistory()
        self._snapshot: Snapshot | None = None
        self._rows: tuple[GpuProcess, ...] = (process,)
        self._facts: HostFacts | None = process.host
        self._details: ProcessDetails | None = None
        self._fetching = False
        self._fetched_at = 0.0  # monotonic
        self._gone_at: float | None = None  # epoch seconds at which it was seen to be gone
        if then is not None:
            self._past.add(then)
        self._take_in()

    def on_mount(self) -> None:
        self._fetch()

    def look(self) -> None:
        was_listed = bool(self._rows)
        self._take_in()
        if (was_listed and not self._rows) or time.monotonic() - self._fetched_at >= _FETCH_SECONDS:
            self._fetch()
        self.draw()

    def _take_in(self) -> None:
        snapshot = self._then or self.monitor.latest
        if snapshot is None or snapshot is self._snapshot:
            return
        self._snapshot = snapshot
        rows = tuple(process for process in snapshot.processes if self._is_it(process))
        if rows:
            self._rows = rows
            self._facts = next((row.host for row in rows if row.host is not None), self._facts)
        elif self._gone_at is None:
            self._rows = ()  # it let go of the GPUs; whether it lives, the host says

    def _is_it(self, process: GpuProcess) -> bool:
        """A dead pid that the driver still lists has no start time any more, and is the same one."""
        return process.pid == self.key.pid and (process.key == self.key or process.host is None)

    def _fetch(self) -> None:
        if self._then is not None or self._fetching or self._gone_at is not None:
            return
        self._fetching, self._fetched_at = True, time.monotonic()
        in_background(self, lambda: self.monitor.details(self.key), self._fetched)

    def _fetched(self, details: ProcessDetails | None) -> None:
        self._fetching = False
        if details is not None:
            self._details = details
        elif self._gone_at is None:
            self._gone_at = time.time()
        self.draw()

    def pressed(self, key: str) -> bool:
        if key == "T" and self._signals is not None and self._rows and self._rows[0].torch is not None:
            from gputop.ui.torch_live.asking import ask_process

            ask_process(self, self.monitor, self._rows[0])
            return True
        if key not in ("k", "f9") or self._signals is None:
            return False
        facts, dead_pid = self._facts, self._dead_pid()
        if dead_pid is not None and dead_pid.targets:
            request = with_holders((), [dead_pid])
        else:
            target = Target(
                self.key,
                facts.user if facts is not None else None,
                facts.command if facts is not None else None,
                sum(row.memory_bytes or 0 for row in self._rows) if self._rows else None,
                tuple(dict.fromkeys(row.gpu_uuid for row in self._rows)),
            )
            request = KillRequest((target,))
        kill(self, self.monitor, request)
        return True

    @property
    def _is_dead(self) -> bool:
        """A zombie is still there for the host, and as dead as any other."""
        return bool(self._rows) and self._rows[0].exists is False

    def _dead_pid(self) -> DeadPid | None:
        return self.monitor.report.dead_pid(self.key.pid)

    # ------------------------------------------------------------------ drawing

    def heading(self) -> tuple[str, str]:
        facts = self._facts
        name = f" · {facts.name}" if facts is not None and facts.name else ""
        at = self._snapshot.taken_at if self._snapshot is not None else None
        when = units.UNKNOWN if at is None else units.clock(at)
        return f"Process {self.key.pid}{name}", f"as it was at {when}" if self._then is not None else when

    def hints(self) -> Sequence[Hint]:
        kill: tuple[Hint, ...] = (("F9 k", "kill"),) if self._signals is not None else ()
        asks = self._signals is not None and any(row.torch is not None for row in self._rows)
        ask: tuple[Hint, ...] = (("T", "PyTorch: snapshot, record"),) if asks else ()
        return (("Esc q", "back"), *kill, *ask)

    def before(self, cells: int) -> Sequence[Line]:
        lines: list[Line] = []
        if self._gone_at is not None:
            still = [row for row in self._rows if row.memory_bytes]
            text = f"Exited: noticed at {units.clock(self._gone_at)}. "
            if self._details is None:
                text = "The host no longer has this process. "
            if still:
                held = units.size(sum(row.memory_bytes or 0 for row in still), self.view.settings.memory_unit)
                text += f"The driver still lists it with {held}: processes that inherited its memory hold it."
            lines += _warned(text, cells, self.view.glyphs.warning, "critical")
        problems = self._details.problems if self._details is not None else ()
        if self._details is None and self._facts is not None and self._facts.waits_for:
            problems = (f"no answer yet: {', '.join(self._facts.waits_for)}",)
        for problem in problems:
            lines += _warned(problem, cells, self.view.glyphs.warning, "warning")
        command = self._command()
        if command is not None:
            lines += [((part, "title"),) for part in wrap(command, cells)]
        return [*lines, ()] if lines else ()

    def _command(self) -> str | None:
        facts = self._details.facts if self._details is not None else self._facts
        return facts.command if facts is not None else None

    def parts(self, cells: int) -> Sequence[Part]:
        details = self._details
        found = [Part("GPU memory", self._gpu_memory(cells)), *self._torch(cells), *self._thoughts(cells)]
        found.append(Part("Process", self._process(cells)))
        if details is None:
            waiting = "reading /proc…" if self._gone_at is None else "nothing more is known"
            if self._then is not None:
                waiting = "available live only: press End on the dashboard, then Enter"
            return [*found, Part("Host", [((waiting, "dim"),)])]
        found.append(Part("Origin", self._origin(details, cells)))
        found.append(Part("Parents", self._family(details.ancestors, cells, deeper=True)))
        found.append(Part(f"Children ({len(details.children)})", self._family(details.children, cells, deeper=False)))
        found.append(Part("Environment (selected variables)", self._environment(details, cells)))
        return found

    def _torch(self, cells: int) -> list[Part]:
        """What it tells of PyTorch's allocator, a part a GPU."""
        snapshot = self._snapshot
        if snapshot is None or not any(row.torch is not None for row in self._rows):
            return []
        from gputop.ui.torch_live.text import about_torch

        found = []
        for row in self._rows:
            rings = self._past.torch(row.row)
            lines = about_torch(row, snapshot.gpu(row.gpu_uuid), snapshot.taken_at, rings, self.view, cells)
            found.append(Part(f"PyTorch on GPU {row.gpu_index} (gputop.torch_monitor)", lines))
        return found

    def _thoughts(self, cells: int) -> list[Part]:
        """The verdict on it, who keeps its memory, and whose it is."""
        report = self.monitor.report
        found = []
        dead_pid = self._dead_pid() if self._gone_at is not None or self._is_dead else None
        key = ProcessKey(self.key.pid, None) if dead_pid is not None else self.key
        verdict = report.verdict_of(key)
        if verdict is not None:
            title = f"{verdict.verdict.name}: why, and what would rule it out"
            found.append(Part(title, about_verdict(verdict, report, self.view, cells)))
        elif dead_pid is not None:
            found.append(Part("Who holds its memory", about_holders(dead_pid, report, self.view, cells)))
        owner = report.owners.get(self.key)
        if owner is not None:
            rows = [line for label, text in owner.facts() for line in field(label, text, cells, label_cells=22)]
            rows += [
                line for gpu in self._cuda_names(owner) for line in field("CUDA device", gpu, cells, label_cells=22)
            ]
            if owner.late:
                rows.append((("no answer yet: " + ", ".join(owner.late), "warning"),))
            elif not owner.readable:
                state = self._facts.state if self._facts is not None else None
                why = _NO_ENVIRONMENT.get(state or "", "another user's process")
                rows.append(((f"{why}: its environment cannot be read", "dim"),))
            found.append(Part("Owner", rows or [(("no container, job, systemd unit or terminal", "dim"),)]))
        for straggler in report.stragglers:
            if straggler.process == self.key:
                found.append(
                    Part(
                        f"Compared with its peers in {straggler.job}",
                        [((w, "warning"),) for w in wrap(straggler.message, cells)],
                    )
                )
        return found

    def _cuda_names(self, owner: Owner) -> list[str]:
        """The number by which the process itself knows each GPU: its place in CUDA_VISIBLE_DEVICES."""
        if owner.visible_devices is None or self._snapshot is None:
            return []
        names = [name.strip() for name in owner.visible_devices.split(",")]
        found = []
        for row in self._rows:
            gpu = self._snapshot.gpu(row.gpu_uuid)
            if gpu is None:
                continue
            for n, name in enumerate(names):
                by_uuid = name.startswith("GPU-") and gpu.uuid.startswith(name)
                if by_uuid or (name == str(gpu.index) and owner.device_order in (None, "PCI_BUS_ID")):
                    sure = (
                        "" if by_uuid or owner.device_order == "PCI_BUS_ID" else " (if CUDA_DEVICE_ORDER is PCI_BUS_ID)"
                    )
                    found.append(f"GPU {gpu.index} is cuda:{n} in this process{sure}")
        return found

    def _gpu_memory(self, cells: int) -> list[Line]:
        if not self._rows:
            return [(("It uses no GPU memory now.", "dim"),)]
        lines: list[Line] = []
        capacities = memory_capacities(self._snapshot) if self._snapshot is not None else {}
        for row in self._rows:
            total = memory_capacity(capacities, row)
            mig = row.gpu_instance_id is not None
            instance = f" MIG {row.gpu_instance_id}:{row.compute_instance_id}" if mig else ""
            role = gpu_role(row.gpu_index)
            share = f" of {self.view.memory(total)}" if total else ""
            spans: list[Span] = [
                (f"GPU {row.gpu_index}{instance}", f"{role}+b"),
                (f"  {self.view.memory(row.memory_bytes)}", "title+b"),
                (share, "dim"),
                (f"   SM {units.percent(row.sm_percent)}  BW {units.percent(row.memory_bandwidth_percent)}", "text"),
                (f"  {row.kind}", "dim"),
            ]
            lines.append(tuple(spans))
            ring = self._past.memory(row.row)
            if ring is not None:
                lines += self._curve(ring.last(max(10, cells - 9)), total, row.gpu_index, cells)
        lines.append((("Maximum of every 2 s, newest on the right", "dim"),))
        return lines

    def _curve(self, values: tuple[float, ...], total: int | None, index: int, cells: int) -> list[Line]:
        """Its memory over time, as a share of the GPU's; of its own peak where that is small."""
        peak = max((value for value in values if value == value), default=0.0)
        if not peak:
            return []
        top = float(total) if total and peak > total / 10 else peak
        percents = tuple(100 * value / top for value in values)
        spans = tall_sparkline(percents, max(10, cells - 9), _CURVE_ROWS, soft_role(index), self.view.glyphs)
        labels = (self.view.memory(top), *[""] * (_CURVE_ROWS - 2), "0")
        return [(span, (f" {label}", "dim")) for span, label in zip(spans, labels, strict=True)]

    def _process(self, cells: int) -> list[Line]:
        facts = self._facts
        if facts is None:
            lives = bool(self._rows) and self._rows[0].exists is True
            elsewhere = "not on this host: exited, or in another PID namespace"
            return field("state", "lives; nothing else has been read yet" if lives else elsewhere, cells)
        now = self._snapshot.taken_at if self._snapshot is not None else facts.read_at
        started = None
        if facts.start_time is not None:
            when = units.clock if now - facts.start_time < 20 * 3600 else units.timestamp
            age = units.duration((self._gone_at or now) - facts.start_time)
            started = f"{when(facts.start_time)}, {age} ago"
        state = "exited" if self._gone_at is not None else _STATES.get(facts.state or "", facts.state)
        cpu = None if facts.cpu_percent is None else f"{facts.cpu_percent:.0f} % of one core"
        if facts.cpu_seconds is not None:
            cpu = f"{cpu or units.UNKNOWN}, {units.duration(facts.cpu_seconds)} total"
        user = facts.user if facts.uid is None or facts.user == str(facts.uid) else f"{facts.user} ({facts.uid})"
        return [
            *field("state", state, cells, "warning" if facts.state in ("D", "T", "t", "Z") else "text"),
            *field("user", user, cells),
            *field("started", started, cells),
            *field("CPU", cpu, cells),
            *field("host memory", self.view.memory(facts.host_memory_bytes), cells),
            *field("threads", _number(facts.threads), cells),
            *field("group, session", f"{_number(facts.group_id) or units.UNKNOWN}, "
                   f"{_number(facts.session_id) or units.UNKNOWN}", cells),
        ]  # fmt: skip

    def _origin(self, details: ProcessDetails, cells: int) -> list[Line]:
        devices = details.nvidia_devices
        return [
            *field("executable", details.executable, cells),
            *field("directory", details.cwd, cells),
            *field("cgroup", details.cgroup, cells),
            *field("open devices", None if devices is None else " ".join(devices) or "no NVIDIA device", cells),
        ]

    def _family(self, relatives: Sequence[HostFacts], cells: int, deeper: bool) -> list[Line]:
        lines: list[Line] = []
        for n, facts in enumerate(relatives[:40]):
            command = facts.command or facts.name or units.UNKNOWN
            indent = "  " * min(n, 8) if deeper else ""
            spans = ((indent, "text"), (f"{facts.key.pid:>7} ", "text"), (fit(facts.user or units.UNKNOWN, 9), "dim"))
            room = max(0, cells - 17 - len(indent))
            lines.append((*spans, (fit(command[: 4 * room], room).rstrip(), "text")))  # measuring all of it takes long
        if len(relatives) > 40:
            lines.append(((f"… and {len(relatives) - 40} more", "dim"),))
        return lines or [(("none", "dim"),)]

    def _environment(self, details: ProcessDetails, cells: int) -> list[Line]:
        if details.environment is None:
            denied = any(problem.startswith("not permitted") for problem in details.problems)
            late = "environment" in details.late
            return [(("no answer yet" if late else "not permitted" if denied else "not read", "dim"),)]
        lines = [line for name, value in details.environment for line in field(name, value or '""', cells, "text", 28)]
        return lines or [(("none of these variables is set", "dim"),)]


def _warned(text: str, cells: int, sign: str, style: str) -> list[Line]:
    parts = wrap(text, cells - 2)
    return [((f"{sign} " if not n else "  ", f"{style}+b"), (part, style)) for n, part in enumerate(parts)]


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)
