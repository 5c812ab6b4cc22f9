"""``gputop``: the dashboard."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

from gputop.commands.shared.machine import Machine, machine_of, only_asked
from gputop.commands.shared.output import is_terminal, print_out
from gputop.commands.shared.refusal import TRY_ONCE, Refusal
from gputop.commands.shared.settings import settings_of

if TYPE_CHECKING:
    from gputop.history.gpu_history import History

FIRST_READING: Final = 3.0  # seconds the dashboard waits for one before it opens without


def run(options: argparse.Namespace) -> int:
    _require_terminal()
    import gc

    gc.disable()  # nothing that start-up makes is garbage; the app enables it
    from gputop.history.gpu_history import History
    from gputop.sampling.bus import Bus
    from gputop.sampling.poller import Poller

    settings, path, problems = settings_of(options)
    bus, history = Bus(), History()
    if options.demo is None:
        machine = machine_of(options, to_act=not options.read_only)
    else:
        machine = _demo(options, history)
    poller = Poller(machine.source, machine.host, bus, settings.refresh, history)
    poller.start()
    from gputop.monitor import Monitor
    from gputop.ui import app  # takes a while: meanwhile the poller reads

    first = poller.wait_for_first(FIRST_READING)
    if poller.error is not None:
        raise poller.error
    if first is not None:
        only_asked(first, options, settings)
    if settings.alarms:
        from gputop.alarms.dashboard import watch

        problems = (*problems, *watch(settings, poller, bus, machine.host.exists))
    status = app.run(
        Monitor(
            poller,
            bus,
            settings,
            path,
            problems,
            signals=machine.signals,
            investigator=machine.investigator,
            keeps_log=not machine.simulated,
        )
    )
    poller.stop()
    if options.print_on_exit and poller.latest is not None:
        from gputop.commands.once import as_table
        from gputop.model.selection import only

        settings, _, _ = settings_of(options)  # as F2 left them
        print_out(as_table(only(poller.latest, settings.gpus)[0], settings))
    return status


def _demo(options: argparse.Namespace, history: History) -> Machine:
    from gputop.commands.shared.demo_past import BEGINS_NOW, PAST_SECONDS, RewindableClock, remember

    clock = RewindableClock()
    clock.rewind(PAST_SECONDS)
    before = -PAST_SECONDS if options.demo in BEGINS_NOW else 0.0
    machine = machine_of(options, to_act=not options.read_only, clock=clock, started_before=before)
    remember(machine.source, history, clock)
    return machine


def _require_terminal() -> None:
    """The dashboard reads keys from stdin and draws on stderr (Textual does, so that stdout can be piped)."""
    for stream, words in ((sys.stdin, "The keyboard (stdin)"), (sys.stderr, "The screen (stderr)")):
        if not is_terminal(stream):
            raise Refusal(f"{words} is not a terminal, so there can be no dashboard. {TRY_ONCE}")
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        raise Refusal(
            f"TERM is {os.environ.get('TERM') or 'not set'}: this terminal cannot show a dashboard "
            f"(if it can, set TERM=xterm-256color). {TRY_ONCE}"
        )
