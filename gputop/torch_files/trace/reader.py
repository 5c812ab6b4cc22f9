"""Reads PyTorch Profiler traces (chrome JSON, plain or gzip) as a stream: an event at a time, in bounded memory."""

from __future__ import annotations

import codecs
import gc
import json
import json.scanner
import re
from collections.abc import Callable
from json import JSONDecoder
from typing import Final

from gputop.torch_files.trace.event_parser import KINETO_EVENT, KINETO_FLOW, EventParser
from gputop.torch_files.trace.events import TraceEvents
from gputop.torch_files.trace.profiler_file import ProfilerFile, Progress, UnreadableTrace

MAX_EVENT_CHARACTERS: Final = (
    1 << 20
)  # characters after which what is wrong with an event is not that it is read in part
MAX_HEAD_CHARACTERS: Final = 1 << 26  # before the events: device properties, a distributed group's ranks
_EVENT: Final = re.compile(r'\{\s*"ph"\s*:')  # how an event begins
_BACKSLASH: Final = re.compile(r'\\(?!")')
_WINDOWS_PATH: Final = re.compile(r'"[^"\n]{0,500}\.py\(\d')  # the name of a Python frame
_BEGINS: Final = 64  # characters, at most
_GAP: Final = re.compile(r"[\s,]*")
_EVENTS: Final = re.compile(r'"traceEvents"\s*:\s*\[')


def read(file: ProfilerFile, progress: Progress | None = None) -> TraceEvents:
    """The trace in *file*. *progress* is called with the share of the file that was read.

    Raises UnreadableTrace. A damaged file, and one that ends early, gives what can be read of it, and a note.
    """
    was_on = gc.isenabled()
    gc.disable()  # dictionaries by the million, none of which is garbage that only the collector finds
    try:
        return _Reading(file, progress).events
    except OSError as error:
        raise UnreadableTrace(error.strerror or str(error)) from None
    finally:
        if was_on:
            gc.enable()


