"""From which Python frames the ops of a trace were called."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import Final

from gputop.torch_files.trace.events import (
    ANNOTATION,
    CPU,
    DEVICE,
    DEVICE_ANNOTATION,
    OVERHEAD_THREAD,
    PYTHON,
    TraceEvents,
)

#: Frames that torch leaves out of its stacks: (part of the file, of the function).
_NO_FRAME: Final = (
    ("autograd/__init__", "_make_grads"), ("autograd/__init__", "backward"), ("torch/tensor", "backward"),
    ("_internal/common_utils", "prof_callable"), ("_internal/common_utils", "prof_func_call"),
    ("_internal/common_utils", "prof_meth_call"),
)  # fmt: skip


#: What runs a node of the backward graph, and the node: torch's scope of it is not in the trace.
_LEAF: Final = "AccumulateGrad"
ENGINE: Final = "autograd::engine::evaluate_function"
_NODE: Final = re.compile(r"(?!autograd::engine).*(?:Backward\d*|AccumulateGrad|CopySlices)\Z", re.DOTALL)


#: How Python frames begin that are not the user's.
_TORCHS: Final = (
    "torch/", "<built-in ", "nn.Module: ", "<frozen ", "contextlib.py", "threading.py", "functools.py", "<string>",
    "torchgen/", "triton/", "functorch/", "torch\\",
)  # fmt: skip
FUNCTION: Final = -1  # for a depth: the innermost frame of the user's


def is_users(frame: str) -> bool:
    """Whether a Python frame of a trace, ``train.py(19): step``, is neither torch's nor Python's own."""
    return not frame.startswith(_TORCHS)


class Callers:
    """Which Python frames each event was called from: ``stacks[of[event]]``, the innermost first, *depth* at most.

    As in torch's table: a backward op's are those of its forward op, a kernel's those of the op that launched it.
    Forward ops are found by the arrows in the trace; torch takes the first op with the same sequence number, which may
    be a detach() of long before. Of *depth* FUNCTION is only the innermost frame that the user wrote.
    """

    def __init__(self, events: TraceEvents, order: Sequence[int], depth: int) -> None:
        self.of = array("i", [0]) * len(events.start)
        self.stacks: list[tuple[str, ...]] = [()]
        self._lines, self._depth = depth == FUNCTION, 1 if depth == FUNCTION else depth
        self._numbers: dict[tuple[str, ...], int] = {(): 0}
        self._called: dict[tuple[int, int], int] = {}  # (name of a frame, its own stack): the stack of what it calls
        start, end, kind, thread, name = events.start, events.end, events.kind, events.thread, events.name
        texts, external = events.names.texts, events.external
        begun = {place: arrow for arrow, place in events.forward.items()}
        forward: dict[int, int] = {}  # arrow: stack of the forward op
        launched: dict[int, int] = {}  # External id: stack of the op
        main, aside = main_thread(events, order)
        #: By thread, what is open: the earliest end of it and of all below it; the stack of what it calls; the stack of
        #: its forward op, where it belongs to the backward graph.
        open_: dict[int, list[tuple[int, int, int | None]]] = {}
        nothing: tuple[int, int, int | None] = (1 << 62, 0, None)
        for event in order:
            if kind[event] == DEVICE:
                self.of[event] = launched.get(external[event], 0)
                continue
            if kind[event] == DEVICE_ANNOTATION:
                continue
            begins = start[event]
            stack = open_.setdefault(main if thread[event] == aside else thread[event], [])
            while stack and stack[-1][0] < begins:
                stack.pop()
            place = thread[event], begins
            arrow = events.backward.get(place)
            earliest, callers, back = stack[-1] if stack else nothing
            called = texts[name[event]]
            if not stack and called.startswith(ENGINE):  # its thread works for the one that called backward()
                caller = open_.get(events.forward.get(arrow, (main, 0))[0] if arrow is not None else main)
                callers = caller[-1][1] if caller else 0
            if kind[event] == PYTHON:
                calls = self._below(name[event], called, callers)
            else:
                calls = callers
                if _is_backward(called):
                    # no forward op, as of a gradient's gradient: torch finds what runs the node, on the same thread
                    alone = callers if thread[event] == main and not called.endswith(_LEAF) else 0
                    back = alone if arrow is None else forward.get(arrow, alone)
                elif place in begun and back is None:
                    forward.setdefault(begun[place], callers)
                if external[event] > 0:
                    launched.setdefault(external[event], callers)
            self.of[event] = callers if back is None else back
            stack.append((min(earliest, end[event]), calls, back))

    def _below(self, frame: int, words: str, stack: int) -> int:
        number = self._called.get((frame, stack))
        if number is None:
            left_out = any(file in words and function in words for file, function in _NO_FRAME)
            if left_out or (self._lines and not is_users(words)):
                number = stack
            else:
                frames = (words, *self.stacks[stack])[: self._depth]
                number = self._numbers.setdefault(frames, len(self.stacks))
                if number == len(self.stacks):
                    self.stacks.append(frames)
            self._called[frame, stack] = number
        return number


def _is_backward(name: str) -> bool:
    """Whether it is a node of the backward graph."""
    return _NODE.match(name) is not None


def main_thread(events: TraceEvents, order: Sequence[int]) -> tuple[int, int]:
    """(the main thread, the one whose events count as the main one's: the driver's overhead has no thread); -1: none"""
    texts = events.threads.texts
    aside = texts.index(OVERHEAD_THREAD) if OVERHEAD_THREAD in texts else -1
    for op in order:
        if events.kind[op] in (CPU, ANNOTATION, PYTHON) and events.thread[op] != aside:
            return events.thread[op], aside
    return -1, aside
