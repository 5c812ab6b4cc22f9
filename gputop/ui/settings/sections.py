"""What can be set, in the order of the settings screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gputop.model import Gpu
from gputop.model.chart_metrics import CHART_METRICS
from gputop.model.columns import COLUMNS
from gputop.settings import CHART_WINDOWS, GROUPS
from gputop.ui.settings.leak_options import Amount, leak_options
from gputop.ui.settings.options import (
    Choice,
    ColumnOrder,
    Level,
    MetricOption,
    Option,
    Refresh,
    ResetAll,
    Switch,
    TableColumn,
    WhichGpu,
)


class SettingsSection(NamedTuple):
    title: str
    options: list[Option]
    message: str = ""


_LEVEL_WORDS: Final = {
    "memory": "Memory used",
    "utilization": "Utilization",
    "temperature": "Temperature",
    "power": "Power",
}
_WINDOW_WORDS: Final = {60: "1 min", 300: "5 min", 600: "10 min", 1800: "30 min", 3600: "1 h"}


def sections(gpus: Sequence[Gpu], themes: Sequence[str], order: ColumnOrder) -> list[SettingsSection]:
    """Everything that can be set, in the order of the screen."""
    characters = ((None, "as the locale allows"), (False, "Unicode"), (True, "ASCII"))
    spans = [(seconds, _WINDOW_WORDS[seconds]) for seconds in CHART_WINDOWS]
    display: list[Option] = [
        Choice("theme", "Theme", [(name, name) for name in themes], "Colours, shown at once"),
        Choice("temperature_unit", "Temperature in", (("C", "°C"), ("F", "°F")), "Unit of temperatures"),
        Choice("memory_unit", "Memory in", (("GiB", "GiB, adapting"), ("MiB", "MiB, always")), "Unit of memory"),
        Switch("color", "Colours", "NO_COLOR and --no-color win"),
        Choice("ascii", "Draw with", characters, "Which characters lines, bars and curves are made of"),
        Switch("mouse", "Mouse", "Without it the terminal's own selection works; from the next start on"),
    ]
    return [
        SettingsSection("Refresh", [Refresh()]),
        SettingsSection("Display", display),
        SettingsSection("GPUs", [WhichGpu(gpu, gpus) for gpu in gpus], "" if gpus else "No GPU has been read yet."),
        SettingsSection(
            "Panels",
            [
                Switch("show_host", "Host line", "CPU, memory and load of the machine"),
                Switch("show_gpus", "GPU panels"),
                Switch("show_sparklines", "Sparklines", "The last minutes, in the GPU panels"),
                Switch("show_chart", "History chart", "Where there is room for it"),
                Switch("show_processes", "Process table"),
            ],
        ),
        SettingsSection(
            "Chart",
            [
                Choice("chart_window", "Time span", spans, "What the chart spans"),
                Choice("chart_newest_right", "Newest at the", ((True, "right"), (False, "left")), "Its direction"),
                *(MetricOption(metric) for metric in CHART_METRICS.values()),
            ],
        ),
        SettingsSection(
            "Processes",
            [
                Choice("sort", "Sort by", [(id_, column.heading) for id_, column in COLUMNS.items()], "Also F6"),
                Switch("sort_reverse", "Reversed", "Reverse the column's natural order; also I"),
                Switch("tree", "As a tree", "Children under their parents; also F5"),
                Choice("group", "Group by", [(name, name) for name in GROUPS], "With subtotals; also b"),
                Amount("exited_minutes", "Keep exited", (0, 1, 5, 15, 60), "min", "How long grey lines of them stay"),
                *(TableColumn(id_, order) for id_ in order.ids),
            ],
        ),
        SettingsSection(
            "Thresholds",
            [
                Level(f"threshold_{name}", which, f"{words}, {('warning', 'critical')[which]}")
                for name, words in _LEVEL_WORDS.items()
                for which in (0, 1)
            ],
        ),
        SettingsSection("Leaks", leak_options()),
        SettingsSection(
            "Killing",
            [
                Amount(
                    "kill_grace",
                    "Grace time",
                    (3, 5, 10, 30, 60),
                    "s",
                    "Between SIGTERM and SIGKILL, where End is chosen",
                )
            ],
        ),
        SettingsSection("File", [ResetAll()]),
    ]
