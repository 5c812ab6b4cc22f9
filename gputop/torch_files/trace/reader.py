"""Reads PyTorch Profiler traces (chrome JSON, plain or gzip) as a stream: an event at a time, in bounded memory.

Kept of each event are a few numbers in arrays and the numbers of its name and shapes: some 40 bytes.
"""

from __future__ import annotations

import codecs
import gc
import json
import json.scanner
import re
from array import array
from collections.abc import Callable
from json import JSONDecoder
from typing import Any, Final

from gputop.torch_files.trace.file import ProfilerFile, Progress, UnreadableTrace

MAX_EVENT: Final = 1 << 20  # characters after which what is wrong with an event is not that it is read in part
MAX_HEAD: Final = 1 << 26  # before the events: device properties, a distributed group's ranks
MEMORY: Final = "[memory]"
OUT_OF_MEMORY: Final = "[OutOfMemory]"

#: The "thread" of what the driver did by the way: it loaded code, asked for a buffer.
OVERHEAD_THREAD: Final = "-1:0"

#: What a row of the table is of.
CPU, DEVICE, PYTHON, ANNOTATION, DEVICE_ANNOTATION = range(5)
_KINDS: Final = {
    "cpu_op": CPU, "cuda_runtime": CPU, "cuda_driver": CPU, "hip_runtime": CPU, "xpu_runtime": CPU, "runtime": CPU,
    "overhead": CPU, "python_function": PYTHON, "user_annotation": ANNOTATION, "kernel": DEVICE, "gpu_memcpy": DEVICE,
    "gpu_memset": DEVICE, "concurrent_kernel": DEVICE, "gpu_user_annotation": DEVICE_ANNOTATION,
}  # fmt: skip
_RUNTIME: Final = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "runtime", "overhead"})
_CPU_TYPES: Final = frozenset({0, 5, 8})  # CPU, MKLDNN, IDEEP: as torch sums them
#: Helpers of the profiler, which torch's own table leaves out.
_HIDDEN: Final = frozenset(
    {"profiler::_record_function_enter", "profiler::_record_function_enter_new", "profiler::_record_function_exit",
     "aten::is_leaf", "aten::output_nr", "aten::_version"}
)  # fmt: skip
_EVENT: Final = re.compile(r'\{\s*"ph"\s*:')  # how an event begins
_BEGINS: Final = 64  # characters, at most
_GAP: Final = re.compile(r"[\s,]*")
#: An event as kineto writes it, with no brace, quote or backslash in its strings: twice as fast as JSON.
_KINETO: Final = re.compile(
    r'\{\s*"ph": "([Xi])",\s*"cat": "([^"\\]*)",\s*(?:"s": "t",\s*)?"name": "([^"\\]*)",\s*"pid": ([^,{}]{1,40}),'
    r'\s*"tid": ([^,{}]{1,40}),\s*"ts": (\d{1,18}(?:\.\d{1,9})?)(?:,\s*"dur": (\d{1,18}(?:\.\d{1,9})?))?\s*,'
    r'\s*"args": \{([^{}]*)\}\s*\}[\s,]*'
)
#: An arrow between two events, as kineto writes it: from launches to kernels, from forward to backward ops.
_FLOW: Final = re.compile(
    r'\{\s*"ph": "([sf])", "id": (\d{1,18}), "pid": ([^,{}]{1,40}), "tid": ([^,{}]{1,40}), "ts": '
    r'(\d{1,18}(?:\.\d{1,9})?),\s*"cat": "([^"\\]*)", "name": "[^"\\]*"(?:, "bp": "e")?\s*\}[\s,]*'
)
_BACKWARD: Final = "fwdbwd"
_CORRELATION: Final = re.compile(r'"correlation": (\d{1,18})\b')
_EXTERNAL: Final = re.compile(r'"External id": (\d{1,18})[,\s]')
_DIMS_KEY: Final = '"Input Dims": '
_DIMS: Final = re.compile(r"\[[\[\]\d,\s-]*\]\s*")
_MEMORY_ARGS: Final = re.compile(
    r'\s*"Total Reserved": (-?\d{1,18}),\s*"Total Allocated": (-?\d{1,18}),\s*"Bytes": (-?\d{1,18}),\s*'
    r'"Device Id": (-?\d{1,18}),\s*"Device Type": (-?\d{1,18}),\s*"Addr": (\d{1,20})'
)
_EVENTS: Final = re.compile(r'"traceEvents"\s*:\s*\[')


