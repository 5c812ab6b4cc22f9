"""The dashboard on a recording: time is what the keys move."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding

from gputop import units
from gputop.model import Snapshot
from gputop.sampling.detail_history import DetailHistory
from gputop.ui.dashboard import FAR_SECONDS, Dashboard
from gputop.ui.keys import REPLAY_KEYS, Key

if TYPE_CHECKING:
    from gputop.sampling.player import Player


class ReplayDashboard(Dashboard, inherit_bindings=False):
    """Shows what *player* publishes, and moves it."""

    BINDINGS = [Binding(",".join(key.keys), key.action, key.words, show=False) for key in REPLAY_KEYS]
    keys: ClassVar[tuple[Key, ...]] = REPLAY_KEYS

    def __init__(self, player: Player) -> None:
        super().__init__()
        self.player = player
        self._time_prompt_open = False

    def on_mount(self) -> None:
        super().on_mount()
        for words in self.player.recording.remarks:
            self.notify(words, title=self.player.recording.path.name, severity="warning", timeout=12, markup=False)

    def rearrange(self) -> None:
        self.player.window = float(self.gputop.settings.chart_window)
        super().rearrange()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        if self.snapshot is not None and snapshot.taken_at < self.snapshot.taken_at:
            self.past = DetailHistory()  # its rings know one direction only
        super().show_snapshot(snapshot)

    def keep(self, snapshot: Snapshot) -> None:
        """The recording keeps it."""

    def badge(self) -> str:
        player = self.player
        glyphs = self.gputop.view.glyphs
        at = player.latest.taken_at if player.latest is not None else player.at
        when = units.timestamp(at) if self.size.width >= 100 else units.clock(at)
        speed = f"{player.speed:g}×" if player.playing else "paused"
        share = 100 * (player.position + 1) // max(1, player.recording.records)
        place = "end" if player.is_at_end else f"{share}%"
        return f"REPLAY {when} {glyphs.bullet} {speed} {glyphs.bullet} {place}"

    def jumps(self) -> int:
        return self.player.jumps

    # -- keys

    def action_pause(self) -> None:
        self.player.playing = not self.player.playing

    def action_back(self) -> None:
        self.player.step(-1)

    def action_forward(self) -> None:
        self.player.step(1)

    def action_far_back(self) -> None:
        self.player.skip(-FAR_SECONDS)

    def action_far_forward(self) -> None:
        self.player.skip(FAR_SECONDS)

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
        self.notify("A recording: there is nobody to send a signal to.", severity="warning", markup=False)
