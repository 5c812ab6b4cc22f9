"""What is looked at: this machine or a simulated one, and which of its GPUs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputop.commands.shared.refusal import Refusal

if TYPE_CHECKING:
    from gputop.leaks.process_context import Investigator
    from gputop.model import Snapshot
    from gputop.procfs.host_reader import HostReader
    from gputop.settings import Settings
    from gputop.signals.protocol import Signals
    from gputop.sources.source import Source


@dataclass(frozen=True, slots=True)
class Machine:
    """What is looked at and, unless it is only looked at, acted on."""

    source: Source
    host: HostReader
    signals: Signals | None
    simulated: bool
    investigator: Callable[[], Investigator]  # made when leaks are looked for


def machine_of(
    options: argparse.Namespace,
    to_act: bool = False,
    clock: Callable[[], float] = time.time,
    started_before: float = 0.0,
) -> Machine:
    """What *options* say to look at. *clock* is a simulated machine's, which began *started_before* seconds ago."""
    if options.demo is not None:
        from gputop.sources.simulated import UnknownScenario, simulated_machine

        try:
            demo = simulated_machine(options.demo, options.seed, clock, started_before)
        except UnknownScenario as error:
            raise Refusal(f"--demo: {error}") from None
        return Machine(demo.source, demo.host, demo.signals if to_act else None, True, lambda: demo.investigator)
    from gputop.procfs.proc_host_reader import ProcHostReader
    from gputop.sources.nvml import NvmlSource

    signals: Signals | None = None
    if to_act:
        from gputop.signals.sender import ProcSignals

        signals = ProcSignals()
    reader = ProcHostReader()

    def investigator() -> Investigator:
        from gputop.leaks.proc_investigator import ProcInvestigator

        return ProcInvestigator(reader.facts_of, lookups=reader.lookups)

    return Machine(NvmlSource(), reader, signals, False, investigator)


def scenarios() -> str:
    """What ``--demo=help`` prints."""
    from gputop.sources.simulated import SCENARIOS

    lines = [(f"--demo={name}" if name else "--demo", summary) for name, summary in SCENARIOS.items()]
    lines.append(("--demo=NxMODEL", "that many of that GPU: 4xh200, 16xb200, 2xl40s"))
    width = max(len(option) for option, _ in lines)
    return "".join(f"  {option:<{width}}  {summary}\n" for option, summary in lines)


def only_asked(snapshot: Snapshot, options: argparse.Namespace, settings: Settings) -> Snapshot:
    """*snapshot* with the GPUs asked for. One named on the command line must be there; of those named in the settings
    file some may be away, and if all are, all GPUs are shown: a problem says so."""
    from gputop.model import replace
    from gputop.model.selection import only

    if not snapshot.gpus:
        from gputop.sources.nvml import no_gpus

        raise no_gpus()
    selected, unknown = only(snapshot, settings.gpus)
    if not unknown:
        return selected
    reason = f"{', '.join(unknown)}: no such GPU, or more than one matches"
    if options.gpus is not None:
        there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in snapshot.gpus)
        option = "--gpu" if getattr(options, "gpu", None) is not None else "--gpus"
        raise Refusal(f"{option}: {reason}. Available: {there}")
    selected = selected if selected.gpus else snapshot
    return replace(selected, problems=(*selected.problems, f"settings: gpus: {reason}"))