class Numbers:
    """Texts by number, in order of appearance."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def of(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number


class TraceEvents:
    """The events of one file, as columns. Times in ns since the trace's base."""

    def __init__(self) -> None:
        self.start, self.end = array("q"), array("q")
        self.name, self.thread, self.shape = array("i"), array("i"), array("i")  # numbers; shape -1: none
        self.kind = array("b")
        self.external = array("q")  # torch's correlation of ops with kernels; -1: none, or of an op's runtime call
        self.forward: dict[int, tuple[int, int]] = {}  # (thread, start) of a forward op, by number of its arrow
        self.backward: dict[tuple[int, int], int] = {}  # and that number, by (thread, start) of its backward op
        self.names, self.shapes, self.threads = Numbers(), Numbers(), Numbers()
        self.memory_at, self.memory_bytes = array("q"), array("q")  # negative: freed
        self.memory_device = array("i")  # number of "TYPE:ID"
        self.memory_thread = array("i")
        self.memory_allocated, self.memory_reserved = array("q"), array("q")  # -1: not in the trace
        self.memory_address = array("Q")
        self.devices = Numbers()
        self.ooms = 0
        self.seen = 0  # events of any kind
        self.base_ns = 0
        self.profile_memory = False
        self.notes: list[str] = []

    def is_cpu(self, device: int) -> bool:
        """Whether the memory of the device with this number is the host's."""
        return int(self.devices.texts[device].partition(":")[0]) in _CPU_TYPES


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
        try:
            text, at = _head(self._more, self.events)
        except UnreadableTrace:
            if file.problem is not None:
                raise UnreadableTrace(file.problem) from None
            raise
        self._read(text, at)
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
        return self._decode(data) if data else None

    def _read(self, text: str, at: int) -> None:
        events = self.events
        scan_once = json.scanner.make_scanner(JSONDecoder())  # type: ignore[arg-type]  # what raw_decode() calls, in C
        putter = _Putter(events)
        put, put_kineto, put_flow = putter.put, putter.put_kineto, putter.put_flow
        gap, kineto, flow = _GAP.match, _KINETO.match, _FLOW.match
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
        wrong_at = error.pos if isinstance(error, json.JSONDecodeError) else at
        if isinstance(error, RecursionError) or len(text) - wrong_at > MAX_EVENT:
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
            return text, found.end()
        if len(text) > MAX_HEAD:
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


