"""What is done about an alarm: a line, a command, a webhook, a log file.

All of them are given the same facts (:func:`facts`). Text from outside (names, command lines) reaches a command through
its environment only, never through the shell that reads the command.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gputop import __version__, units
from gputop.alarms.engine import Event
from gputop.sampling.messages import AlarmCleared, AlarmRaised, AlarmUnclear
from gputop.text import shorten

COMMAND_SECONDS: Final = 60.0  # a command that takes longer is ended
WEBHOOK_SECONDS: Final = 10.0  # for each of the attempts
ATTEMPTS: Final = 3

#: Columns of the log, and names of what a webhook and (as GPUTOP_…) a command are given.
FACTS: Final = (
    "time",
    "at",
    "host",
    "event",
    "alarm",
    "text",
    "gpu_index",
    "gpu_uuid",
    "gpu_name",
    "pid",
    "user",
    "command",
    "value",
    "unit",
    "xid",
)


def facts(event: Event, host: str) -> dict[str, Any]:
    """*event* on the machine *host*, by :data:`FACTS`; None where something does not apply or is not known."""
    alarm = event.alarm
    gpu, process = alarm.gpu, alarm.process
    known: dict[str, Any] = dict.fromkeys(FACTS)
    known.update(time=_iso(event.at), at=event.at, host=host, event=_kind(event), alarm=alarm.rule, text=alarm.message)
    known.update(value=alarm.value, unit=alarm.unit, xid=alarm.xid)
    if gpu is not None:
        known.update(gpu_index=gpu.index, gpu_uuid=gpu.uuid, gpu_name=gpu.name)
    if process is not None:
        known["pid"] = process.pid
        if process.host is not None:
            known.update(user=process.host.user, command=process.host.command)
    return known


def line(event: Event) -> str:
    """*event* for people: ``2026-11-30 12:08:31 RAISED  GPU 0 (NVIDIA H200): memory 92%  [memory > 90%]``."""
    return f"{units.timestamp(event.at)} {_kind(event).upper():<7} {event.alarm.message}  [{event.alarm.rule}]"


def _kind(event: Event) -> str:
    if isinstance(event, AlarmUnclear):
        return "known" if event.over else "unclear"
    return {AlarmRaised: "raised", AlarmCleared: "cleared"}[type(event)]


def _iso(at: float) -> str:
    return datetime.datetime.fromtimestamp(at).astimezone().isoformat(timespec="milliseconds")


# ---------------------------------------------------------------------------- command


def run_command(command: str, known: dict[str, Any], seconds: float = COMMAND_SECONDS) -> str | None:
    """Have ``/bin/sh`` run *command* with *known* as GPUTOP_… in its environment. Its output goes to our stderr.

    Returns why it failed, in words. One that takes longer than *seconds* is killed with all it started.
    """
    told = {f"GPUTOP_{name.upper()}": str(value) for name, value in known.items() if value is not None}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUTOP_")} | told
    what = f"--run: {shorten(command, 60)}"
    try:
        child = subprocess.Popen(
            ["/bin/sh", "-c", command], env=environment, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True
        )
    except OSError as error:
        return f"{what}: cannot be started: {error.strerror or error}"
    try:
        status = child.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return f"{what}: killed, it took longer than {seconds:g} s"
    if status == 0:
        return None
    return f"{what}: exit status {status}" if status > 0 else f"{what}: ended by {signal.Signals(-status).name}"


# ---------------------------------------------------------------------------- webhook


def check_url(url: str) -> str:
    """*url*, if something can be posted there. Raises ValueError in words, without the URL: it may be a secret."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a webhook needs a URL such as https://example.org/hook")
    return url


def post(url: str, known: dict[str, Any]) -> str | None:
    """POST *known* as a JSON object, in up to three attempts. Returns why it failed, in words and without the path of
    *url*, which is a secret with many services. ``text`` is what chat services show."""
    import urllib3  # late: only those who have a webhook need it

    retries = urllib3.Retry(ATTEMPTS - 1, backoff_factor=1, status_forcelist=(429, 502, 503, 504), allowed_methods=None)
    where = f"webhook {urlsplit(url).hostname}"
    with urllib3.PoolManager(retries=retries, timeout=WEBHOOK_SECONDS) as pool:
        try:
            answer = pool.request(
                "POST", url, json=known, headers={"User-Agent": f"gputop/{__version__}"}, redirect=False
            )
        except urllib3.exceptions.MaxRetryError as error:
            return f"{where}: {_cause(error)}"
        except urllib3.exceptions.HTTPError as error:
            return f"{where}: {_reason(error)}"
    return None if answer.status < 300 else f"{where}: {answer.status} {answer.reason or ''}".rstrip()


def _cause(error: Any) -> str:
    return "no answer" if error.reason is None else _reason(error.reason)


def _reason(error: Exception) -> str:
    """The kind of failure; the exceptions' own texts hold the URL."""
    words = {
        "NewConnectionError": "cannot be reached",
        "NameResolutionError": "its name has no address",
        "ConnectTimeoutError": f"no connection within {WEBHOOK_SECONDS:g} s",
        "ReadTimeoutError": f"no answer within {WEBHOOK_SECONDS:g} s",
        "SSLError": "its certificate is not accepted, or it speaks no TLS",
        "ResponseError": "it answers with errors",
        "ProtocolError": "the connection broke",
    }
    return words.get(type(error).__name__, type(error).__name__)


# -------------------------------------------------------------------------------- log


class EventLog:
    """Appends events to a file: CSV, or JSON Lines where its name ends in .jsonl, .ndjson or .json.

    It is opened anew for each event, so that it may be rotated. Raises OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._json = path.suffix.lower() in (".jsonl", ".ndjson", ".json")
        self._append("")  # so that a wrong path is known at once

    def put(self, known: dict[str, Any]) -> None:
        self._append(json.dumps(known) + "\n" if self._json else _row([_cell(known[name]) for name in FACTS]))

    def _append(self, text: str) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not self._json and os.fstat(descriptor).st_size == 0:
                text = _row(FACTS) + text
            if text:
                os.write(descriptor, text.encode())  # one write: a line is whole or not there
        finally:
            os.close(descriptor)


def _row(cells: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A spreadsheet takes text that begins so for a formula, and command lines are anybody's."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
