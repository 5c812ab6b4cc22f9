"""Histories by range queries: of the whole fleet, a host, or each of its GPUs.

An hour of ten thousand GPUs costs the engine seconds; where the recording rules of grafana/ are loaded,
it is read from their series at no cost.
"""

from __future__ import annotations

from typing import Final

from gputop.fleet.model import History, HistoryRequest, Quantity
from gputop.fleet.prometheus.client import EngineClient, EngineError
from gputop.fleet.prometheus.exporters import Figure
from gputop.fleet.prometheus.recorded import FLEET_SERIES
from gputop.fleet.prometheus.vectors import Vectors

POINTS_OF_A_FLEET_MOST: Final = 60
_POINTS_MOST: Final = 1000  # an engine answers 11 000
_STEP_LEAST: Final = 5.0

_FIGURES: Final = {
    Quantity.UTILIZATION: ("avg", Figure.UTILIZATION),
    Quantity.MEMORY: ("sum", Figure.MEMORY_USED),
    Quantity.POWER: ("sum", Figure.POWER),
    Quantity.TEMPERATURE: ("max", Figure.TEMPERATURE),
}


def history_of(client: EngineClient, vectors: Vectors, request: HistoryRequest) -> History:
    """Never raises for what the engine does: the problem is in the answer."""
    points = max(2, min(request.points, _POINTS_MOST))
    recorded = None
    try:
        if request.host is None:
            name = FLEET_SERIES[request.quantity]
            recorded = name if client.query(f"count({name})").samples else None
            points = points if recorded else min(points, POINTS_OF_A_FLEET_MOST)
        step = max(_STEP_LEAST, round((request.end - request.start) / (points - 1)))
        expression = recorded or _expression(vectors, request)
        answer = client.query_range(expression, request.start, request.end, step)
    except EngineError as error:
        return History(request, problem=str(error))
    count = int((request.end - request.start) // step) + 1
    times = tuple(request.start + k * step for k in range(count))
    series: dict[str, tuple[float | None, ...]] = {}
    for labels, values in answer.series:
        row: list[float | None] = [None] * count
        for at, value in values:
            place = round((at - request.start) / step)
            if 0 <= place < count:
                row[place] = value
        series[labels.get("uuid", "") if request.by_gpu else ""] = tuple(row)
    problem = None if series else "the engine has nothing of that time"
    return History(request, times, series, "; ".join(answer.warnings) or problem)


def _expression(vectors: Vectors, request: HistoryRequest) -> str:
    matched = vectors if request.host is None else vectors.of_host(request.host)
    matched = matched.general() if request.by_gpu else matched
    if request.quantity is Quantity.FREE:
        return f"count({matched.free()}) or vector(0)"
    how, figure = _FIGURES[request.quantity]
    by = "max by (uuid)" if request.by_gpu else how
    return f"{by} ({matched.figure(figure)})"
