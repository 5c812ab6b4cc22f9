"""Writes exactly the spans that changed, and only the differences of styles.

Textual's partial update crops a changed span on its right only, so it rewrites every line from the widget's left edge
(measured: 30 KB a tick where 3 KB changed). The compositor below replaces just that last step. It is the one place
that touches private parts of Textual (``Screen._compositor``, ``ChopsUpdate``, ``Style._attributes``…): the version is
pinned, tests compare the screen cell by cell with a full repaint and count the bytes, and :func:`install` falls back to
Textual's own output when a name is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from textual import _compositor
from textual.screen import Screen
from textual.strip import Strip

from gputop.text import width

if TYPE_CHECKING:
    from rich.color import ColorSystem
    from rich.console import Console
    from rich.style import Style


#: Rich's bit of an attribute, and the codes that turn it on and off.
_SWITCHES: Final = ((1, "1", "22"), (2, "2", "22"), (8, "4", "24"), (64, "7", "27"))
_SWITCHED: Final = 1 | 2 | 8 | 64


_changes: dict[tuple[Style | None, Style | None, ColorSystem | None], str] = {}


def change_of_style(before: Style | None, after: Style | None, system: ColorSystem | None) -> str:
    """The escape sequence from one style to another, kept: the difference where that is enough, else all of it."""
    key = (before, after, system)
    sequence = _changes.get(key)
    if sequence is None:
        if len(_changes) > 4096:
            _changes.clear()
        sequence = _changes[key] = "" if system is None else _sequence(before, after, system)
    return sequence


def _sequence(before: Style | None, after: Style | None, system: ColorSystem) -> str:
    if before is not None and after is not None and _can_change(before, after):
        codes = _attribute_codes(before, after)
        if after._color is not None and before._color != after._color:
            codes += after._color.downgrade(system).get_ansi_codes()
        if after._bgcolor is not None and before._bgcolor != after._bgcolor:
            codes += after._bgcolor.downgrade(system).get_ansi_codes(False)
        return f"\x1b[{';'.join(codes)}m" if codes else ""
    full = Strip.render_ansi(after, system) if after else ""
    return f"\x1b[0;{full}m" if full else "\x1b[0m"


def _can_change(before: Style, after: Style) -> bool:
    """Whether the difference can be told without a reset: no colour goes back to the terminal's own, and no attribute
    but the four of :data:`_SWITCHES` changes."""
    changed = (before._attributes & before._set_attributes) ^ (after._attributes & after._set_attributes)
    return (
        changed & ~_SWITCHED == 0
        and (after._color is not None or before._color is None)
        and (after._bgcolor is not None or before._bgcolor is None)
    )


def _attribute_codes(before: Style, after: Style) -> list[str]:
    old, new = before._attributes & before._set_attributes, after._attributes & after._set_attributes
    off = {code for bit, _, code in _SWITCHES if old & bit and not new & bit}
    # 22 ends both bold and dim, so the one that stays must be said again
    return sorted(off) + [on for bit, on, code in _SWITCHES if new & bit and (not old & bit or code in off)]


class ExactPaint(_compositor.LayoutUpdate):
    """A full paint that says the differences of styles only: half the bytes."""

    def render_segments(self, console: Console) -> str:
        system = console._color_system
        out: list[str] = []
        add = out.append
        before: Style | None = None
        for y, line in enumerate(self.strips, self.region.y):
            add(f"\x1b[{y + 1};{self.region.x + 1}H")
            for strip in line:
                for text, style, control in strip._segments:
                    if text and not control:
                        if style is not before:
                            add(change_of_style(before, style, system))
                            before = style
                        add(text)
        add("\x1b[0m")
        return "".join(out)


class ExactUpdate(_compositor.ChopsUpdate):
    """A partial update that crops on both sides and says each style once."""

    def render_segments(self, console: Console) -> str:
        """All pieces of a style together, one style after the other: a colour costs 17 bytes, a move 5 to 9."""
        system = console._color_system
        out: list[str] = []
        add = out.append
        before: Style | None = None
        for style, pieces in self._by_style().items():
            add(change_of_style(before, style, system))
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


class ExactCompositor(_compositor.Compositor):
    """Textual's compositor with updates of our own."""

    def render_full_update(self, simplify: bool = False) -> Any:
        update = super().render_full_update(simplify)
        return update if simplify else ExactPaint(update.strips, update.region)

    def render_partial_update(self) -> Any:
        update = super().render_partial_update()
        return update and ExactUpdate(update.chops, update.spans, update.chop_ends)


def available() -> bool:
    """Whether this Textual has the private names needed here."""
    return (
        hasattr(_compositor, "ChopsUpdate")
        and hasattr(_compositor, "LayoutUpdate")
        and hasattr(_compositor.ChopsUpdate, "render_segments")
        and hasattr(_compositor.Compositor, "render_full_update")
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
    """Under a dialog, paint what changed on *screen* as part of the dialog's screen, and be done; under a screen that
    covers all, paint nothing.

    Textual asks the upper screen to refresh those parts. That makes it forget which of its own widgets had changed; and
    it marks *screen* as changed once more, so that one that was redrawn as a whole once, as all are when a dialog
    opens, stays wholly changed: 10 to 80 KB a tick as long as the dialog is open.
    """

    def refresh() -> None:
        app = screen.app
        top = app.screen
        if screen is top or app.is_inline or screen not in app._background_screens:
            usual()
            return
        regions = screen._compositor._dirty_regions
        if regions and top.styles.background.a < 1:
            if app._batch_count or top._layout_required or top._compositor.size != app.size:
                top.refresh()  # it is about to be painted whole
            else:
                top._compositor.update_widgets(top._dirty_widgets)
                top._compositor._dirty_regions.update(regions)
                top._compositor_refresh()
        regions.clear()
        screen._dirty_widgets.clear()

    screen._compositor_refresh = refresh  # type: ignore[method-assign]
