"""Which processes have certain devices open: run as a program of its own, so that looking at the descriptors of some
thousand processes costs the screen nothing, not even the interpreter's lock.

It needs nothing but the standard library's cheapest modules (a start takes 15 ms) and writes a line for each find:

    holder PID
    late PID                                (looking at it takes too long: a file on a server that does not answer)
    end INSPECTED UID=COUNT UID=COUNT…      (the counts: processes that may not be looked into, by owner)
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator

PF_KTHREAD = 0x00200000  # include/linux/sched.h
NICE = 10
LATE_SECONDS = 1.0  # a process may keep the others waiting
MAX_THREADS = 16  # as many may hang; then the scan stops, and there is no end line

Judge = Callable[[int], bool]


def probe(proc: str, judge: Judge, with_maps: bool, rest: Callable[[], None] | None = None) -> Iterator[str]:
    """The lines. *rest* is called between processes."""
    scan = _Scan(proc, judge, with_maps, rest)
    for _ in range(MAX_THREADS):
        looked = -1
        threading.Thread(target=scan.run, daemon=True).start()
        while not scan.ended.wait(LATE_SECONDS) and scan.looked != looked:
            looked = scan.looked  # it goes on
        yield from scan.take()
        if scan.ended.is_set():
            yield " ".join(["end", str(scan.inspected), *(f"{uid}={count}" for uid, count in scan.denied.items())])
            return
        yield f"late {scan.give_up()}"


class _Scan:
    """Goes over all processes, in a thread that is given up where one takes too long, and then in another."""

    def __init__(self, proc: str, judge: Judge, with_maps: bool, rest: Callable[[], None] | None) -> None:
        self._proc, self._judge, self._with_maps, self._rest = proc, judge, with_maps, rest
        self._pids = iter([pid for pid in os.listdir(proc) if pid.isdecimal()])
        self._lines: list[str] = []
        self._current: str | None = None
        self._number = 0  # of the thread that counts; one that was given up and comes back ends
        self.looked = self.inspected = 0
        self.denied: dict[int, int] = {}
        self.ended = threading.Event()

    def run(self) -> None:
        number, look = self._number, DescriptorScan(self._judge)
        for pid in self._pids:
            self._current = pid
            if self._rest is not None:
                self._rest()
            found = self._look(look, pid)
            if number != self._number:
                return
            self.looked += 1
            if found is None:
                continue
            if found < 0:
                self.inspected += 1
                if found == -1:
                    self._lines.append(f"holder {pid}")
            else:
                self.denied[found] = self.denied.get(found, 0) + 1
        self.ended.set()

    def give_up(self) -> str | None:
        """The process that takes too long."""
        self._number += 1
        return self._current

    def take(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines

    def _look(self, look: DescriptorScan, pid: str) -> int | None:
        """-1: it holds a device, -2: none; the owner of one that may not be looked into; None: gone."""
        root = f"{self._proc}/{pid}"
        try:
            holds = look.holds(root) or (self._with_maps and not _untouchable(root) and mapped(root, self._judge))
            return -1 if holds else -2
        except PermissionError:
            if not _holds_nothing(root):
                try:
                    return os.stat(root).st_uid
                except OSError:
                    return None  # gone
        except (OSError, ValueError):
            return None  # gone
        return None


class DescriptorScan:
    """One pass over descriptors, which remembers what kind of file a path outside /dev is: a log that a hundred
    processes write is looked at once (and looking at a file may ask a server for it)."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._no_device: set[str] = set()

    def holds(self, root: str) -> bool:
        """Whether any descriptor of the process at *root* is one of the devices. Raises OSError."""
        return next(self.devices(root), None) is not None

    def devices(self, root: str) -> Iterator[tuple[int, str, int]]:
        """(descriptor, path, device number) of those among its descriptors. Files elsewhere than under /dev are looked
        at only where there is none under it. Raises OSError."""
        names, found = self._in(f"{root}/fd")
        if not names:  # a dead first thread has no files, its living siblings have them; a kernel thread has neither
            for task in os.listdir(f"{root}/task")[1:]:
                try:
                    _, found = self._in(f"{root}/task/{task}/fd")
                except (FileNotFoundError, ProcessLookupError):
                    continue  # that thread is gone
                if found:
                    break
        yield from found

    def _in(self, path: str) -> tuple[list[str], list[tuple[int, str, int]]]:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            names = os.listdir(folder)
            return names, list(self._among(folder, names))
        finally:
            os.close(folder)

    def _among(self, folder: int, names: list[str]) -> Iterator[tuple[int, str, int]]:
        elsewhere: list[tuple[str, str]] = []
        none_under_dev = True
        seen: dict[str, int | None] = {}
        for name in names:
            try:
                path = os.readlink(name, dir_fd=folder)
            except OSError:
                continue  # closed meanwhile
            if path.startswith("/dev/"):
                if path not in seen:
                    seen[path] = self._device(folder, name)
                if (device := seen[path]) is not None:
                    none_under_dev = False
                    yield int(name), path, device
            elif path.startswith("/") and path not in self._no_device:
                elsewhere.append((name, path))
        if none_under_dev:
            for name, path in elsewhere:
                if (device := self._device(folder, name)) is not None:
                    yield int(name), path, device
                else:
                    self._no_device.add(path)

    def _device(self, folder: int, name: str) -> int | None:
        """The number of the file if it is one of the devices."""
        try:
            status = os.stat(name, dir_fd=folder)
        except OSError:
            return None  # closed meanwhile
        return status.st_rdev if stat.S_ISCHR(status.st_mode) and self._judge(status.st_rdev) else None


