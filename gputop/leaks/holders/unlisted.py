"""Holders of devices that the driver lists on no GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gputop.leaks.holders.holder import Holder
from gputop.model import Snapshot


def unlisted_holders(holders: Iterable[Holder], snapshot: Snapshot) -> Iterator[Holder]:
    """Those of *holders* that the driver does not list, and that are no workers of a process that lives and is listed.

    Where the list of a GPU is not known, whoever has another GPU open than those with a known list may be on it, and is
    not among them: CUDA opens every GPU it sees."""
    listed = {process.pid for process in snapshot.processes if process.exists is not False}
    known = {gpu.facts.minor_number for gpu in snapshot.gpus if gpu.processes_known}
    all_known = all(gpu.processes_known for gpu in snapshot.gpus)
    for holder in holders:
        if holder.key.pid in listed or holder.facts.parent_pid in listed:
            continue
        if all_known or all(device.minor is None or device.minor in known for device in holder.devices):
            yield holder
