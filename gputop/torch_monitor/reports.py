"""Reads what processes that use gputop.torch_monitor publish, and asks them for things.

The files are of whoever owns the process, so nothing in them is believed but what concerns that process: the directory
and the file must be its user's alone, links are not followed, size and shape are checked, text is cleaned, and
(pid, start ticks) must be the living process's. Anything else is as if it were not there.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from gputop.model import HostFacts, ProcessKey, TorchAnswer, TorchDevice, TorchPhase, TorchReport, clean_text
from gputop.torch_monitor import runtime_directory

LOOK_AGAIN_SECONDS: Final = 5.0  # until a user's directories are opened anew
MOST_DEVICES: Final = 64
MOST_PHASES: Final = 32
MOST_BYTES: Final = 1 << 50
_UUID: Final = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{8,80}", re.ASCII)
_PCI: Final = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]", re.ASCII)


class BadReport(ValueError):
    """Not a report of this process in this schema."""


class TorchReports:
    """Not thread-safe: the thread that reads the host's facts owns it."""

    def __init__(self) -> None:
        self._directories: dict[int, tuple[float, list[int]]] = {}  # by uid: when opened, descriptors
        self._known: dict[int, tuple[tuple[int, int, int], ProcessKey, TorchReport | None]] = {}

    def read(self, facts: Mapping[int, HostFacts]) -> Mapping[int, TorchReport]:
        """Reports of the processes in *facts*, by pid. One that did not change is the same object as before."""
        found: dict[int, TorchReport] = {}
        by_user: dict[int, list[HostFacts]] = {}
        for process in facts.values():
            if process.uid is not None and process.key.start_ticks is not None:
                by_user.setdefault(process.uid, []).append(process)
        known: dict[int, tuple[tuple[int, int, int], ProcessKey, TorchReport | None]] = {}
        for uid, processes in by_user.items():
            for directory in self._of(uid):
                there = _names(directory)
                for process in processes:
                    if f"{process.key.pid}.json" in there and process.key.pid not in found:
                        entry = self._one(directory, process, uid)
                        if entry is not None:
                            known[process.key.pid] = entry
                            if entry[2] is not None:
                                found[process.key.pid] = entry[2]
        self._known = known
        for uid in self._directories.keys() - by_user.keys():
            self._close(uid)
        return found

    def close(self) -> None:
        for uid in list(self._directories):
            self._close(uid)

    def _of(self, uid: int) -> list[int]:
        now = time.monotonic()
        opened = self._directories.get(uid)
        if opened is None or now - opened[0] > LOOK_AGAIN_SECONDS:
            self._close(uid)
            descriptors = [runtime_directory.open_directory(path, uid) for path in runtime_directory.candidates(uid)]
            opened = self._directories[uid] = now, [one for one in descriptors if one is not None]
        return opened[1]

    def _close(self, uid: int) -> None:
        for descriptor in self._directories.pop(uid, (0.0, []))[1]:
            with suppress(OSError):
                os.close(descriptor)

    def _one(
        self, directory: int, process: HostFacts, uid: int
    ) -> tuple[tuple[int, int, int], ProcessKey, TorchReport | None] | None:
        name = f"{process.key.pid}.json"
        try:
            facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError:
            return None
        mark = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        known = self._known.get(process.key.pid)
        if known is not None and known[0] == mark and known[1] == process.key:
            return known
        read = runtime_directory.read(directory, name, uid)
        try:
            report = None if read is None else parse(read[0], process.key)
        except (BadReport, TypeError, ValueError, KeyError, AttributeError):
            report = None
        return mark, process.key, report


def ask(key: ProcessKey, uid: int, action: str) -> str:
    """Ask the process for *action* ("dump", "record", "stop"). Returns the request's id, which its answer will bear.

    Raises OSError in words where its user's directory cannot be written: then it is not ours to ask.
    """
    id_ = os.urandom(8).hex()
    request = {
        "schema": runtime_directory.SCHEMA,
        "pid": key.pid,
        "start_ticks": key.start_ticks,
        "id": id_,
        "action": action,
    }
    for path in runtime_directory.candidates(uid):
        directory = runtime_directory.open_directory(path, uid)
        if directory is None:
            continue
        try:
            if f"{key.pid}.json" in _names(directory):
                runtime_directory.write(directory, f"{key.pid}.ask", request, owner=uid)
                return id_
        finally:
            os.close(directory)
    raise OSError("only its user and root can; its runtime directory is missing or not writable")


def _names(directory: int) -> Collection[str]:
    try:
        return set(os.listdir(directory))
    except OSError:
        return ()


# --------------------------------------------------------------------------- parsing


def parse(value: Any, key: ProcessKey) -> TorchReport:
    """The report of *key* in *value*. Raises BadReport (or what a wrong shape makes Python raise)."""
    if not isinstance(value, dict) or value.get("schema") != runtime_directory.SCHEMA:
        raise BadReport
    if (value.get("pid"), value.get("start_ticks")) != key:
        raise BadReport
    return TorchReport(
        written_at=min(_number(value["written_at"]), time.time()),
        torch_version=_text(value.get("torch"), 40),
        backend=_text(value.get("backend"), 40),
        steps=_bytes(value["steps"]),
        step_seconds=None if value.get("step_seconds") is None else _number(value["step_seconds"]),
        recording=value.get("recording") is True,
        phase=_text(value.get("phase"), 64),
        labels=tuple(
            (_required_text(name, 32), _required_text(text, 64)) for name, text in value.get("labels", [])[:8]
        ),
        devices=tuple(_device(device) for device in value["devices"][:MOST_DEVICES]),
        answers=tuple(
            TorchAnswer(
                _required_text(answer["id"], 64), _required_text(answer["words"], 500), _text(answer.get("path"), 4096)
            )
            for answer in value.get("answers", [])[-4:]
        ),
    )


def _device(value: Any) -> TorchDevice:
    uuid, pci = value.get("uuid"), value.get("pci_bus_id")
    return TorchDevice(
        index=_bytes(value["index"]),
        uuid=uuid if isinstance(uuid, str) and _UUID.fullmatch(uuid) else None,
        pci_bus_id=pci if isinstance(pci, str) and _PCI.fullmatch(pci) else None,
        allocated_bytes=_bytes(value["allocated_bytes"]),
        reserved_bytes=_bytes(value["reserved_bytes"]),
        active_bytes=_bytes(value["active_bytes"]),
        inactive_split_bytes=_bytes(value["inactive_split_bytes"]),
        retries=_bytes(value["retries"]),
        ooms=_bytes(value["ooms"]),
        peak_bytes=None if value.get("peak_bytes") is None else _bytes(value["peak_bytes"]),
        step_peak_bytes=None if value.get("step_peak_bytes") is None else _bytes(value["step_peak_bytes"]),
        phases=tuple(
            TorchPhase(
                _required_text(phase["name"], 64), _number(phase["seconds"]), _bytes(phase["peak_bytes"]),
                _bytes(phase["kept_bytes"], least=-MOST_BYTES),
            )
            for phase in value.get("phases", [])[:MOST_PHASES]
        ),
    )  # fmt: skip


def _bytes(value: Any, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= MOST_BYTES:
        raise BadReport
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e12:  # NaN is none of these either
        raise BadReport
    return float(value)


def _required_text(value: Any, limit: int) -> str:
    if not isinstance(value, str):
        raise BadReport
    return clean_text(value, limit)


def _text(value: Any, limit: int) -> str | None:
    return None if value is None else _required_text(value, limit)
