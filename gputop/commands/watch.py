"""Watch GPUs without a screen, and say, run, post or log when a condition holds."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gputop.commands.shared.machine import machine_of, only_asked
from gputop.commands.shared.options import add_source_options, as_setting
from gputop.commands.shared.output import is_terminal, print_out
from gputop.commands.shared.refusal import Refusal
from gputop.commands.shared.settings import settings_of

if TYPE_CHECKING:
    from gputop.alarms.condition import Condition
    from gputop.alarms.delivery import DeliveryQueue
    from gputop.alarms.engine import Event
    from gputop.model import Snapshot
    from gputop.settings import Settings

NOTHING: Final = 0  # exit statuses of --once
HOLDS: Final = 1
UNCLEAR: Final = 2
LAST_SECONDS: Final = 3.0  # how long the end waits for commands and webhooks
ONCE_SECONDS: Final = 60.0  # and --once, which is there for them

EPILOG: Final = """conditions:
  memory > 90%                       of any GPU; or in bytes: memory > 120GiB
  gpu:0 temperature > 85C for 30s    also utilization, sm active, power,
                                     free memory, unattributed memory,
                                     memory temperature; <, <=, >=
  memory > 90% clear 80%             it clears at 80% (else 3% of its level
                                     below it)
  memory grows > 1GiB/10min          its trend, not the start of a job
  process memory > 20GiB             of any process; also sm, cpu, host memory
  user:ml command:train memory > 40GiB
  mem>40G user:ml,cv !type:G         short, as at the dashboard's / prompt
  idle > 30min and memory > 1GiB     a process that holds memory, doing nothing
  pid 1234 gone                      it has ended
  process vllm gone                  no such name or command is on the GPUs
  gpu lost, xid, xid 48,79

Each alarm is raised once and cleared once. What the driver does not
report for a while changes nothing; after 30 s a line says so.

--run and webhooks get the facts: GPUTOP_TEXT, GPUTOP_ALARM, GPUTOP_EVENT,
GPUTOP_GPU_UUID, GPUTOP_PID, GPUTOP_VALUE… in the environment, the same as
JSON. Four commands run at once, for 60 s at most.

exit status with --once: 0 nothing holds, 1 a condition holds, 2 it is not
known (or wrong usage), 3 to 8 as for gputop.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add_source_options(parser)
    parser.add_argument(
        "-d", "--refresh", metavar="TIME", type=as_setting("refresh"), help="time between readings: 500ms, 2s"
    )
    parser.add_argument("--config", metavar="PATH", type=Path, help="settings file instead of the usual one")
    rules = parser.add_argument_group("alarms")
    rules.add_argument(
        "--when",
        metavar="CONDITION",
        action="append",
        help="what to wait for (repeatable); without it, the [[alarms]] of the settings file",
    )
    rules.add_argument("--for", metavar="TIME", dest="hold", help="how long it must hold: 10s, 5min")
    rules.add_argument("--clear", metavar="LEVEL", help="where it clears again: 85%%")
    rules.add_argument("--once", action="store_true", help="look once, and tell by the exit status")
    actions = parser.add_argument_group("what to do")
    actions.add_argument("--run", metavar="CMD", help="run CMD by /bin/sh when an alarm is raised")
    actions.add_argument("--run-cleared", metavar="CMD", help="run CMD when an alarm is cleared")
    actions.add_argument("--webhook", metavar="URL", help="POST a JSON object when an alarm is raised or cleared")
    actions.add_argument("--log", metavar="FILE", help="append events to FILE: CSV, or JSON Lines if it ends in .jsonl")
    actions.add_argument("--bell", action="store_true", help="ring the terminal's bell when an alarm is raised")
    actions.add_argument("-q", "--quiet", action="store_true", help="no lines on stdout")


