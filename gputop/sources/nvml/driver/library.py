"""The driver's library through pynvml: loading, connecting, versions, functions; and why it cannot be had."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_uint, c_void_p, create_string_buffer
from pathlib import Path
from typing import Any, Final

from gputop.model import Driver, clean_text
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.errors import NVML_UNKNOWN, explain, in_container, source_error
from gputop.sources.source import SourceError

#: An NVML function: arguments are ctypes objects, the answer is an nvmlReturn_t.
Function = Callable[..., int]

#: With this set, NVML shows an MPS client's view in which most calls are not supported (nvml.h 13.5).
MPS_ENUMERATION: Final = "NVML_MPS_DEVICE_ENUMERATION"


class Library:
    """An initialized NVML. Raises :class:`SourceError` where that is not to be had.

    Functions are called by their C pointers with buffers of our own: pynvml's wrappers allocate, ask lists for their
    size first, decode strictly and assume one layout of process entries. Like pynvml's, the calls release the GIL.
    """

    def __init__(self, root: Path = Path("/"), outlived: bool = False) -> None:
        """*outlived*: this process had the driver open before, so that a mismatch means that it was upgraded since."""
        os.environ.pop(MPS_ENUMERATION, None)
        self._root, self._outlived = root, outlived
        self._pynvml = _import_pynvml()
        self._found: dict[str, Function | None] = {}
        self._initialize()
        self.container = in_container()

    def _initialize(self) -> None:
        pynvml = self._pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            if error.value != abi.FUNCTION_NOT_FOUND:
                raise self.refused(error.value, initializing=True) from None
            code = self._initialize_old()
            if code:
                raise self.refused(code, initializing=True) from None
        except (getattr(pynvml, "NVMLLibraryMismatchError", OSError), OSError, UnicodeDecodeError) as error:
            # The first is no NVMLError.
            raise SourceError(f"pynvml and the NVIDIA driver library are incompatible: {error}", 5) from error

    def _initialize_old(self) -> int:
        """Libraries before R390 have no nvmlInitWithFlags."""
        function = self.function("nvmlInit_v2")
        return function() if function is not None else abi.FUNCTION_NOT_FOUND

    def refused(self, code: int, initializing: bool = False) -> SourceError:
        """What to raise when *code* concerns the whole driver; *initializing*: nvmlInit gave it."""
        return source_error(code, self._mismatch() if code == abi.LIB_RM_VERSION_MISMATCH else "", initializing)

    def _mismatch(self) -> str:
        """Both versions. The library stays loaded for the life of the process: only a new one sees an upgrade."""
        module = kernel_module_version(self._root)
        library = loaded_library_version(self._root) or self.text("nvmlSystemGetNVMLVersion", 80)
        parts = [f"kernel module {module}" if module else "", f"library {library}" if library else ""]
        if self._outlived:
            parts.append("the driver was upgraded while gputop ran: restart gputop")
        return ", ".join(part for part in parts if part)

    def function(self, name: str) -> Function | None:
        """The C function *name*; None where this driver's library lacks it."""
        if name not in self._found:
            try:
                self._found[name] = self._pynvml._nvmlGetFunctionPointer(name)
            except self._pynvml.NVMLError:
                self._found[name] = None
        return self._found[name]

    def call(self, name: str, *arguments: Any) -> int:
        """Call once; FUNCTION_NOT_FOUND where the library lacks it."""
        function = self.function(name)
        return function(*arguments) if function is not None else abi.FUNCTION_NOT_FOUND

    def text(self, name: str, size: int, *before: Any) -> str | None:
        """A text answer, cleaned; None where there is none. (pynvml decodes strictly and fails on WSL's names.)"""
        buffer = create_string_buffer(size)
        if self.call(name, *before, buffer, c_uint(size)):
            return None
        return clean_text(buffer.value).strip() or None

    def driver(self) -> Driver:
        """The versions, for the header."""
        number = c_int()
        code = self.call("nvmlSystemGetCudaDriverVersion_v2", byref(number))
        if code:
            code = self.call("nvmlSystemGetCudaDriverVersion", byref(number))
        cuda = f"{number.value // 1000}.{number.value % 1000 // 10}" if code == 0 and number.value > 0 else None
        return Driver(
            version=self.text("nvmlSystemGetDriverVersion", 80),
            nvml_version=self.text("nvmlSystemGetNVMLVersion", 80),
            cuda_version=cuda,
        )

    def count(self) -> int:
        """GPUs the driver counts now; some of them may refuse to be opened. Raises SourceError."""
        number = c_uint()
        code = self.call("nvmlDeviceGetCount_v2", byref(number))
        if code == abi.FUNCTION_NOT_FOUND:
            code = self.call("nvmlDeviceGetCount", byref(number))
        if code:
            raise self.refused(code)
        return number.value

    def open_device(self, index: int) -> tuple[c_void_p | None, int]:
        """The handle of GPU *index* (this initializes and wakes it), or None and the code of the failure."""
        handle = c_void_p()
        code = self.call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
        if code == abi.FUNCTION_NOT_FOUND:
            code = self.call("nvmlDeviceGetHandleByIndex", c_uint(index), byref(handle))
        if code == 0 and not handle.value:
            code = abi.UNKNOWN  # never pass a null handle on: the library would crash (nvitop#139)
        return (None, code) if code else (handle, 0)

    def nvml_message(self, code: int) -> str:
        """What this library says of *code* (nvmlErrorString), as nvidia-smi prints it."""
        function: Any = self.function("nvmlErrorString")
        if function is None:
            return NVML_UNKNOWN
        function.restype = c_char_p
        return clean_text(function(c_int(code)) or NVML_UNKNOWN)

    def explain(self, code: int, about: str = "") -> str:
        return explain(code, about, self.container)

    def shutdown(self) -> None:
        """Let go of the driver; all its files are closed afterwards. Failures do not matter then."""
        try:
            self._pynvml.nvmlShutdown()
        except self._pynvml.NVMLError:
            pass  # already gone: the driver was unloaded, or the GPU is lost


def _import_pynvml() -> Any:
    """pynvml, if it is NVIDIA's."""
    try:
        import pynvml
    except ImportError as error:
        raise SourceError(
            f"the Python module pynvml cannot be imported ({error}): `pip install nvidia-ml-py`", 3, transient=False
        ) from error
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        where = getattr(pynvml, "__file__", "?")
        raise SourceError(
            f"the module pynvml at {where} is not NVIDIA's: `pip uninstall pynvml`, then "
            "`pip install --force-reinstall nvidia-ml-py`",
            3,
            transient=False,
        )
    return pynvml


def kernel_module_version(root: Path = Path("/")) -> str | None:
    """The loaded kernel module's version, from /proc/driver/nvidia/version."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text, re.MULTILINE)
    return found[1] if found else None


def loaded_library(root: Path = Path("/")) -> str | None:
    """The path of the mapped libnvidia-ml, from /proc/self/maps."""
    try:
        text = (root / "proc/self/maps").read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"\s(/\S*libnvidia-ml\.so\S*)$", text, re.MULTILINE)
    return found[1] if found else None


def loaded_library_version(root: Path = Path("/")) -> str | None:
    """The version in the file name of the mapped libnvidia-ml, from /proc/self/maps."""
    try:
        text = (root / "proc/self/maps").read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)", text)
    return found[1] if found else None
