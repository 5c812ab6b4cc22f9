"""``gputop fleet --free '4 × h100'``: the hosts that have that many free GPUs, best fit first.

Best fit: the host that keeps the fewest free GPUs afterwards, then the smallest GPUs that will do, then by name; so
that hosts which are free as a whole stay so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gputop import units
from gputop.fleet.in_memory import natural
from gputop.fleet.model import FleetGpu, FleetHost, GpuState, HostState

_REQUEST: Final = re.compile(r"\s*(?:(?P<count>\d{1,4})\s*(?:[x×*]|(?=\s))\s*)?(?P<what>\S.*?)\s*", re.IGNORECASE)
_SIZE: Final = re.compile(r"(?P<size>\d+(?:\.\d+)?\s*[MGT]i?B?)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FreeRequest:
    """*count* free GPUs of one host, each with at least *memory_bytes* and *model* in its name."""

    count: int
    model: str = ""  # in lower case; "": any
    memory_bytes: int = 0

    @classmethod
    def parse(cls, text: str) -> FreeRequest:
        """``4 × h100``, ``2x40GiB``, ``8 × h100 80GiB``, ``h200``, ``4``. Raises ValueError in words."""
        if re.fullmatch(r"\s*\d{1,2}\s*", text):  # more digits are a model: 4090
            return cls._checked(int(text), "", 0)
        match = _REQUEST.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a request such as '4 × h100' or '2 × 40GiB'")
        what, memory = match["what"], 0
        if size := _SIZE.search(what):
            memory = units.parse_size(size["size"])
            what = what[: size.start()] + what[size.end() :]
        return cls._checked(int(match["count"] or 1), " ".join(what.split()).casefold(), memory)

    @classmethod
    def _checked(cls, count: int, model: str, memory: int) -> FreeRequest:
        if not count:
            raise ValueError("0 GPUs are free everywhere; ask for at least 1")
        return cls(count, model, memory)

    def takes(self, gpu: FleetGpu) -> bool:
        return (
            gpu.state is GpuState.FREE
            and self.model in gpu.gpu.name.casefold()
            and (not self.memory_bytes or (gpu.gpu.memory_total_bytes or 0) >= self.memory_bytes)
        )

    def __str__(self) -> str:
        memory = f" with {units.short_size(self.memory_bytes)}" if self.memory_bytes else ""
        return f"{self.count} × {self.model or 'any GPU'}{memory}"


@dataclass(frozen=True, slots=True)
class FreePlace:
    """A host that has it: *gpus* are those that fit, all of them (at least as many as asked for)."""

    host: FleetHost
    gpus: tuple[FleetGpu, ...]


def places(hosts: Iterable[FleetHost], request: FreeRequest) -> list[FreePlace]:
    """The hosts that have what is asked for, best fit first. Hosts whose figures are old are none."""
    found = []
    for host in hosts:
        if host.state is not HostState.UP:
            continue
        fitting = tuple(gpu for gpu in host.gpus if request.takes(gpu))
        if len(fitting) >= request.count:
            found.append(FreePlace(host, fitting))

    def fit(place: FreePlace) -> tuple[object, ...]:
        smallest = min(gpu.gpu.memory_total_bytes or 0 for gpu in place.gpus)
        return place.host.gpus_free - request.count, smallest, natural(place.host.name)

    return sorted(found, key=fit)