def run(options: argparse.Namespace) -> int:
    settings, path, problems = settings_of(options)
    rules = _rules(options, settings)
    if not rules:
        from gputop import locations
        from gputop.alarms.conditions import EXAMPLES

        raise Refusal(f"nothing to watch for: --when CONDITION, or [[alarms]] in {locations.short(path)}. {EXAMPLES}")
    from gputop.commands.shared.headless import say

    for problem in problems:
        say(problem)
    if options.once:
        return _once(rules, options, settings)
    return _watch(rules, options, settings)


# ---------------------------------------------------------------------------- rules


class Actions:
    """What is done when an alarm of one rule is raised or cleared."""

    def __init__(self, run: str = "", run_cleared: str = "", webhook: str = "", log: str = "") -> None:
        from gputop.alarms.event_log import EventLog
        from gputop.alarms.webhook import check_url

        self.run, self.run_cleared = run, run_cleared
        try:
            if log:
                from gputop.commands.shared.output_file import is_text, must_not_replace_others

                must_not_replace_others(Path(log).expanduser(), is_text, "text")
            self.webhook = check_url(webhook) if webhook else ""
            self.log = EventLog(Path(log).expanduser()) if log else None
        except OSError as error:
            raise Refusal(f"{log}: cannot be written: {error.strerror or error}") from None
        except RuntimeError:  # a home directory that nobody knows
            raise Refusal(f"{log}: ~ stands for no directory here") from None
        except ValueError as error:
            raise Refusal(str(error)) from None


def _rules(options: argparse.Namespace, settings: Settings) -> list[tuple[Condition, Actions]]:
    """Conditions and what each does of its own."""
    from gputop.alarms.conditions import ConditionError, parse, parse_rule
    from gputop.units import parse_interval

    try:
        if not options.when:
            return [
                (parse_rule(rule), Actions(rule.run, rule.run_cleared, rule.webhook, rule.log))
                for rule in settings.alarms
            ]
        hold = None if options.hold is None else parse_interval(options.hold)
        return [(parse(text, hold, options.clear), Actions()) for text in options.when]
    except ConditionError as error:
        raise Refusal(str(error)) from None
    except ValueError as error:
        raise Refusal(f"--for: {error}") from None


# ----------------------------------------------------------------------------- once


def _once(rules: list[tuple[Condition, Actions]], options: argparse.Namespace, settings: Settings) -> int:
    from gputop.alarms.delivery import DeliveryQueue
    from gputop.alarms.engine import once
    from gputop.commands.shared.headless import say
    from gputop.sampling.messages import AlarmRaised
    from gputop.sampling.one_shot import sample

    conditions, own = _by_rule(rules)
    timed = [condition.text for condition in conditions if condition.needs_time]
    if timed:
        raise Refusal(f"--once: {timed[0]!r} needs to be watched for a while")
    everywhere = _everywhere(options)
    machine = machine_of(options)
    everything, _ = sample(machine.source, machine.host, lambda: None)
    snapshot = only_asked(everything, options, settings)
    _refuse_unknown(conditions, snapshot)
    holding, unclear = once(conditions, snapshot, machine.host.exists)
    queue = DeliveryQueue(say)
    for alarm in holding:
        _act(AlarmRaised(snapshot.taken_at, alarm), [everywhere, *own[alarm.rule]], queue, say)
    if not options.quiet:
        bell = "\a" if options.bell and holding and is_terminal(sys.stdout) else ""
        print_out("".join(f"{alarm.message}  [{alarm.rule}]\n" for alarm in holding) + bell)
    for alarm in unclear:
        say(alarm.message)
    _finish(queue, say, ONCE_SECONDS)
    return HOLDS if holding else UNCLEAR if unclear else NOTHING


def _everywhere(options: argparse.Namespace) -> Actions:
    """What the command line wants done for every rule."""
    return Actions(options.run or "", options.run_cleared or "", options.webhook or "", options.log or "")


