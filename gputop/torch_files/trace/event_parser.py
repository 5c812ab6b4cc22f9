"""Takes the events of a trace apart: as kineto writes them by regular expressions, all others as JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Final

from gputop.model import clean_text
from gputop.torch_files.trace.events import (
    ANNOTATION,
    CPU,
    DEVICE,
    DEVICE_ANNOTATION,
    MEMORY,
    OUT_OF_MEMORY,
    PYTHON,
    TraceEvents,
)

#: What drivers' runtimes are called by (kineto's names; Runtime is what torch up to 1.11 wrote).
_RUNTIME: Final = frozenset(
    {f"{maker}_{layer}" for maker in ("cuda", "hip", "xpu", "mtia", "privateuse1", "glow") for layer in
     ("runtime", "driver")} | {"runtime", "Runtime", "overhead"}
)  # fmt: skip
_KINDS: Final = dict.fromkeys(_RUNTIME, CPU) | {
    "cpu_op": CPU, "python_function": PYTHON, "user_annotation": ANNOTATION, "kernel": DEVICE, "gpu_memcpy": DEVICE,
    "gpu_memset": DEVICE, "concurrent_kernel": DEVICE, "gpu_user_annotation": DEVICE_ANNOTATION,
    "mtia_ccp_events": DEVICE, "mtia_insight": DEVICE, "hpu_op": DEVICE, "xpu_sync": DEVICE,
    "Operator": CPU, "Kernel": DEVICE, "Memcpy": DEVICE, "Memset": DEVICE,  # torch up to 1.11
}  # fmt: skip
#: Of the trace itself, and of what is no row of torch's table either.
_NO_ROWS: Final = frozenset({"Trace", "cuda_sync", "cuda_profiler_range", "external_correlation", "collective_comm"})
_SILENT_PHASES: Final = frozenset("MstfiIRCnNOD")  # names of threads, arrows, marks, counters…
_BAD_TIME: Final = "whose times are negative, missing or no numbers"
_BAD_MEMORY: Final = "of memory whose figures are missing or impossible"
_CONTROL: Final = str.maketrans({"\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"})
_MOST_NOTES: Final = 8
#: Ranges that torch up to 1.11 wrote as ops: of the profiler's steps, and of record_function in torch's own Python.
_ANNOTATED: Final = re.compile(
    r"ProfilerStep#|Optimizer\.(?:step|zero_grad)#|enumerate\(DataLoader\)|DistributedDataParallel\."
)
#: Helpers of the profiler, which torch's own table leaves out.
_HIDDEN: Final = frozenset(
    {"profiler::_record_function_enter", "profiler::_record_function_enter_new", "profiler::_record_function_exit",
     "aten::is_leaf", "aten::output_nr", "aten::_version"}
)  # fmt: skip
#: An event as kineto writes it, with no brace, quote or backslash in its strings: twice as fast as JSON.
KINETO_EVENT: Final = re.compile(
    r'\{\s*"ph": "([Xi])",\s*"cat": "([^"\\]*)",\s*(?:"s": "t",\s*)?"name": "([^"\\]*)",\s*"pid": ([^,{}]{1,40}),'
    r'\s*"tid": ([^,{}]{1,40}),\s*"ts": (\d{1,18}(?:\.\d{1,9})?)(?:,\s*"dur": (\d{1,18}(?:\.\d{1,9})?))?\s*,'
    r'\s*"args": \{([^{}]*)\}\s*\}[\s,]*'
)
#: An arrow between two events, as kineto writes it: from launches to kernels, from forward to backward ops.
KINETO_FLOW: Final = re.compile(
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


class EventParser:
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
        self._begun: dict[int, list[dict[str, Any]]] = {}  # "B" events by thread, that an "E" ends
        self._left_out: Counter[str] = Counter()  # events that are not understood, by what is wrong with them

    def finish(self) -> None:
        """Say what was not understood."""
        unended = sum(map(len, self._begun.values()))
        if unended:
            self._left_out["that begin and never end, or end and never began"] += unended
        for what, count in self._left_out.most_common(_MOST_NOTES):
            self._events.notes.append(f"{count:,} event{'s' if count > 1 else ''} {what}: left out")
        rest = sum(count for _, count in self._left_out.most_common()[_MOST_NOTES:])
        if rest:
            self._events.notes.append(f"{rest:,} events that are not understood for other reasons: left out")

    def put(self, event: dict[str, Any]) -> None:
        name = event.get("name")
        if name == MEMORY:  # by its name: its category and phase differ between versions
            self._memory(event)
            return
        category, phase = event.get("cat"), event.get("ph")
        if phase in ("B", "E"):
            whole = self._whole(event)
            if whole is None:
                return
            event, name, category, phase = whole, whole.get("name"), whole.get("cat"), "X"
        if phase != "X":
            if name == OUT_OF_MEMORY:
                self._events.ooms += 1
            elif category == _BACKWARD and phase in ("s", "f"):
                self._arrow(event)
            elif not (isinstance(phase, str) and phase in _SILENT_PHASES):
                self._left_out[f"of a phase that is no op's ({clean_text(str(phase), 10)})"] += 1
            return
        if not isinstance(name, str) or not isinstance(category, str):
            self._left_out["without a name or a category"] += 1
            return
        kind = _KINDS.get(category)
        if kind is None or name in _HIDDEN:
            self._no_row(category, name)
            return
        if category == "Operator" and _ANNOTATED.match(name):
            kind = ANNOTATION
        if kind == PYTHON and not name.isprintable():  # C:\train.py: a backslash taken for an escape
            name = name.translate(_CONTROL)
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
            self._left_out[_BAD_TIME] += 1

    def _no_row(self, category: str, name: str) -> None:
        if category not in _NO_ROWS and name not in _HIDDEN:
            self._left_out[f"of a category that is not known ({clean_text(category, 40)})"] += 1

    def _whole(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """Of an event's beginning and its end one with a duration; None: not ended yet, or never begun."""
        begun = self._begun.setdefault(self._thread(event), [])
        if event["ph"] == "B":
            begun.append(event)
            return None
        if not begun:
            self._left_out["that begin and never end, or end and never began"] += 1
            return None
        first = begun.pop()
        try:
            return first | {"dur": float(event["ts"]) - float(first["ts"])}
        except (KeyError, TypeError, ValueError, OverflowError):
            self._left_out[_BAD_TIME] += 1
            return None

    def _op(self, kind: int, name: str, thread: int, start: int, lasted: int, external: int, shape: int) -> None:
        """Times in ns."""
        end = start + lasted
        if not 0 <= start <= end < 1 << 62:
            self._left_out[_BAD_TIME] += 1
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
            self._no_row(category, name)
            return True
        if category == "Operator" and _ANNOTATED.match(name):
            kind = ANNOTATION
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
            self._left_out[_BAD_MEMORY] += 1
            return
        self._record(at, bytes_, device, self._thread(event), allocated, reserved, address)

    def _record(
        self, at: int, bytes_: int, device: str, thread: int, allocated: int, reserved: int, address: int
    ) -> None:
        most = 1 << 62
        if not (-most < at < most and -most < bytes_ < most and -1 <= allocated < most and -1 <= reserved < most):
            self._left_out[_BAD_MEMORY] += 1
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
