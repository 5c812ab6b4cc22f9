"""Writes exactly the spans that changed, and only the differences of styles.

Textual's partial update crops a changed span on its right only, so it rewrites every line from the widget's left edge
(measured: 30 KB a tick where 3 KB changed). The compositor below replaces just that last step. It is the one place
that touches private parts of Textual (``Screen._compositor``, ``ChopsUpdate``, ``Style._attributes``…): the version is
pinned, tests compare the screen cell by cell with a full repaint and count the bytes, and :func:`install` falls back to
Textual's own output when a name is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import _compositor
from textual.screen import Screen
from textual.strip import Strip

from gputop.ui.cells import width

if TYPE_CHECKING:
    from rich.color import ColorSystem
    from rich.console import Console
    from rich.style import Style


#: Rich's bit of an attribute, and the codes that turn it on and off.
_SWITCHES: Final = ((1, "1", "22"), (2, "2", "22"), (8, "4", "24"), (64, "7", "27"))
_SWITCHED: Final = 1 | 2 | 8 | 64


class ExactUpdate(_compositor.ChopsUpdate):
    """A partial update that crops on both sides and says each style once."""

    _changes: ClassVar[dict[tuple[Any, Any, Any], str]] = {}  # (style before, style after, colours) -> escape sequence

    def render_segments(self, console: Console) -> str:
        """All pieces of a style together, one style after the other: a colour costs 17 bytes, a move 5 to 9."""
        system = console._color_system
        changes, restyle = self._changes, self._restyle
        out: list[str] = []
        add = out.append
        before: Style | None = None
        for style, pieces in self._by_style().items():
            key = (before, style, system)
            change = changes.get(key)
            add(restyle(*key) if change is None else change)
            before = style
            at_y = at_x = -1
            for y, x, text in pieces:
                if y != at_y:
                    add(f"\x1b[{y + 1};{x + 1}H")
                elif x != at_x:
                    add(f"\x1b[{x - at_x}C")
                add(text)
                at_y, at_x = y, x + width(text)
        if before is not None:
            add("\x1b[0m")
        return "".join(out)

    def _by_style(self) -> dict[Style | None, list[tuple[int, int, str]]]:
        """The text of all changed spans: (y, x, text) by style."""
        found: dict[Style | None, list[tuple[int, int, str]]] = {}
        chops, chop_ends = self.chops, self.chop_ends
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(chop_ends[y], chops[y].items(), strict=False):
                if strip is None or x >= x2 or end <= x1:
                    continue
                left, right = max(x, x1), min(end, x2)
                if left != x or right != end:
                    strip = strip.crop(left - x, right - x)
                for text, style, control in strip._segments:
                    if text and not control:
                        pieces = found.get(style)
                        if pieces is None:
                            pieces = found[style] = []
                        pieces.append((y, left, text))
                        left += width(text)
        return found

    @classmethod
    def _restyle(cls, before: Style | None, after: Style | None, system: ColorSystem | None) -> str:
        """The escape sequence from one style to another: the difference where that is enough, else all of it."""
        sequence = ""
        if system is not None:
            full = Strip.render_ansi(after, system) if after else ""
            sequence = f"\x1b[0;{full}m" if full else "\x1b[0m"
            if before is not None and after is not None and cls._can_change(before, after):
                codes = cls._attribute_codes(before, after)
                if after._color is not None and before._color != after._color:
                    codes += after._color.downgrade(system).get_ansi_codes()
                if after._bgcolor is not None and before._bgcolor != after._bgcolor:
                    codes += after._bgcolor.downgrade(system).get_ansi_codes(False)
                sequence = f"\x1b[{';'.join(codes)}m" if codes else ""
        if len(cls._changes) > 4096:
            cls._changes.clear()
        cls._changes[before, after, system] = sequence
        return sequence

    @staticmethod
    def _can_change(before: Style, after: Style) -> bool:
        """Whether the difference can be told without a reset: no colour goes back to the terminal's own, and no
        attribute but the four of :data:`_SWITCHES` changes."""
        changed = (before._attributes & before._set_attributes) ^ (after._attributes & after._set_attributes)
        return (
            changed & ~_SWITCHED == 0
            and (after._color is not None or before._color is None)
            and (after._bgcolor is not None or before._bgcolor is None)
        )

    @staticmethod
    def _attribute_codes(before: Style, after: Style) -> list[str]:
        old, new = before._attributes & before._set_attributes, after._attributes & after._set_attributes
        off = {code for bit, _, code in _SWITCHES if old & bit and not new & bit}
        codes = sorted(off)
        # 22 ends both bold and dim, so the one that stays must be said again
        return codes + [on for bit, on, code in _SWITCHES if new & bit and (not old & bit or code in off)]


class ExactCompositor(_compositor.Compositor):
    """Textual's compositor with :class:`ExactUpdate` in place of its partial update."""

    def render_partial_update(self) -> Any:
        update = super().render_partial_update()
        return update and ExactUpdate(update.chops, update.spans, update.chop_ends)


def available() -> bool:
    """Whether this Textual has the private names needed here."""
    update = getattr(_compositor, "ChopsUpdate", None)
    return (
        update is not None
        and hasattr(update, "render_segments")
        and hasattr(_compositor.Compositor, "render_partial_update")
        and hasattr(Strip, "render_ansi")
    )


def install(screen: Screen[Any]) -> None:
    """Give *screen* the exact compositor; call in its ``__init__``, after super's. Else it keeps its own."""
    if available() and type(getattr(screen, "_compositor", None)) is _compositor.Compositor:
        screen._compositor = ExactCompositor()
        if hasattr(screen, "_compositor_refresh") and hasattr(screen, "_dirty_widgets"):
            _pass_on_changes(screen, screen._compositor_refresh)


def _pass_on_changes(screen: Screen[Any], usual: Callable[[], None]) -> None:
    """Under a dialog, hand what changed on *screen* to the dialog's screen, and be done.

    Textual also marks it as changed once more for itself. A screen that was redrawn as a whole once, as all are when
    the dialog opens, then stays wholly changed: 10 to 80 KB a tick as long as the dialog is open.
    """

    def refresh() -> None:
        app = screen.app
        if screen is app.screen or app.is_inline or screen not in app._background_screens:
            usual()
            return
        regions = screen._compositor._dirty_regions
        if regions:
            app.screen.refresh(*regions)
            regions.clear()
            screen._dirty_widgets.clear()

    screen._compositor_refresh = refresh  # type: ignore[method-assign]