def _by_rule(rules: Iterable[tuple[Condition, Actions]]) -> tuple[list[Condition], dict[str, list[Actions]]]:
    """The conditions, each once, and what each rule wants done."""
    conditions: dict[str, Condition] = {}
    own: dict[str, list[Actions]] = {}
    for condition, actions in rules:
        conditions[condition.text] = condition
        own.setdefault(condition.text, []).append(actions)
    return list(conditions.values()), own


def _finish(queue: DeliveryQueue, say: Callable[[str], None], seconds: float = LAST_SECONDS) -> None:
    if left := queue.finish(seconds):
        say(f"stopped with {left} commands or webhooks not started")


def _refuse_unknown(conditions: Iterable[Condition], snapshot: Snapshot) -> None:
    from gputop.alarms.engine import Alarms

    if unknown := Alarms(conditions).unknown_gpus(snapshot):
        there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in snapshot.gpus)
        raise Refusal(f"gpu:{unknown[0]}: no such GPU, or more than one matches. Available: {there}")


# ------------------------------------------------------------------------- for long


def _watch(rules: list[tuple[Condition, Actions]], options: argparse.Namespace, settings: Settings) -> int:
    from gputop.alarms.condition import host_pids
    from gputop.alarms.delivery import DeliveryQueue
    from gputop.alarms.engine import Alarms
    from gputop.commands.shared.headless import Headless, say
    from gputop.model.selection import only

    everywhere = _everywhere(options)
    machine = machine_of(options)
    conditions, own = _by_rule(rules)
    headless = Headless(machine, settings.refresh, host_pids(conditions))
    first = headless.start()
    if first is not None:
        _refuse_unknown(conditions, only_asked(first, options, settings))
    alarms = Alarms(conditions, machine.host.exists)
    queue = DeliveryQueue(say)
    problems: tuple[str, ...] = ()

    def look(snapshot: Snapshot) -> None:
        nonlocal problems
        if not options.quiet and _nobody_reads():
            raise BrokenPipeError  # `| head`: the next line may be hours away
        for problem in snapshot.problems:
            if problem not in problems:
                say(problem)
        problems = snapshot.problems
        for event in alarms.look(only(snapshot, settings.gpus)[0]):
            _act(event, [everywhere, *own[event.alarm.rule]], queue, say)
            if not options.quiet:
                _print(event, options.bell)

    status = headless.run(look)
    _finish(queue, say)
    return status


def _nobody_reads() -> bool:
    """Whether stdout is a pipe whose other end is closed."""
    if sys.stdout is None:
        return False
    import select

    try:
        poll = select.poll()
        poll.register(sys.stdout, 0)  # errors only
        return bool(poll.poll(0))
    except (OSError, ValueError):  # closed by us
        return False


def _act(event: Event, everything: Iterable[Actions], queue: object, say: Callable[[str], None]) -> None:
    """Log it, and have commands and webhooks done."""
    from gputop.alarms.command import run_command
    from gputop.alarms.delivery import DeliveryQueue
    from gputop.alarms.facts import facts
    from gputop.alarms.webhook import post
    from gputop.sampling.messages import AlarmCleared, AlarmRaised

    assert isinstance(queue, DeliveryQueue)
    known = facts(event, socket.gethostname())
    for actions in everything:
        if actions.log is not None:
            try:
                actions.log.put(known)
            except OSError as error:
                say(f"the log cannot be written: {error.strerror or error}")
        command = {AlarmRaised: actions.run, AlarmCleared: actions.run_cleared}.get(type(event))
        if command:
            queue.put(lambda command=command: run_command(command, known), "--run")  # type: ignore[misc]
        if actions.webhook and isinstance(event, AlarmRaised | AlarmCleared):
            queue.put(lambda url=actions.webhook: post(url, known), "webhook")  # type: ignore[misc]


def _print(event: Event, bell: bool) -> None:
    from gputop.alarms.facts import line
    from gputop.sampling.messages import AlarmRaised

    print_out(line(event) + "\n")
    if bell and isinstance(event, AlarmRaised) and sys.stdout is not None and sys.stdout.isatty():
        print_out("\a")
