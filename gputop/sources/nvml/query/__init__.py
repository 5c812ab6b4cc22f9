"""What scripts ask of the driver: single fields of GPUs and of their compute processes, read when asked for.

Nothing of the tiers of :class:`gputop.sources.nvml.NvmlSource` is needed: a query makes the calls its fields take, with
one thread a GPU, so that one which hangs costs its own row only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from gputop.model import Gpu
from gputop.model.selection import UUID_PREFIX, find
from gputop.sources.nvml import sysfs
from gputop.sources.nvml.driver import abi
from gputop.sources.nvml.driver.errors import DRIVER_GONE, NvmlError
from gputop.sources.nvml.driver.library import Library
from gputop.sources.nvml.query.fields import APP_FIELDS, GPU_FIELDS
from gputop.sources.nvml.query.queried_gpu import ASLEEP, GpuAsleep, QueriedGpu, QueriedProcess, answer
from gputop.sources.nvml.readings.processes import EntryLayoutProbe
from gputop.sources.query_fields import Answer, Field, Unanswered

__all__ = ["APP_FIELDS", "GPU_FIELDS", "Query"]

TIMEOUT_SECONDS: Final = 3.0  # for all GPUs together

T = TypeVar("T")
Row = list[Answer]

#: Codes that concern a GPU and not a field.
_GPU_FAILED: Final = frozenset({abi.GPU_IS_LOST, abi.RESET_REQUIRED, abi.TIMEOUT})


class Query:
    """A connection to the driver that answers questions. Raises SourceError where there is none to be had.

    *failure* is the driver's code for the worst that befell a GPU in the last reading, or 0.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._library = Library()
        self._driver_version = self._library.driver().version or ""
        self._layouts = EntryLayoutProbe()
        self._busy: dict[int, threading.Thread] = {}
        self._gpus: list[QueriedGpu] = []
        self.failure = 0

    def select(self, names: Sequence[str]) -> tuple[str, ...]:
        """Take the GPUs called *names* (all, where there are none): indices, UUIDs, serial numbers, PCI ids. Each once,
        ordered by index, as nvidia-smi does. Returns the names no GPU has. Raises SourceError."""
        gpus = [QueriedGpu(self._library, i, self._layouts, self._driver_version) for i in range(self._library.count())]
        if not names:
            self._gpus = gpus
            return ()
        if all(name.isascii() and name.isdecimal() and len(name) < UUID_PREFIX for name in names):
            found = {name: int(name) if int(name) < len(gpus) else None for name in names}
        else:  # this opens all of them
            self._see_who_sleeps(gpus)
            identities = self._each(gpus, _identity)
            found = {name: _called(name, identities) for name in names}
        wanted = {index for index in found.values() if index is not None}
        self._gpus = [gpu for gpu in gpus if gpu.index in wanted]
        return tuple(name for name, index in found.items() if index is None)

    @property
    def gpus(self) -> int:
        """How many are selected."""
        return len(self._gpus)

    def gpu_rows(self, fields: Sequence[Field]) -> list[Row]:
        """One row a GPU. Raises SourceError when the driver is gone."""
        return self._rows(lambda gpu: [[answer(field, gpu) for field in fields]])

    def app_rows(self, fields: Sequence[Field]) -> list[Row]:
        """One row a compute process; one for a GPU that does not tell them. Raises SourceError when the driver is
        gone."""

        def rows(gpu: QueriedGpu) -> list[Row]:
            try:
                apps = gpu.processes()
            except GpuAsleep:
                return [[Unanswered(abi.NOT_READY, ASLEEP) for _ in fields]]
            except NvmlError as error:
                apps = [QueriedProcess(gpu, 0, 0, error.code)]
            return [[answer(field, app) for field in fields] for app in apps]

        return self._rows(rows)

    def _late(self, index: int, moment: float) -> QueriedGpu:
        """Stands in for a GPU that does not answer in time; nothing is asked of the driver."""
        gpu = QueriedGpu(self._library, index, self._layouts, self._driver_version)
        gpu.moment, gpu.code = moment, abi.TIMEOUT
        return gpu

    def _rows(self, rows_of: Callable[[QueriedGpu], list[Row]]) -> list[Row]:
        moment = time.time()

        self._see_who_sleeps(self._gpus)

        def read(gpu: QueriedGpu) -> list[Row]:
            gpu.forget(moment)
            return rows_of(gpu)

        found = self._each(self._gpus, read)
        for gpu in self._gpus:
            if gpu.index not in found:
                found[gpu.index] = rows_of(self._late(gpu.index, moment))
        rows = [row for gpu in self._gpus for row in found[gpu.index]]
        codes = {entry.code for row in rows for entry in row if isinstance(entry, Unanswered)}
        if codes & DRIVER_GONE:
            raise self._library.refused(min(codes & DRIVER_GONE))
        self.failure = max((codes & _GPU_FAILED) | {gpu.code for gpu in self._gpus}, default=0)
        return rows

    def _see_who_sleeps(self, gpus: Sequence[QueriedGpu]) -> None:
        """Nothing is asked of a GPU that sleeps (a laptop's): that would wake it. GPUs are known by
        their positions, which needs sysfs to have as many as the driver counts (a container may not)."""
        addresses = sysfs.nvidia_gpus(self._root)
        if not addresses or len(addresses) != self._library.count():
            return
        for gpu in gpus:
            gpu.asleep = gpu.index < len(addresses) and sysfs.asleep(addresses[gpu.index], self._root)

    def _each(self, gpus: Sequence[QueriedGpu], ask: Callable[[QueriedGpu], T]) -> dict[int, T]:
        """What *ask* gives for each of *gpus*, by index; those whose thread is late are missing, and are not asked
        again before it is back."""
        results: dict[int, T] = {}
        broken: list[Exception] = []

        def run(gpu: QueriedGpu) -> None:
            try:
                results[gpu.index] = ask(gpu)
            except Exception as error:  # raised by the thread that waits for this one
                broken.append(error)

        for gpu in gpus:
            if gpu.index not in self._busy:
                self._busy[gpu.index] = threading.Thread(target=run, args=(gpu,), daemon=True)
                self._busy[gpu.index].start()
        deadline = time.monotonic() + TIMEOUT_SECONDS
        for gpu in gpus:
            self._busy[gpu.index].join(max(0.0, deadline - time.monotonic()))
        self._busy = {index: thread for index, thread in self._busy.items() if thread.is_alive()}
        if broken:
            raise broken[0]
        return results

    def close(self) -> None:
        """Let go of the driver, unless a thread is still inside it."""
        if not self._busy:
            self._library.shutdown()


def _identity(gpu: QueriedGpu) -> dict[str, str]:
    """What a GPU may be called, as far as it tells."""
    answers = {field.name: answer(field, gpu) for field in GPU_FIELDS if field.name in ("uuid", "serial", "pci.bus_id")}
    return {name: text for name, text in answers.items() if isinstance(text, str)}


def _called(name: str, identities: dict[int, dict[str, str]]) -> int | None:
    """The index of the GPU called *name*."""
    for index, identity in identities.items():
        if identity.get("serial") == name:
            return index
    gpus = [
        Gpu(index, identity.get("uuid", f"slot:{index}"), "", 0.0, identity.get("pci.bus_id"))
        for index, identity in identities.items()
    ]
    found = find(gpus, name)
    return None if found is None else found.index