class _Reading:
    """Goes through a file once."""

    def __init__(self, file: ProfilerFile, progress: Progress | None) -> None:
        self.events = TraceEvents()
        self._file, self._progress = file, progress
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._lost = 0  # events that could not be read, and the number of the first
        self._first_lost = 0
        self._windows = False  # kineto wrote paths with backslashes as they are
        self._backslash = ""  # at the end of what was read last
        try:
            text, at = _head(self._more, self.events)
        except UnreadableTrace:
            if file.problem is not None:
                raise UnreadableTrace(file.problem) from None
            raise
        self._parser = EventParser(self.events)
        self._read(text, at)
        self._parser.finish()
        if self._lost:
            some = "an event" if self._lost == 1 else f"{self._lost:,} events"
            self.events.notes.append(f"{some} could not be read, the first is event {self._first_lost:,}: left out")
        if file.problem is not None:
            self.events.notes.append(f"{file.problem}: what is before is shown")
        if not self.events.seen and self.events.notes:
            raise UnreadableTrace(file.problem or "no event of a trace is in it")

    def _more(self) -> str | None:
        data = self._file.read()
        if self._progress is not None:
            self._progress(self._file.share)
        if not data:
            return None
        text = self._decode(data)
        if self._windows:
            text, self._backslash = self._backslash + text, ""
            if text.endswith("\\"):  # of what it is part is in the next bytes
                text, self._backslash = text[:-1], "\\"
            text = _BACKSLASH.sub(r"\\\\", text)
        return text

    def _read(self, text: str, at: int) -> None:
        events = self.events
        scan_once = json.scanner.make_scanner(JSONDecoder())  # type: ignore[arg-type]  # what raw_decode() calls, in C
        parser = self._parser
        put, put_kineto, put_flow = parser.put, parser.put_kineto, parser.put_flow
        gap, kineto, flow = _GAP.match, KINETO_EVENT.match, KINETO_FLOW.match
        while True:
            plain = kineto(text, at)
            if plain is not None and put_kineto(*plain.groups()):
                events.seen += 1
                at = plain.end()
                continue
            plain = flow(text, at)
            if plain is not None and put_flow(*plain.groups()):
                events.seen += 1
                at = plain.end()
                continue
            at = gap(text, at).end()  # type: ignore[union-attr]
            if at < len(text) and text[at] == "]":
                return
            try:
                event, end = scan_once(text, at)
            except (StopIteration, ValueError, RecursionError) as error:
                found = self._after(text, at, error)
                if found is None:
                    return
                text, at = found
                continue
            if isinstance(event, dict):
                events.seen += 1
                put(event)
            else:
                self._lose()
            at = end

    def _after(self, text: str, at: int, error: Exception) -> tuple[str, int] | None:
        """Where to go on after the event at *at*, which cannot be read, or not yet; None: it is the end."""
        if not self._windows and "escape" in str(error) and _WINDOWS_PATH.match(text, text.rfind('"', 0, error.pos)):  # type: ignore[attr-defined]
            self._windows = True
            return _BACKSLASH.sub(r"\\\\", text[at:]), 0
        wrong_at = error.pos if isinstance(error, json.JSONDecodeError) else at
        if isinstance(error, RecursionError) or len(text) - wrong_at > MAX_EVENT_CHARACTERS:
            return self._resumed(text, at)
        new = self._more()
        if new is not None:
            return text[at:] + new, 0
        if not text[at:].strip():
            if self._file.problem is None:
                self.events.notes.append("it ends without a closing bracket")
            return None
        return self._resumed(text, at)

    def _resumed(self, text: str, at: int) -> tuple[str, int] | None:
        """At the next event; kineto writes a quote in a name as it is."""
        while (begins := _EVENT.search(text, at + 1)) is None:
            new = self._more()
            if new is None:
                number = self.events.seen + self._lost + 1
                self.events.notes.append(f"it ends, or is damaged, in event {number:,}: what is before is shown")
                return None
            text, at = text[-_BEGINS:] + new, -1
        self._lose()
        return text, begins.start()

    def _lose(self) -> None:
        self._lost += 1
        if self._lost == 1:
            self._first_lost = self.events.seen + 1


def _head(more: Callable[[], str | None], events: TraceEvents) -> tuple[str, int]:
    """Read up to the first event; what is read and where that is."""
    text = ""
    while (new := more()) is not None:
        text += new
        if text.lstrip().startswith("["):  # the old autograd profiler's form
            events.notes.append("a list of events without a header: the old profiler's, which has no memory events")
            return text, text.index("[") + 1
        found = _EVENTS.search(text)
        if found is not None:
            head = text[: found.start()]
            base = re.search(r'"baseTimeNanoseconds"\s*:\s*(\d{1,19})', head)
            events.base_ns = int(base[1]) if base else 0
            events.profile_memory = re.search(r'"profile_memory"\s*:\s*1', head) is not None
            group = head[head.find('"distributedInfo"') :] if '"distributedInfo"' in head else ""
            rank, world = (re.search(rf'"{key}"\s*:\s*(\d{{1,9}})', group) for key in ("rank", "world_size"))
            events.rank, events.world_size = rank and int(rank[1]), world and int(world[1])
            return text, found.end()
        if len(text) > MAX_HEAD_CHARACTERS:
            break
    if not text.strip():
        raise UnreadableTrace("it is empty")
    if text.lstrip()[:5].lower() in ("<html", "<!doc"):
        raise UnreadableTrace(
            "a web page; a memory timeline that export_memory_timeline() wrote as .html is a picture: write it as "
            ".raw.json.gz"
        )
    if text.startswith("\ufffd"):  # no UTF-8
        raise UnreadableTrace("no PyTorch Profiler trace, but binary (memory snapshots: gputop torch-snapshot)")
    raise UnreadableTrace('no PyTorch Profiler trace: it has no "traceEvents"')
