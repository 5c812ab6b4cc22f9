"""What a snapshot's pickle holds at its top, in whichever form: segments, traces, settings, annotations, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from gputop.model import clean_text
from gputop.torch_files.safe_pickle import UnreadableFile

HOST: Final = -1  # the device number of pinned host memory (host_segments, 2.14)
_MOST: Final = 2**63 - 1


def top_level(data: Any) -> tuple[str, list[Any], dict[int, list[Any]], dict[str, Any]]:
    """The form in words, all segments, the trace of each device, and what goes to the header as it is."""
    if isinstance(data, list):
        _check_segments(data, "a list")
        return "list of segments (torch before 2.0, or memory_snapshot())", data, {}, {}
    if not isinstance(data, dict):
        raise UnreadableFile(f"it is a pickle of {_a(data)}, not of a memory snapshot")
    if "segments" not in data and "device_traces" not in data:
        keys = ", ".join(clean_text(str(key), 30) for key in list(data)[:5] if isinstance(key, str))
        raise UnreadableFile(f"it is a pickle of a dict with {keys or 'other keys'}: not of a memory snapshot")
    segments = data.get("segments") or []
    _check_segments(segments, "segments")
    host = data.get("host_segments") or []
    _check_segments(host, "host_segments")
    segments = [*segments, *[{**segment, "device": HOST} for segment in host]]
    given = data.get("device_traces") or []
    if not isinstance(given, list | tuple) or not all(isinstance(trace, list | tuple) for trace in given):
        raise UnreadableFile("its device_traces are not lists: not a memory snapshot")
    _check_each_once([trace for trace in given if trace], "a trace")
    traces: dict[int, Any] = dict(enumerate(given))
    host_trace = data.get("host_traces") or []
    if isinstance(host_trace, list | tuple):
        _check_each_once([part for part in host_trace if isinstance(part, list)], "a trace")
        flat = [entry for part in host_trace for entry in (part if isinstance(part, list) else [part])]
        if flat:
            traces[HOST] = flat
    settings = data.get("allocator_settings")
    extra = {
        "settings": _settings(settings) if isinstance(settings, dict) else {},
        "annotations": _annotations(data.get("external_annotations")),
    }
    return "dict of segments and traces (torch 2.0 or later)", segments, traces, extra


def _check_segments(segments: Any, what: str) -> None:
    if not isinstance(segments, list | tuple):
        raise UnreadableFile(f"its {what} is {_a(segments)}: not a memory snapshot")
    for segment in segments:
        if not isinstance(segment, dict) or not isinstance(segment.get("blocks"), list | tuple):
            raise UnreadableFile(f"{what} holds something else than segments with blocks: not a memory snapshot")
    _check_each_once([segment["blocks"] for segment in segments if segment["blocks"]], "a segment")


def _check_each_once(lists: Sequence[Any], what: str) -> None:
    """A pickle may refer to one list a million times with two bytes each: what torch writes does not."""
    if len(set(map(id, lists))) != len(lists):
        raise UnreadableFile(f"refused: {what} is in it more than once, which no snapshot needs and a bomb does")


def _a(value: Any) -> str:
    name = type(value).__name__
    return {"NoneType": "None"}.get(name, f"{'an' if name[0] in 'aeiou' else 'a'} {name}")


def _settings(settings: dict[Any, Any]) -> dict[str, Any]:
    """What of the allocator's settings is plain; nested dicts once."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            value = _settings({k: v for k, v in value.items() if not isinstance(v, dict)})
        elif isinstance(value, str):
            value = clean_text(value, 500)
        elif isinstance(value, list | tuple):
            value = [item for item in value if isinstance(item, bool | int | float)][:64]
        elif value is not None and not isinstance(value, bool | int | float):
            continue
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)
        found[clean_text(str(key), 80)] = value
    return found


def _annotations(given: Any) -> list[list[Any]]:
    """[device, time in µs, name, stage] of record_function's ranges (2.5)."""
    found: list[list[Any]] = []
    for entry in given if isinstance(given, list | tuple) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("time_us"), int):
            stage, device = entry.get("stage"), entry.get("device")
            found.append(
                [
                    device if isinstance(device, int) else 0,
                    min(entry["time_us"], _MOST),
                    clean_text(entry["name"], 200),
                    clean_text(stage, 20) if isinstance(stage, str) else "",
                ]
            )
    return found


def device_of(segment: dict[str, Any]) -> int:
    device = segment.get("device", 0)
    if not isinstance(device, int) or not HOST <= device < 4096:
        raise ValueError("a segment's device is not a number")
    return device