class _Putter:
    """Takes events apart."""

    def __init__(self, events: TraceEvents) -> None:
        self._events = events
        self._threads: dict[tuple[Any, Any], int] = {}
        self._raw_threads: dict[tuple[str, str], int] = {}
        self._shapes: dict[str, int] = {}
        self._start, self._end, self._name = events.start.append, events.end.append, events.name.append
        self._of_thread, self._kind = events.thread.append, events.kind.append
        self._external, self._shape = events.external.append, events.shape.append
        self._names: dict[str, int] = {}

    def put(self, event: dict[str, Any]) -> None:
        name = event.get("name")
        if name == MEMORY:  # by its name: its category and phase differ between versions
            self._memory(event)
            return
        category = event.get("cat")
        if event.get("ph") != "X":
            if name == OUT_OF_MEMORY:
                self._events.ooms += 1
            elif category == _BACKWARD and event.get("ph") in ("s", "f"):
                self._arrow(event)
            return
        if not isinstance(name, str) or not isinstance(category, str):
            return
        kind = _KINDS.get(category)
        if kind is None or name in _HIDDEN:
            return
        args = event.get("args")
        external, shape = -1, -1
        if isinstance(args, dict):
            external = _id(args.get("External id", args.get("external id")))
            if category in _RUNTIME:
                external = _id(args.get("correlation")) if external <= 0 else -1
            dims = args.get("Input Dims")
            if dims is not None:
                shape = self._events.shapes.of(_shapes(dims))
        try:
            start, lasted = round(float(event["ts"]) * 1000), round(float(event["dur"]) * 1000)
            self._op(kind, name, self._thread(event), start, lasted, external, shape)
        except (KeyError, TypeError, ValueError, OverflowError):
            return

    def _op(self, kind: int, name: str, thread: int, start: int, lasted: int, external: int, shape: int) -> None:
        """Times in ns."""
        end = start + lasted
        if not 0 <= start <= end < 1 << 62:
            return
        self._start(start)
        self._end(end)
        number = self._names.get(name)
        if number is None:
            number = self._names[name] = self._events.names.of(
                "ProfilerStep*" if name.startswith("ProfilerStep#") else name
            )
        self._name(number)
        self._of_thread(thread)
        self._kind(kind)
        self._external(external)
        self._shape(shape)

    def put_kineto(
        self, phase: str, category: str, name: str, pid: str, tid: str, ts: str, dur: str | None, args: str
    ) -> bool:
        """An event in kineto's own writing; False where it must be read as JSON after all."""
        if name == MEMORY:
            found = _MEMORY_ARGS.match(args)
            thread = self._raw_thread(pid, tid)
            if found is None or thread is None:
                return False
            reserved, allocated, bytes_, id_, type_, address = map(int, found.groups())
            self._record(_ns(ts), bytes_, f"{type_}:{id_}", thread, allocated, reserved, address)
            return True
        if phase != "X":
            return name != OUT_OF_MEMORY
        kind = _KINDS.get(category)
        if kind is None or name in _HIDDEN:
            return True
        thread = self._raw_threads.get((pid, tid))
        if thread is None:
            thread = self._raw_thread(pid, tid)
        if dur is None or thread is None:
            return False
        external, shape = -1, -1
        with_id = _EXTERNAL.search(args)
        if with_id is None and "xternal id" in args:
            return False
        if category not in _RUNTIME:
            if with_id is not None:
                external = int(with_id[1])
        elif with_id is None or int(with_id[1]) == 0:
            correlation = _CORRELATION.search(args)
            if correlation is not None:
                external = int(correlation[1])
        begins = args.find(_DIMS_KEY)
        if begins >= 0:
            begins += len(_DIMS_KEY)
            ends = args.find(', "', begins)
            known = self._shapes.get(args[begins : ends if ends >= 0 else None])
            if known is None:
                known = self._new_shape(args[begins : ends if ends >= 0 else None])
                if known is None:
                    return False
            shape = known
        self._op(kind, name, thread, _ns(ts), _ns(dur), external, shape)
        return True

    def put_flow(self, phase: str, id_: str, pid: str, tid: str, ts: str, category: str) -> bool:
        """An arrow in kineto's own writing; False where it must be read as JSON after all."""
        if category == _BACKWARD:
            thread = self._raw_thread(pid, tid)
            if thread is None:
                return False
            self._arrow_at(phase, int(id_), thread, _ns(ts))
        return True

    def _arrow(self, event: dict[str, Any]) -> None:
        try:
            self._arrow_at(event["ph"], int(event["id"]), self._thread(event), round(float(event["ts"]) * 1000))
        except (KeyError, TypeError, ValueError, OverflowError):
            return

    def _arrow_at(self, phase: str, id_: int, thread: int, at: int) -> None:
        if phase == "s":
            self._events.forward[id_] = thread, at
        else:
            self._events.backward[thread, at] = id_

    def _new_shape(self, text: str) -> int | None:
        """The number of the shapes in *text*; None where it is not just lists of numbers."""
        if not _DIMS.fullmatch(text):
            return None
        try:
            number = self._shapes[text] = self._events.shapes.of(_shapes(json.loads(text)))
        except (ValueError, RecursionError):
            return None
        return number

    def _raw_thread(self, pid: str, tid: str) -> int | None:
        number = self._raw_threads.get((pid, tid))
        if number is None:
            try:
                number = self._thread({"pid": json.loads(pid), "tid": json.loads(tid)})
            except (ValueError, RecursionError):
                return None
            self._raw_threads[pid, tid] = number
        return number

    def _thread(self, event: dict[str, Any]) -> int:
        key = (event.get("pid"), event.get("tid"))
        try:
            number = self._threads.get(key)
        except TypeError:  # a list for a number
            key = (str(key), None)
            number = self._threads.get(key)
        if number is None:
            number = self._threads[key] = self._events.threads.of(f"{key[0]}:{key[1]}")
        return number

    def _memory(self, event: dict[str, Any]) -> None:
        args = event.get("args")
        try:
            at, bytes_ = round(float(event["ts"]) * 1000), int(args["Bytes"])  # type: ignore[index]
            device = f"{int(args['Device Type'])}:{int(args['Device Id'])}"  # type: ignore[index]
            allocated = int(args.get("Total Allocated", -1))  # type: ignore[union-attr]
            reserved = int(args.get("Total Reserved", -1))  # type: ignore[union-attr]
            address = int(args.get("Addr", 0))  # type: ignore[union-attr]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return
        self._record(at, bytes_, device, self._thread(event), allocated, reserved, address)

    def _record(
        self, at: int, bytes_: int, device: str, thread: int, allocated: int, reserved: int, address: int
    ) -> None:
        most = 1 << 62
        if not (-most < at < most and -most < bytes_ < most and -1 <= allocated < most and -1 <= reserved < most):
            return
        events = self._events
        events.memory_at.append(at)
        events.memory_bytes.append(bytes_)
        events.memory_device.append(events.devices.of(device))
        events.memory_thread.append(thread)
        events.memory_allocated.append(allocated)
        events.memory_reserved.append(reserved)
        events.memory_address.append(address & (2**64 - 1))


def _shapes(dims: Any) -> str:
    """As torch groups by them: of a list of tensors only that it is one."""
    if not isinstance(dims, list):
        return str(dims)
    return str([[] if isinstance(one, list) and any(isinstance(n, list) for n in one) else one for one in dims])


def _ns(us: str) -> int:
    """Exactly: a float of 5e12 µs, which is what a clock says after two months, is half a ns off."""
    whole, _, part = us.partition(".")
    return int(whole) * 1000 + (int(f"{part}000"[:3]) if part else 0)


def _id(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if 0 <= number < 1 << 62 else -1
