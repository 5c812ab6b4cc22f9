"""Results as Markdown: the targets of the project and whether they were seen, then the tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

OURS, OURS_CHART = "gputop", "gputop, chart shown"
Run = dict[str, Any]


@dataclass
class Results:
    """What one `bench.py` found. Programs are named as in its tables."""

    header: list[str] = field(default_factory=list)  # machine, versions, what was asked for
    missing: dict[str, str] = field(default_factory=dict)  # a peer that could not be had: why
    steady: dict[str, dict[str, dict[str, list[Run]]]] = field(default_factory=dict)  # mode, config, program: runs
    keys: dict[str, dict[str, Run]] = field(default_factory=dict)  # program, "usual" or "one GPU slow"
    quits: dict[str, float | None] = field(default_factory=dict)  # program: seconds, None: not within the limit
    once: dict[str, Run] = field(default_factory=dict)
    polls: Run = field(default_factory=dict)
    left_open: Run = field(default_factory=dict)

    def value(self, mode: str, config: str, program: str, *path: str) -> float | None:
        """The median over the runs of one figure; None where there is none."""
        found = [_at(run, path) for run in self.steady.get(mode, {}).get(config, {}).get(program, [])]
        numbers = [x for x in found if x is not None]
        return statistics.median(numbers) if numbers else None


def _at(run: Any, path: Iterable[str]) -> float | None:
    for name in path:
        run = run.get(name) if isinstance(run, dict) else None
    return run if isinstance(run, int | float) else None


# ------------------------------------------------------------------------------- targets


@dataclass
class Target:
    words: str
    limit: float | None
    measured: float | None
    unit: str = ""
    note: str = ""

    def row(self) -> str:
        if self.measured is None or self.limit is None:
            verdict, shown = "not run", "–"
        else:
            over = self.measured / self.limit - 1 if self.limit else float(self.measured > 0)
            verdict = "seen" if self.measured <= self.limit else f"**missed by {over * 100:.0f} %**"
            shown = f"{self.measured:.{_digits(self.limit)}f} {self.unit}".strip()
        limit = "–" if self.limit is None else f"≤ {self.limit:.{_digits(self.limit)}f} {self.unit}".strip()
        return f"| {self.words} | {limit} | {shown}{self.note} | {verdict} |"


def _digits(limit: float) -> int:
    return 0 if limit >= 20 else 2


def targets(r: Results) -> list[Target]:
    def of(config: str, *path: str, program: str = OURS, mode: str = "plain") -> float | None:
        return r.value(mode, config, program, *path)

    def part(value: float | None, whole: float) -> float | None:
        return None if value is None else value / whole

    def plus(value: float | None, more: float) -> float | None:
        return None if value is None else value + more

    rows = [
        Target("CPU at 8 × 8: a third of nvitop's", part(of("8x8", "cpu_percent", program="nvitop"), 3),
               of("8x8", "cpu_percent"), "%"),
        Target("CPU at 8 × 64: a fifth of nvitop's", part(of("8x64", "cpu_percent", program="nvitop"), 5),
               of("8x64", "cpu_percent"), "%"),
        Target("CPU with a chart shown, 8 × 8: 3 points more", plus(of("8x8", "cpu_percent"), 3),
               of("8x8", "cpu_percent", program=OURS_CHART), "%"),
    ]  # fmt: skip
    for config in ("8x8", "8x64"):
        shown = config.replace("x", " × ")
        rows += [
            Target(f"gap between updates, p95, {shown}", 520, of(config, "gap_ms", "p95"), "ms"),
            Target(f"age of the values on the screen, p50, {shown}", 20, of(config, "age_ms", "p50"), "ms"),
            Target(f"age of the values on the screen, p95, {shown}", 50, of(config, "age_ms", "p95"), "ms"),
            Target(f"bytes for each refresh, {shown}", 4096, of(config, "bytes_per_update"), "B"),
            Target(f"bytes until the first full paint, {shown}", 60_000, of(config, "first_values_bytes"), "B"),
            Target(f"first paint with values, {shown}", 0.4, of(config, "first_values_s"), "s"),
            Target(f"resident memory (PSS), {shown}", 45_000_000 / 1024**2, of(config, "pss_mib"), "MiB"),
        ]
    python, ours = r.once.get("python -c pass"), r.once.get("gputop --once")
    over = (ours["wall_ms"] - python["wall_ms"]) / 1000 if python and ours and ours["ok"] else None
    rows.append(Target("`gputop --once` over bare Python, 8 × 8", 0.25, over, "s"))
    usual, slow = (r.keys.get(OURS, {}).get(name) for name in ("usual", "one GPU slow"))
    missed = f", {slow['keys_without_effect']} without effect" if slow and slow.get("keys_without_effect") else ""
    rows += [
        Target("a key's effect, p95, 8 × 8", 50, _at(usual, ("key_ms", "p95")), "ms"),
        Target("a key's effect, p95, while one GPU answers in 3 s", 50, _at(slow, ("key_ms", "p95")), "ms", missed),
        Target("gap of the seven others meanwhile, p95", 520, _at(slow, ("gap_but_slowest_ms", "p95")), "ms"),
        Target("quit while a driver call hangs", 0.5, r.quits.get(OURS), "s"),
    ]
    polls = r.polls if r.polls.get("ok") else {}
    count = f"{polls['polls']:,} polls".replace(",", " ") if polls else "10 000 polls"
    for name, words in (("descriptors", "file descriptors"), ("threads", "threads")):
        grown = polls[name][1] - polls[name][0] if polls else None
        rows.append(Target(f"{count}: more {words}", 0, grown))
    rows.append(Target(f"{count}: memory growth", 2000, polls.get("growth_kib"), "KiB"))
    one, many = of("1x2", "cpu_percent"), of("16x63", "cpu_percent")
    rows.append(Target("CPU from 1 × 2 to 16 × 63: times", 16, many / one if one and many else None))
    for config in sorted(r.steady.get("h200", {}), key=_size):
        if int(config.split("x")[0]) >= 2:
            nvtop = of(config, "cpu_percent", program="nvtop", mode="h200")
            rows.append(Target(f"CPU with a real driver's call costs, {config.replace('x', ' × ')}: below nvtop's",
                               nvtop, of(config, "cpu_percent", mode="h200"), "%"))  # fmt: skip
    return rows


def _size(config: str) -> tuple[int, int]:
    gpus, procs = config.split("x")
    return int(gpus), int(procs)


# -------------------------------------------------------------------------------- tables

Cell = Callable[[Results, str, str, str], str]


def _figure(*path: str, digits: int = 0) -> Cell:
    def cell(r: Results, mode: str, config: str, program: str) -> str:
        value = r.value(mode, config, program, *path)
        return "–" if value is None else f"{value:.{digits}f}"

    return cell


def _pair(name: str) -> Cell:
    def cell(r: Results, mode: str, config: str, program: str) -> str:
        both = [r.value(mode, config, program, name, quantile) for quantile in ("p50", "p95")]
        return "–" if None in both else " / ".join(f"{value:.0f}" for value in both)

    return cell


def _ratio(peer: str, *path: str) -> Cell:
    def cell(r: Results, mode: str, config: str, program: str) -> str:
        value, other = r.value(mode, config, program, *path), r.value(mode, config, peer, *path)
        return "–" if value is None or not other else f"{value / other:.2f}"

    return cell


def _per_update(r: Results, mode: str, config: str, program: str) -> str:
    cpu, updates = (r.value(mode, config, program, name) for name in ("cpu_percent", "updates_per_s"))
    return "–" if cpu is None or not updates else f"{cpu * 10 / updates:.1f}"


COLUMNS: list[tuple[str, Cell]] = [
    ("CPU %", _figure("cpu_percent", digits=2)),
    ("× nvitop", _ratio("nvitop", "cpu_percent")),
    ("× nvtop", _ratio("nvtop", "cpu_percent")),
    ("CPU ms / update", _per_update),
    ("updates/s", _figure("updates_per_s", digits=2)),
    ("gap p50 / p95 ms", _pair("gap_ms")),
    ("age p50 / p95 ms", _pair("age_ms")),
    ("B / update", _figure("bytes_per_update")),
    ("first paint B", _figure("first_values_bytes")),
    ("first values s", _figure("first_values_s", digits=2)),
    ("PSS MiB", _figure("pss_mib", digits=1)),
    ("threads", _figure("threads")),
    ("pids seen", _figure("pids_seen")),
    ("NVML calls/s", _figure("nvml_calls_per_s")),
    ("in NVML s/s", _figure("nvml_inside", digits=3)),
]


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def steady_table(r: Results, mode: str, config: str) -> str:
    programs = r.steady[mode][config]
    rows = []
    for program, runs in programs.items():
        errors = {run["error"] for run in runs if run.get("error")}
        name = program + (f" ({'; '.join(sorted(errors))})" if errors else "")
        rows.append([name, *(cell(r, mode, config, program) for _, cell in COLUMNS)])
    return _table(["monitor", *(name for name, _ in COLUMNS)], rows)


def noise(r: Results) -> str:
    """How far runs of one program lie apart, and what else the machine did."""
    spreads, others = [], []
    for configs in r.steady.values():
        for programs in configs.values():
            for runs in programs.values():
                figures = [run["cpu_percent"] for run in runs if run.get("cpu_percent")]
                others += [run["other_percent"] for run in runs if "other_percent" in run]
                if len(figures) > 1:
                    spreads.append((max(figures) - min(figures)) / statistics.median(figures) * 100)
    words = []
    if spreads:
        words.append(f"CPU of one program's runs, largest minus smallest over the median: "
                     f"{statistics.median(spreads):.0f} % typical, {max(spreads):.0f} % worst.")  # fmt: skip
    if others:
        words.append(f"The rest of the machine used {statistics.median(others):.0f} % of one CPU (median), "
                     f"{max(others):.0f} % at worst.")  # fmt: skip
    return " ".join(words)


def _quantiles(run: Run | None, name: str) -> str:
    values = run.get(name) if run else None
    return f"{values['p50']:.0f} / {values['p95']:.0f}" if values else "–"


def report(r: Results) -> str:
    """The generated section of BENCHMARKS.md."""
    parts = ["\n".join(r.header)]
    parts += [f"{peer} could not be had: {why}" for peer, why in r.missing.items()]
    parts.append("### Targets\n\n| what | target | measured | |\n|---|---|---|---|\n"
                 + "\n".join(target.row() for target in targets(r)))  # fmt: skip
    titles = {"plain": "", "h200": ", with a real H200's call costs (h200-costs.faults)"}
    for mode, configs in r.steady.items():
        for config in configs:
            gpus, procs = _size(config)
            parts.append(f"### {gpus} GPU{'s' * (gpus > 1)} × {procs} processes{titles.get(mode, mode)}\n\n"
                         + steady_table(r, mode, config))  # fmt: skip
    if r.steady:
        parts.append(noise(r))
    if r.keys:
        rows = [[program, _quantiles(by.get("usual"), "key_ms"), _quantiles(by.get("one GPU slow"), "key_ms"),
                 str(by.get("one GPU slow", {}).get("keys_without_effect", "–")),
                 _quantiles(by.get("one GPU slow"), "gap_but_slowest_ms")]
                for program, by in r.keys.items()]  # fmt: skip
        parts.append("### A key's effect, 8 × 8\n\nDown and Up, until another row is highlighted; p50 / p95 ms.\n\n"
                     + _table(["monitor", "usual", "one GPU answers in 3 s", "no effect within 3 s",
                               "gap of the others"], rows))  # fmt: skip
    if r.quits:
        rows = [[program, "not within 5 s" if s is None else f"{s:.2f} s"] for program, s in r.quits.items()]
        parts.append("### Quit while a driver call hangs\n\n" + _table(["monitor", "from q to the end"], rows))
    if r.once:
        rows = [[name + ("" if run["ok"] else " (FAILED)"), f"{run['wall_ms']:.0f}", f"{run['cpu_ms']:.0f}",
                 f"{run['worst_ms']:.0f}"] for name, run in r.once.items()]  # fmt: skip
        parts.append("### From start to end, 8 × 8\n\n" + _table(["command", "wall ms", "CPU ms", "worst ms"], rows))
    for title, run in (("Polls in one process", r.polls), ("A dashboard left open", r.left_open)):
        if run.get("ok"):
            what = f"{run['polls']} polls in {run['seconds']} s" if "polls" in run else f"{run['seconds']} s"
            parts.append(f"### {title}\n\n{what}: file descriptors {run['descriptors'][0]} → {run['descriptors'][1]}, "
                         f"threads {run['threads'][0]} → {run['threads'][1]}, "
                         f"memory {run['growth_kib']:+d} KiB.")  # fmt: skip
        elif run:
            parts.append(f"### {title}\n\nFailed: {run.get('error', 'it ended')}.")
    return "\n\n".join(part for part in parts if part) + "\n"
