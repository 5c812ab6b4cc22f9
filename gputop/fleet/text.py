"""``gputop fleet --once`` and ``--free`` as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gputop import units
from gputop.fleet.free import FreePlace, FreeRequest
from gputop.fleet.model import FleetHost, FleetSnapshot, HostState, Totals
from gputop.text import fit, to_ascii, width, wrap
from gputop.units import TIB, UNKNOWN

_NAME_MOST: Final = 40
_MODEL_MOST: Final = 28


def render(snapshot: FleetSnapshot, columns: int | None = None, ascii_only: bool = False) -> str:
    """The table; its lines are at most *columns* cells long where that is given."""
    lines = [*_head(snapshot, columns), *_hosts(snapshot.hosts)]
    return _finished(lines, columns, ascii_only)


def render_free(
    request: FreeRequest,
    places: Sequence[FreePlace],
    problems: Iterable[str],
    columns: int | None = None,
    ascii_only: bool = False,
) -> str:
    """The hosts that have it, best fit first, or that none has."""
    lines = [line for problem in problems for line in _warning(problem, columns)]
    if not places:
        lines.append(f"No host has {request} free.")
    else:
        name = _widest([place.host.name for place in places], "HOST", _NAME_MOST)
        lines.append(f"{fit('HOST', name)}  FITTING  FREE  GPUS")
        for place in places:
            gpus = ",".join(str(gpu.gpu.index) for gpu in place.gpus)
            model = _models(_counted(gpu.gpu.name for gpu in place.gpus))
            lines.append(
                f"{fit(place.host.name, name)}  {len(place.gpus):>7}  {place.host.gpus_free:>4}  {model} ({gpus})"
            )
    return _finished(lines, columns, ascii_only)


def _finished(lines: Iterable[str], columns: int | None, ascii_only: bool) -> str:
    cut = [line if columns is None else fit(line, columns) for line in lines]
    text = "".join(f"{line.rstrip()}\n" for line in cut)
    return to_ascii(text) if ascii_only else text


def _head(snapshot: FleetSnapshot, columns: int | None) -> Iterable[str]:
    yield f"{snapshot.source} · {units.timestamp(snapshot.taken_at)}"
    for problem in snapshot.problems:
        yield from _warning(problem, columns)
    totals = snapshot.totals
    if totals is None:
        return
    yield hosts_in_words(totals) + " · " + gpus_in_words(totals)
    memory = memory_in_words(totals.memory_used_bytes, totals.memory_total_bytes)
    power = power_in_words(totals.power_watts)
    yield f"memory {memory} · {power} · utilization {units.percent(totals.utilization_percent)}"
    for model, one in snapshot.by_model.items():
        yield f"  {one.gpus:>5} × {model}: {one.gpus_free} free, {one.gpus_idle_held} held but idle"
    yield ""


def _warning(text: str, columns: int | None) -> Iterable[str]:
    for number, line in enumerate(wrap(text, (columns or 100) - 2)):
        yield ("  " if number else "! ") + line


def memory_in_words(used: float | None, total: float | None) -> str:
    """``96.8 / 140.6 TiB``; of few GPUs ``88.1 / 140.4 GiB``."""
    if total is None or total < 10 * TIB:
        return units.used_of_total_in_words(used, total)
    return f"{UNKNOWN if used is None else f'{used / TIB:.1f}'} / {total / TIB:.1f} TiB"


def power_in_words(watts: float | None) -> str:
    """``698 kW``, ``4.7 MW``, ``650 W``."""
    if watts is None or watts < 1000:
        return units.watts(watts)
    return f"{watts / 1e6:.2f} MW" if watts >= 1e6 else f"{watts / 1e3:.1f} kW"


def hosts_in_words(totals: Totals) -> str:
    """``200 hosts, 3 unreachable``."""
    parts = [units.plural(totals.hosts, "host")]
    parts += [f"{totals.hosts_stale} stale"] if totals.hosts_stale else []
    parts += [f"{totals.hosts_unreachable} unreachable"] if totals.hosts_unreachable else []
    return ", ".join(parts)


def gpus_in_words(totals: Totals) -> str:
    """``1600 GPUs: 210 free, 1200 busy, 160 held but idle, 6 broken, 24 unreachable``."""
    parts = [f"{totals.gpus_free} free", f"{totals.gpus_busy} busy", f"{totals.gpus_idle_held} held but idle"]
    parts += [f"{totals.gpus_broken} broken"] if totals.gpus_broken else []
    parts += [f"{totals.gpus_unreachable} unreachable"] if totals.gpus_unreachable else []
    return f"{units.plural(totals.gpus, 'GPU')}: {', '.join(parts)}"


def _hosts(hosts: Sequence[FleetHost]) -> Iterable[str]:
    if not hosts:
        return
    name = _widest([host.name for host in hosts], "HOST", _NAME_MOST)
    models = _widest([_models(host.models) for host in hosts], "GPUS", _MODEL_MOST)
    titles = f"FREE  UTIL  {'MEMORY':>13}  POWER   HOT  NOTE"
    yield f"{fit('HOST', name)}  {fit('STATE', 11)}  {fit('GPUS', models)}  {titles}"
    for host in hosts:
        yield f"{fit(host.name, name)}  {fit(host.state.value, 11)}  {fit(_models(host.models), models)}  {_row(host)}"


def _row(host: FleetHost) -> str:
    free = UNKNOWN if host.state is HostState.UNREACHABLE else str(host.gpus_free)
    memory = units.used_of_total(host.memory_used_bytes, host.memory_total_bytes)
    watts = units.power(host.power_watts, None)
    hot = units.temperature(host.temperature_celsius)
    top = host.top_usage
    note = host.problem or (top.label if top is not None else "")
    return f"{free:>4}  {units.percent(host.utilization_percent):>4}  {memory:>13}  {watts:>5}  {hot:>4}  {note}"


def _models(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{count} × {short_model(model)}" for model, count in counts) or UNKNOWN


def short_model(name: str) -> str:
    """``H100 80GB HBM3`` of ``NVIDIA H100 80GB HBM3``."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ").removeprefix("Tesla ")


def _counted(names: Iterable[str]) -> Iterable[tuple[str, int]]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts.items()


def _widest(texts: Sequence[str], title: str, most: int) -> int:
    return min(most, max(width(title), *map(width, texts)))
