"""F9: from what is at the cursor or tagged to the kill dialog, or to a sentence that says why there is none."""

from __future__ import annotations

from typing import Any, Final

from textual.screen import Screen

from gputop.leaks.report import DeadPid, UnattributedMemory
from gputop.model import LeakVerdict
from gputop.monitor import Monitor
from gputop.ui.kill.targets import ChosenTargets, KillRequest, unlisted_to_end, verdicts_to_end, with_holders

READ_ONLY: Final = "gputop runs with --read-only: it sends no signals."


def kill(screen: Screen[Any], monitor: Monitor, request: KillRequest) -> None:
    """Open the dialog over *screen*."""
    if monitor.signals is None:
        screen.notify(READ_ONLY, severity="warning", markup=False)
        return
    from gputop.ui.kill.screen import KillScreen

    screen.app.push_screen(KillScreen(monitor, request))


def kill_chosen(screen: Screen[Any], monitor: Monitor, found: ChosenTargets) -> None:
    """Ask about the rows chosen in the process table; of dead pids among them, about those who keep their memory."""
    if monitor.signals is None:
        screen.notify(READ_ONLY, severity="warning", markup=False)
        return
    if not found.chosen and not found.refused:
        message = "The tagged processes are hidden by the filter." if found.hidden else "No process is at the cursor."
        screen.notify(message, markup=False)
        return
    held: list[DeadPid] = []
    for target, reason in found.refused:
        dead_pid = monitor.report.dead_pid(target.key.pid)
        if dead_pid is not None and dead_pid.targets:
            held.append(dead_pid)
        elif dead_pid is not None:
            screen.notify(_no_holder(dead_pid, monitor), severity="warning", timeout=8, markup=False)
        else:
            screen.notify(f"{target.key.pid}: {reason}", severity="warning", markup=False)
    if found.chosen or held:
        kill(screen, monitor, with_holders(found.chosen, held, found.hidden))


def kill_verdicts(screen: Screen[Any], monitor: Monitor, verdicts: list[LeakVerdict]) -> None:
    """Ask about those whose end would free the memory of *verdicts*."""
    request = verdicts_to_end(verdicts, monitor.report)
    if verdicts and not request.targets and monitor.signals is not None:
        monitor.scan_now()
        message = "No process is known to hold this memory yet; looking again."
        screen.notify(message, severity="warning", markup=False)
    elif verdicts or monitor.signals is None:
        kill(screen, monitor, request)


def kill_unlisted(screen: Screen[Any], monitor: Monitor, found: UnattributedMemory) -> None:
    """Ask about the processes that hold a GPU open and are in no list of the driver's."""
    request = unlisted_to_end(found)
    if request.targets or monitor.signals is None:
        kill(screen, monitor, request)
        return
    monitor.scan_now()
    message = "No process is known to hold this GPU open beside those listed; looking again."
    screen.notify(message, severity="warning", markup=False)


def _no_holder(dead_pid: DeadPid, monitor: Monitor) -> str:
    """Why there is nobody to send a signal to; looks again."""
    monitor.scan_now()
    scan = monitor.report.scan
    if not dead_pid.scanned or scan is None:
        return f"{dead_pid.pid} has exited; looking for the processes that hold its memory: press F9 again"
    return f"{dead_pid.pid} has exited, and no process was found to hold its memory: {scan.summary()}"
