"""Stack frames of a snapshot: each kept once, and folded down to the lines the user wrote.

``frames[0]`` is the innermost one. With ``stacks='all'`` a stack is dozens of C++ frames (``torch::unwind::unwind()``,
``at::native::…``), then torch's Python, then the user's; what people ask for is the last. Folded, a stack holds the
frames of Python files outside torch; if there are none (the backward thread), torch's Python frames; if there are none
of these either, its C++ frames without the interpreter's machinery.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from gputop.model import clean_text
from gputop.torch_files.columns import Column

NO_STACK: Final = 0  # the number of the empty stack
_SAMPLE: Final = 8  # of so many frames one is looked at first
_SCALARS: Final = frozenset({str, int, bool, type(None)})
_ALIKE: Final = 4  # lists to compare with
_LISTS: Final = 1 << 18  # frames lists that are known again; where there are more, each is hardly ever met twice

_NATIVE_FILE: Final = re.compile(r"(^\?\?$|^$|\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|so)(?:$|\.\d|:))", re.IGNORECASE)
_TORCH_FILE: Final = re.compile(
    r"(?:^|/)(?:site|dist)-packages/(?:torch|torchgen|functorch|triton)/|^torch/|/pytorch/torch/|torchinductor_[^/]*/"
    r"|^<frozen |^<eval_with_key>|^<string>$|(?:^|/)(?:importlib/|contextlib\.py$|threading\.py$|runpy\.py$)"
)
#: Frames that say nothing of what the program does; torch's own filter drops the same.
_MACHINERY: Final = re.compile(
    r"unwind::unwind|CapturedTraceback::gather|gather_with_cpp|^_start$|__libc_start_(?:main|call_main)|^PyEval_|^_PyEval_"
    r"|^PyObject_|^_PyObject_|^PyFunction_|^_PyFunction_|^Py_RunMain|^Py_BytesMain|^clone3?$|^start_thread$"
)
_MACHINERY_FILE: Final = re.compile(
    r"core/boxing|/Register|/Redispatch|pythonrun\.c|Modules/main\.c|Objects/(?:call|methodobject)\.c"
    r"|pycore_ceval\.h|ceval\.c|cpython/abstract\.h"
)
_FX_FRAME: Final = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,9}), in ([^\s,]{1,300})')
_FX_CHARACTERS: Final = 20_000  # of a traceback that are looked at, its end
USER: Final = 0
TORCH: Final = 1
NATIVE: Final = 2
MACHINERY: Final = 3


class Frame(NamedTuple):
    """One frame, as torch recorded it."""

    name: str
    filename: str
    line: int

    @property
    def file(self) -> str:
        """The file's name without its directories, those of Windows too."""
        return self.filename.replace("\\", "/").rpartition("/")[2]

    @property
    def short(self) -> str:
        """``train.py:41 step``."""
        return f"{self.file}:{self.line} {self.name}" if self.line else self.name

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} {self.name}" if self.line else f"{self.filename} {self.name}"


@lru_cache(65536)
def kind_of(frame: Frame) -> int:
    """Whose frame it is: USER, TORCH (its Python), NATIVE or MACHINERY."""
    filename = frame.filename.replace("\\", "/")
    if _NATIVE_FILE.search(filename) or "::" in frame.name:
        bare = _MACHINERY.search(frame.name) or _MACHINERY_FILE.search(filename)
        return MACHINERY if bare else NATIVE
    return TORCH if _TORCH_FILE.search(filename) else USER


def fold(frames: Sequence[int], kinds: Sequence[int]) -> tuple[int, ...]:
    """The frames of a stack that a person wants to see; never none of some."""
    for kind in (USER, TORCH, NATIVE):
        kept = tuple([frame for frame in frames if kinds[frame] == kind])
        if kept:
            return kept
    return tuple(frames)


