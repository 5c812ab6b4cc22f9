"""A memory timeline in words and figures: what was held of each category."""

from __future__ import annotations

import csv
import io
from typing import Any

from gputop.model import clean_text
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
        f"{'category':<18}{'at the peak':>12}{'':>8}{'most':>10}{'at the end':>12}",
    ]
    for row in by_category(timeline):
        share = percent(row["at_peak_bytes"], timeline.total[peak])
        at_peak, most, end = (size(row[key]) for key in ("at_peak_bytes", "most_bytes", "at_end_bytes"))
        lines.append(f"{row['category']:<18}{at_peak:>12}{share:>8}{most:>10}{end:>12}")
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
