"""The upper half of the dashboard: the GPUs and, below or beside them, the charts. Not the table's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.widget import Widget

from gputop.ui.gpus.area import GpuArea
from gputop.ui.layout import ScreenLayout

if TYPE_CHECKING:
    from gputop.ui.chart.history_chart import HistoryChart


class UpperHalf(Widget):
    """Places its two parts as the plan of the screen says."""

    DEFAULT_CSS: ClassVar[str] = "UpperHalf { width: 100%; height: auto; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.gpus = GpuArea(id="gpus")
        self.chart: HistoryChart | None = None  # comes after the first picture, when one is wanted

    def compose(self) -> ComposeResult:
        yield self.gpus

    def place(self, plan: ScreenLayout, shown: bool, when_there: Callable[[], object]) -> None:
        """Give both their cells and lines; *when_there* is called when a chart has come that was not there yet."""
        self.display = shown and plan.upper > 0
        if not self.display:
            return
        self.styles.layout = "horizontal" if plan.beside else "vertical"
        self.styles.height = plan.upper
        self.gpus.display = plan.gpus > 0
        self.gpus.cells_given = plan.gpu_cells
        self.gpus.styles.width = plan.gpu_cells if plan.beside else "100%"
        self.gpus.styles.height = self.gpus.lines_given = max(1, plan.gpus)
        if self.chart is not None:
            if self.chart.has_focus and not plan.chart:
                self.screen.focus_next()  # what is hidden hears no keys
            self.chart.display = plan.chart > 0
            self.chart.styles.width = "1fr" if plan.beside else "100%"
            self.chart.styles.height = self.chart.lines_given = max(1, plan.chart)
        elif plan.chart:
            self.call_after_refresh(self._bring_chart, when_there)

    async def _bring_chart(self, when_there: Callable[[], object]) -> None:
        """After the first picture: what the chart is made of takes a while to import."""
        if self.chart is None:
            from gputop.ui.chart.history_chart import HistoryChart

            self.chart = HistoryChart(id="chart")
            await self.mount(self.chart)
            when_there()