class FrameCollector:
    """Numbers the stacks of a snapshot as it is read."""

    def __init__(self) -> None:
        self._frame_numbers: dict[Frame, int] = {}
        self._of_dict: dict[int, int] = {}  # id of a frame's dict: its number
        self._of_dicts: dict[tuple[int, ...], int] = {}  # ids of a stack's dicts: its number
        self._alike: dict[tuple[int, ...], list[tuple[Any, int]]] = {}  # by a sample of them: lists and their stacks
        self._plain = True  # all frames are: what is not may take for ever to compare
        self._stack_numbers: dict[tuple[int, ...], int] = {(): NO_STACK}
        self._of_list: dict[int, int] = {id(None): NO_STACK}  # id of a frames list: its stack

    def stacks(self, lists: Sequence[Any]) -> array[int]:
        """The stack number of each of *lists* (None: no frames were recorded). The lists must live on."""
        ids = list(map(id, lists))
        of_list = self._of_list
        try:
            return array("I", list(map(of_list.__getitem__, ids)))
        except KeyError:
            found = []
            for identity, frames in zip(ids, lists, strict=True):
                number = of_list.get(identity)
                if number is None:
                    number = self._number(frames)
                    if len(of_list) < _LISTS:
                        of_list[identity] = number
                found.append(number)
            return array("I", found)

    def _number(self, frames: Any) -> int:
        """Writers repeat lists, hardly ever the dicts in them: a sample of these finds lists to compare with, which is
        fast where the dicts are the same."""
        if not isinstance(frames, list | tuple):
            return NO_STACK
        alike = self._alike.setdefault((len(frames), *map(id, frames[::_SAMPLE])), [])
        for other, number in alike:
            if frames == other:
                return number
        dicts = tuple(map(id, frames))
        number = self._of_dicts.get(dicts, -1)
        if number < 0:
            of_dict = self._of_dict
            for frame in frames:
                if id(frame) not in of_dict:
                    of_dict[id(frame)] = self._frame(frame)
            stack = tuple(map(of_dict.__getitem__, dicts))
            number = self._of_dicts[dicts] = self._stack_numbers.setdefault(stack, len(self._stack_numbers))
        if self._plain and len(alike) < _ALIKE:
            alike.append((frames, number))
        return number

    def _frame(self, frame: Any) -> int:
        name = filename = "?"
        line = 0
        self._plain = self._plain and type(frame) is dict and _SCALARS.issuperset(map(type, frame.values()))
        if isinstance(frame, dict):
            name, filename, line = (frame.get(key) for key in ("name", "filename", "line"))  # type: ignore[assignment]
            told = frame.get("fx_original_trace")
            if isinstance(told, str) and (original := _original(told)) is not None:
                name, filename, line = original
        key = Frame(_text(name), _text(filename), line if isinstance(line, int) and 0 <= line < 2**31 else 0)
        return self._frame_numbers.setdefault(key, len(self._frame_numbers))

    def tables(self) -> tuple[dict[str, Any], dict[str, array[Any]]]:
        """What :class:`Frames` is made of: a header and columns."""
        frames = list(self._frame_numbers)
        kinds = [kind_of(frame) for frame in frames]
        stacks = list(self._stack_numbers)
        numbers = self._stack_numbers
        folded = array("I")
        for stack in stacks:
            short = fold(stack, kinds)
            number = numbers.get(short)
            if number is None:
                number = numbers[short] = len(numbers)
            folded.append(number)
        folded.extend(range(len(folded), len(numbers)))  # what is folded stays as it is
        starts, flat = array("Q", [0]), array("I")
        for stack in numbers:
            flat.extend(stack)
            starts.append(len(flat))
        header = {"names": [f.name for f in frames], "files": [f.filename for f in frames]}
        return header, {
            "frames.line": array("i", [f.line for f in frames]),
            "stacks.start": starts,
            "stacks.frame": flat,
            "stacks.folded": folded,
        }


def _original(told: str) -> tuple[str, str, int] | None:
    """The model's own line that a generated one (``fx_generated_….py``) was made of: torch 2.10 and later tell its
    traceback, the innermost frame last."""
    found = _FX_FRAME.findall(told[-_FX_CHARACTERS:])
    if not found:
        return None
    filename, line, name = found[-1]
    return name, filename, int(line)


def _text(value: Any) -> str:
    return clean_text(value, 1000) if isinstance(value, str) else "?"


class Frames:
    """The frames and stacks of a snapshot that was read."""

    def __init__(self, header: dict[str, Any], columns: dict[str, Column]) -> None:
        self._names, self._files, self._lines = header["names"], header["files"], columns["frames.line"]
        self._starts, self._flat = columns["stacks.start"], columns["stacks.frame"]
        self._folded = columns["stacks.folded"]
        self._texts: dict[int, str] = {}

    @property
    def count(self) -> int:
        return len(self._starts) - 1

    def frame(self, number: int) -> Frame:
        return Frame(self._names[number], self._files[number], self._lines[number])

    def stack(self, number: int) -> tuple[int, ...]:
        """The frame numbers of stack *number*, innermost first."""
        return tuple(self._flat[self._starts[number] : self._starts[number + 1]])

    def folded(self, number: int) -> int:
        """The number of the stack that holds the user's frames of stack *number* only."""
        return int(self._folded[number])

    def frames(self, number: int) -> list[Frame]:
        return [self.frame(frame) for frame in self.stack(number)]

    def text(self, number: int) -> str:
        """Stack *number* in one line, the innermost frame first: what a search looks through."""
        text = self._texts.get(number)
        if text is None:
            text = self._texts[number] = " ← ".join(map(str, self.frames(number)))
        return text
