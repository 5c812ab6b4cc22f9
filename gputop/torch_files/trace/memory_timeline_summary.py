"""A memory timeline in words and figures: what was held of each category."""

from __future__ import annotations

import csv
import io
from typing import Any

from gputop.model import clean_text
from gputop.text import left, right
from gputop.torch_files.trace.memory_timeline import CATEGORIES, MemoryTimeline
from gputop.units.fine import milliseconds, percent, size


def by_category(timeline: MemoryTimeline) -> list[dict[str, Any]]:
    """The most at the peak first; bytes."""
    rows = [
        {
            "category": name,
            "at_peak_bytes": held[timeline.peak],
            "most_bytes": max(held),
            "at_end_bytes": held[-1],
        }
        for name, held in zip(CATEGORIES, timeline.by_category, strict=True)
    ]
    return sorted(rows, key=lambda row: -row["at_peak_bytes"])


def page(timeline: MemoryTimeline) -> str:
    peak = timeline.peak
    lines = [
        f"{clean_text(timeline.path.name, 200)}: {len(timeline):,} moments of one device's memory, by category",
        f"peak {size(timeline.total[peak])} at {milliseconds(timeline.at_ns[peak] - timeline.at_ns[0])}; "
        f"{size(timeline.total[-1])} at the end",
        "",
        left("category", 18) + right("at the peak", 12) + right("", 8) + right("most", 10) + right("at the end", 12),
    ]
    for row in by_category(timeline):
        share = percent(row["at_peak_bytes"], timeline.total[peak])
        figures = right(size(row["at_peak_bytes"]), 12) + right(share, 8) + right(size(row["most_bytes"]), 10)
        lines.append(left(row["category"], 18) + figures + right(size(row["at_end_bytes"]), 12))
    return "".join(f"{line}\n" for line in lines)


def facts(timeline: MemoryTimeline) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "file": timeline.path.name,
        "moments": len(timeline),
        "peak_bytes": timeline.total[timeline.peak],
        "peak_at_ns": timeline.at_ns[timeline.peak],
        "at_end_bytes": timeline.total[-1],
        "categories": by_category(timeline),
    }


def as_csv(timeline: MemoryTimeline) -> str:
    """A line for each category."""
    out = io.StringIO()
    rows = by_category(timeline)
    writer = csv.DictWriter(out, tuple(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