def mapped(root: str, judge: Judge) -> dict[int, str]:
    """Device number and path of what is mapped from under /dev. A mapping outlives the descriptor."""
    paths: set[str] = set()
    found: dict[int, str] = {}
    try:
        with open(f"{root}/maps", "rb") as file:
            for line in file:
                at = line.find(b" /dev/")
                if at >= 0 and not line.startswith(b"/dev/shm", at + 1):
                    paths.add(os.fsdecode(line[at + 1 : -1]))
    except OSError:
        return found
    for path in paths:
        try:
            status = os.stat(f"{root}/root{path}")
        except OSError:
            continue
        if stat.S_ISCHR(status.st_mode) and judge(status.st_rdev):
            found[status.st_rdev] = path
    return found


def _stat(root: str) -> list[bytes]:
    """The fields of /proc/PID/stat after the name, the state first. Raises OSError."""
    descriptor = os.open(f"{root}/stat", os.O_RDONLY)
    try:
        return os.read(descriptor, 2048).rpartition(b")")[2].split()
    finally:
        os.close(descriptor)


def _untouchable(root: str) -> bool:
    """In state D reading its maps could wait as long as it does; a zombie has none, nor has a kernel thread."""
    fields = _stat(root)
    return fields[0] in (b"D", b"Z", b"X") or bool(int(fields[6]) & PF_KTHREAD)


def _holds_nothing(root: str) -> bool:
    """Whether it cannot hold anything, though it may not be looked into: a kernel thread, a zombie, gone."""
    try:
        fields = _stat(root)
    except OSError:
        return True
    return bool(int(fields[6]) & PF_KTHREAD) or (fields[0] in (b"Z", b"X") and int(fields[17]) <= 1)


def main() -> None:
    """Arguments: the proc directory, "maps" or "", the majors, the device numbers; lists with commas."""
    proc, maps, majors, numbers = sys.argv[1:5]
    of_driver = {int(major) for major in majors.split(",") if major}
    wanted = {int(number) for number in numbers.split(",") if number}
    os.nice(NICE)
    for line in probe(proc, lambda device: device in wanted or os.major(device) in of_driver, maps == "maps"):
        print(line, flush=True)
    os._exit(0)  # a thread that hangs is not waited for


if __name__ == "__main__":
    main()
