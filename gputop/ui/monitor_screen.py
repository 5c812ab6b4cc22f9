"""What every screen of the dashboard is: it shows what the monitor knows, and the bus tells it when to look again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.screen import Screen

from gputop.monitor import Monitor
from gputop.sampling.bus import Subscription
from gputop.settings_file import SettingsError
from gputop.ui.toolkit.glyphs import ASCII, UNICODE
from gputop.ui.toolkit.line_widget import LineWidget
from gputop.ui.toolkit.palette import Palette
from gputop.ui.toolkit.view import View

if TYPE_CHECKING:
    _Base = Screen[Any]
else:
    _Base = object  # Textual follows the first base that is a node of its own to a class's styles and bindings


class MonitorScreen(_Base):
    """Comes before a screen of Textual's or of the toolkit among a class's bases. While other screens hide it, it draws
    nothing, and looks once when it can be seen again."""

    #: Messages of the bus after which there is something new to look at.
    shows: ClassVar[tuple[type, ...]] = ()

    def __init__(self, monitor: Monitor) -> None:
        super().__init__()
        self.monitor = monitor
        self._view: View | None = None
        self._subscriptions: list[Subscription] = []
        self._missed = False  # something new, while it was hidden

    def look(self) -> None:
        """Take in what is new, and draw it."""
        raise NotImplementedError

    @property
    def view(self) -> View:
        """How things are to be shown now."""
        monitor, palette = self.monitor, Palette.of(self.app)
        ascii_only = LineWidget.ascii_only if monitor.settings.ascii is None else monitor.settings.ascii
        glyphs, has_track = ASCII if ascii_only else UNICODE, palette.has_track and not ascii_only
        old = self._view
        if (
            old is None
            or old.settings is not monitor.settings
            or old.alarms is not monitor.alarms
            or old.glyphs is not glyphs
            or old.has_track != has_track
        ):
            self._view = old = View(monitor.settings, glyphs, has_track, monitor.alarms)
        return old

    def keep(self, **changes: Any) -> None:
        """Change settings and save that, without a word but where they cannot be saved."""
        try:
            self.monitor.change(self.monitor.settings.changed(**changes))
        except SettingsError as error:
            self.notify(f"Used until gputop ends, but not saved: {error}", severity="warning", markup=False)

    def on_mount(self) -> None:
        self._subscriptions = [self.monitor.bus.subscribe(type_, self._told) for type_ in self.shows]

    def on_unmount(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    def on_screen_resume(self) -> None:
        if self._missed:
            self._missed = False
            self.look()

    def _told(self, message: object) -> None:
        if not self.is_attached:
            return
        if self._is_seen():
            self.look()
        else:
            self._missed = True

    def _is_seen(self) -> bool:
        """Whether every screen over it is a box through which it can be seen."""
        for screen in reversed(self.app.screen_stack):
            if screen is self:
                return True
            if screen.styles.background.a == 1:
                return False
        return False
