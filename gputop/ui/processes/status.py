"""What is said around the rows of the process table: how many there are, what hides them, why there are none."""

from __future__ import annotations

from collections.abc import Sequence

from gputop import units
from gputop.model import Snapshot, sum_or_none
from gputop.model.columns import Column
from gputop.settings import DEFAULTS
from gputop.ui.processes.listing.filter import ProcessFilter
from gputop.ui.processes.listing.row import ProcessRow
from gputop.ui.processes.listing.rows import TableRows
from gputop.ui.processes.mark import Mark
from gputop.ui.processes.tags import Tags
from gputop.ui.toolkit.cells import Span
from gputop.ui.toolkit.view import View


def summary(
    listing: TableRows,
    filter_: ProcessFilter,
    tags: Tags,
    cursor: ProcessRow | None,
    left_out: Sequence[Column],
    view: View,
    unlisted: Sequence[int] = (),
) -> list[Span]:
    """What is in the table; *left_out*: columns there is no room for; *unlisted*: GPUs whose processes are not known.

    ``12 of 64 processes · filter: user:ml · 3 tagged (21.4G) · GPU 0: 5 processes, 88.1G``."""
    parts: list[Span] = []
    shown = f"{len(listing.shown)} of " if filter_ else ""
    parts.append((shown + units.plural(listing.total, "process"), "dim"))
    if unlisted:
        parts.append((f"unknown for GPU {', '.join(map(str, unlisted))}", "warning"))
    if label := filter_.label:
        parts.append((f"filter: {label}", "accent"))
    parts += [(problem, "warning") for problem in filter_.problems]
    if tagged := set(tags.listed(listing)):
        bytes_ = sum_or_none(process.memory_bytes for process in listing.processes if process.pid in tagged)
        hidden = len(tagged - listing.shown.keys())
        not_shown = f", {hidden} hidden" if hidden else ""
        parts.append((f"{len(tagged)} tagged ({view.memory(bytes_)}{not_shown})", "accent"))
    if cursor is not None and not cursor.parts and not cursor.gone:
        count, bytes_ = listing.on_gpu(cursor.process.gpu_uuid)
        parts.append(
            (f"GPU {cursor.process.gpu_index}: {units.plural(count, 'process')}, {view.memory(bytes_)}", "dim")
        )
    if left_out and view.settings.columns != DEFAULTS.columns:  # what nobody asked for is not missed
        parts.append(("no room for " + " ".join(column.heading for column in left_out), "dim"))
    spans: list[Span] = []
    for part in parts:
        if spans:
            spans.append((f" {view.glyphs.bullet} ", "faint"))
        spans.append(part)
    return spans


def changes_since_mark(mark: Mark, snapshot: Snapshot, view: View) -> list[Span]:
    """``Δ since 14:02:31 · GPU 0 +3.2G · ``."""
    parts = [mark.label]
    for index, bytes_ in mark.gpu_changes(snapshot):
        parts.append(f"GPU {index} {'+' if bytes_ > 0 else '-'}{view.memory(abs(bytes_))}")
    bullet = f" {view.glyphs.bullet} "
    return [(bullet.join(parts), "accent"), (bullet, "faint")]


def rows_out_of_view(above: int, below: int, view: View) -> list[Span]:
    """``↑ 12  ↓ 37 more``: rows out of sight."""
    counts = [f"{sign} {count}" for sign, count in ((view.glyphs.up, above), (view.glyphs.down, below)) if count]
    return [("  ".join(counts) + " more ", "dim")] if counts else []


def empty_reason(listing: TableRows, snapshot: Snapshot) -> tuple[str, str]:
    """Why there is no row, and the role to say it in."""
    if listing.total:
        return "no process matches the filter: Esc clears it", "dim"
    broken = [gpu for gpu in snapshot.gpus if not gpu.processes_known]
    if snapshot.problems:
        return f"▲ processes unknown: {snapshot.problems[0]}", "warning"
    if broken and len(broken) == len(snapshot.gpus):
        why = broken[0].error or broken[0].processes_error or "the driver does not answer"
        return f"▲ processes unknown: {why}", "warning"
    if broken:
        return f"no processes; unknown for GPU {', '.join(str(gpu.index) for gpu in broken)}", "dim"
    return ("no process uses a GPU" if snapshot.gpus else "no GPUs"), "dim"
