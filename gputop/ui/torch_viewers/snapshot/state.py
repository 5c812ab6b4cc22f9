"""What the views of a memory snapshot share: which file, device, moment and allocations are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gputop.torch_files.snapshot.groups import AllocationFilter, StackGroup, by_stack, parse_filter
from gputop.torch_files.snapshot.memory_snapshot import DeviceSnapshot, MemorySnapshot
from gputop.ui.toolkit.view import View

T = TypeVar("T")
_KEPT = 64  # results, the newest


class TorchState:
    """Shared by the panes; what is computed for one look at the snapshot is kept for the next."""

    def __init__(self, snapshots: Sequence[MemorySnapshot], view: View) -> None:
        self.snapshots, self.view = list(snapshots), view
        self.file = 0
        self.filter = AllocationFilter()
        self.folded = True  # only the user's frames
        self._device_number: int | None = None
        self._cursors: dict[int, int] = {}
        self._kept: dict[Any, Any] = {}

    @property
    def snapshot(self) -> MemorySnapshot:
        return self.snapshots[self.file]

    @property
    def device(self) -> DeviceSnapshot | None:
        """The device looked at; None: the file has none."""
        devices = self.snapshot.devices
        return next((d for d in devices if d.number == self._device_number), devices[0] if devices else None)

    def next_device(self, number: int | None = None) -> None:
        """Look at the next device, or at *number*."""
        devices, device = self.snapshot.devices, self.device
        if number is not None:
            self._device_number = number
        elif device is not None:
            self._device_number = devices[(devices.index(device) + 1) % len(devices)].number

    def next_file(self) -> None:
        self.file = (self.file + 1) % len(self.snapshots)

    def set_filter(self, text: str) -> str | None:
        """Returns what is wrong with *text*, in words."""
        try:
            self.filter = parse_filter(text)
        except ValueError as error:
            return str(error)
        return None

    # -- the moment at the cursor

    @property
    def cursor(self) -> int:
        """The moment at the cursor: the peak at first."""
        device = self.device
        return -1 if device is None else self._cursors.get(id(device), device.peak[0])

    @cursor.setter
    def cursor(self, moment: int) -> None:
        device = self.device
        if device is not None:
            self._cursors[id(device)] = max(-1, min(device.last, moment))

    # -- what is computed

    def kept(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """What *make* makes of the device looked at, made once."""
        whole = (id(self.device), *key)
        if whole not in self._kept:
            while len(self._kept) >= _KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[whole] = make()
        found: T = self._kept[whole]
        return found

    def is_kept(self, *key: Any) -> bool:
        return (id(self.device), *key) in self._kept

    def rows(self, moment: int) -> list[int]:
        """The allocations held at *moment* that the filter lets through."""
        device, wanted = self.device, self.filter
        if device is None:
            return []
        return self.kept(("rows", moment, wanted), lambda: wanted.rows(device, device.rows_at(moment)))

    def groups_key(self, moment: int) -> tuple[Any, ...]:
        return ("groups", moment, self.filter, self.folded)

    def groups(self, moment: int) -> list[StackGroup]:
        """These by stack."""
        device, folded = self.device, self.folded
        if device is None:
            return []
        return self.kept(self.groups_key(moment), lambda: by_stack(device, self.rows(moment), folded))
