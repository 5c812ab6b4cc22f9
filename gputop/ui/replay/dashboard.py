"""The dashboard on a recording: time is what the keys move."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding

from gputop.monitor import Monitor
from gputop.sampling.player import Player
from gputop.ui.dashboard import Dashboard
from gputop.ui.keys import REPLAY_KEYS, Key


class ReplayDashboard(Dashboard, inherit_bindings=False):
    """Shows what *player* publishes; it can be hurried and sent to any time."""

    BINDINGS = [Binding(",".join(key.keys), key.action, key.words, show=False) for key in REPLAY_KEYS]
    keys: ClassVar[tuple[Key, ...]] = REPLAY_KEYS

    def __init__(self, monitor: Monitor, player: Player) -> None:
        super().__init__(monitor)
        self.player = player
        self._time_prompt_open = False

    def on_mount(self) -> None:
        for words in self.player.recording.remarks:
            self.notify(words, title=self.player.recording.path.name, severity="warning", timeout=12, markup=False)

    def rearrange(self) -> None:
        self.player.window = float(self.monitor.settings.chart_window)
        super().rearrange()

    # -- keys

    def action_slower(self) -> None:
        self.player.faster(-1)

    def action_faster(self) -> None:
        self.player.faster(1)

    async def action_go_to(self) -> None:
        from gputop.ui.replay.time_prompt import TimePrompt

        if not self._time_prompt_open:
            self._time_prompt_open = True
            prompt = TimePrompt(self._go, self._prompt_done)
            await self.mount(prompt)
            self.set_focus(prompt.input)

    def _go(self, text: str) -> str | None:
        try:
            at = self.player.recording.when(text, self.player.at)
        except ValueError as error:
            return str(error)
        self.player.seek(at)
        return None

    def _prompt_done(self) -> None:
        self._time_prompt_open = False
        self.set_focus(self.table)

    def action_kill(self) -> None:
        self.notify("This is a recording: there are no processes to signal.", severity="warning", markup=False)
