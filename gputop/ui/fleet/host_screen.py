"""Enter: all that is known of a host, as a page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from textual.timer import Timer

from gputop import units
from gputop.fleet.model import FleetGpu, FleetHost, GpuState
from gputop.fleet.source import FleetSource
from gputop.model import GpuProcess
from gputop.text import fit, width
from gputop.ui.fleet.head import kilowatts
from gputop.ui.fleet.past import Past, ask_past, past_lines
from gputop.ui.fleet.worker import NewestOnly
from gputop.ui.gpus.lines import Shape, single
from gputop.ui.gpus.parts import GpuDrawing
from gputop.ui.gpus.remarks import memory_parts
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.frame import Hint, clip
from gputop.ui.toolkit.scrolling_page import Part, ScrollingPage
from gputop.ui.toolkit.view import View

_PAST_ROWS: Final = 6
_PAST_SECONDS: Final = 30.0

_STYLES: Final = {
    GpuState.FREE: "good+b", GpuState.BUSY: "l2", GpuState.IDLE_HELD: "warning", GpuState.BROKEN: "critical+b",
    GpuState.UNREACHABLE: "dim", GpuState.UNKNOWN: "dim",
}  # fmt: skip


class HostScreen(ScrollingPage[None]):
    """*host* as the list had it, until the source tells more."""

    def __init__(self, source: FleetSource, host: FleetHost, view: View, open_there: Callable[[str], None]) -> None:
        super().__init__()
        self._source, self._host, self._view, self._open_there = source, host, view, open_there
        self._past: Past = {}
        self._past_at = 0.0
        self._asked_at = time.time()
        self._gone = False
        self._worker: NewestOnly | None = None
        self._next: Timer | None = None

    @property
    def view(self) -> View:
        return self._view

    def on_mount(self) -> None:
        super().on_mount()
        self._worker = NewestOnly(self, "gputop-fleet-host")
        self._ask()

    def on_unmount(self) -> None:
        if self._worker is not None:
            self._worker.end()

    def _ask(self) -> None:
        name, source, past_at = self._host.name, self._source, self._past_at

        def work() -> tuple[FleetHost | None, Past | None]:
            now = time.time()
            return source.host(name), ask_past(source, name, now) if now - past_at >= _PAST_SECONDS else None

        if self._worker is not None:
            self._worker.submit(work, self._answered)

    def _answered(self, answer: tuple[FleetHost | None, Past | None]) -> None:
        host, past = answer
        self._gone = host is None
        self._host = host or self._host
        if past is not None:
            self._past, self._past_at = past, time.time()
        self.draw()
        self._next = self.set_timer(self._source.refresh_seconds, self._ask)

    # the page

    def heading(self) -> tuple[str, str]:
        host = self._host
        age = f"read {units.rough_duration(host.age_seconds)} ago" if host.age_seconds is not None else ""
        driver = f"driver {host.driver_version}" if host.driver_version else ""
        return f"{host.name}: {host.state.value}", "  ".join(part for part in (driver, age) if part)

    def before(self, cells: int) -> Sequence[Line]:
        host = self._host
        lines: list[Line] = []
        if self._gone:
            lines.append((("the source does not know this host any more", "warning+b"),))
        if host.problem:
            lines.append(clip(((f"{self.view.glyphs.warning} {host.problem}", "critical+b"),), cells))
        labels = "  ".join(f"{name}: {value}" for name, value in sorted(host.labels.items()))
        sums = (
            f"{units.plural(len(host.gpus), 'GPU')}, {host.gpus_free} free, "
            f"{host.count(GpuState.IDLE_HELD)} held but idle   "
            f"memory {units.used_of_total(host.memory_used_bytes, host.memory_total_bytes)}   "
            f"power {kilowatts(host.power_watts)}   hottest {self.view.temperature(host.temperature_celsius)}"
        )
        lines += [((fit(sums, cells), "text"),)]
        lines += [((fit(labels, cells), "dim"),)] if labels else []
        lines += [(), *self._gpu_lines(cells), ()]
        total = host.memory_total_bytes
        lines += [line[1:] for line in past_lines(self._past, "", total, cells, _PAST_ROWS, self.view)]
        lines += [((fit("the last hour", cells, right=True), "dim"),)]
        return lines

    def _gpu_lines(self, cells: int) -> list[Line]:
        now = time.time()
        drawings = [GpuDrawing(gpu.gpu, memory_parts(gpu.gpu, ()), None, now) for gpu in self._host.gpus]
        shape = Shape.of(drawings, cells, self.view)
        return [line for drawing in drawings for line in single(drawing, shape, self.view)]

    def parts(self, cells: int) -> Sequence[Part]:
        gpus = self._host.gpus
        state = max([4, *(width(gpu.state.value) for gpu in gpus)])
        lines = [line for gpu in gpus for line in _who(gpu, state, cells)]
        processes: list[Line] = [
            clip(((f"{process.pid:>8} {process.gpu_index:>2} ", "dim"), (_process(process, self.view), "text")), cells)
            for process in self._host.processes
        ]
        return (Part("Who has which GPU", lines), Part("Processes", processes))

    def hints(self) -> Sequence[Hint]:
        return (("Esc", "back"), ("o", "open gputop there"))

    def pressed(self, key: str) -> bool:
        if key != "o":
            return False
        self._open_there(self._host.name)
        return True


def _process(process: GpuProcess, view: View) -> str:
    facts = process.host
    who = (facts.user, facts.command) if facts is not None else ()
    return "  ".join([view.memory(process.memory_bytes), *(text for text in who if text)])


def _who(gpu: FleetGpu, state: int, cells: int) -> list[Line]:
    start: Line = (
        (f"{gpu.gpu.index:>3} ", "title+b"),
        (fit(gpu.state.value, state), _STYLES[gpu.state]),
        ("  ", "text"),
    )
    blank: Line = ((" " * (state + 6), "text"),)
    texts: list[tuple[str, str]] = [(gpu.problem, "critical")] if gpu.problem else []
    for usage in gpu.usages:
        more = [f"rank {usage.rank}"] if usage.rank is not None else []
        more += [usage.process] if usage.process and usage.process not in usage.label else []
        more += [f"PID {usage.pid}"] if usage.pid is not None else []
        texts.append(("  ".join([usage.label, *more]), "text"))
    lines = [clip((*(blank if n else start), (text, style)), cells) for n, (text, style) in enumerate(texts)]
    return lines or [clip(start, cells)]
