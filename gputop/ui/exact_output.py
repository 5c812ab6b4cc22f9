"""Writes exactly the spans that changed, and only the differences of styles.

Textual's partial update crops a changed span on its right only, so it rewrites every line from the widget's left edge
(measured: 30 KB a tick where 3 KB changed). The compositor below replaces just that last step. It is the one place
that touches private parts of Textual (``Screen._compositor``, ``ChopsUpdate``, ``Style._attributes``…): the version is
pinned, tests compare the screen cell by cell with a full repaint and count the bytes, and :func:`install` falls back to
Textual's own output when a name is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual import _compositor
from textual.screen import Screen
from textual.strip import Strip

if TYPE_CHECKING:
    from rich.color import ColorSystem
    from rich.console import Console
    from rich.style import Style


class ExactUpdate(_compositor.ChopsUpdate):
    """A partial update that crops on both sides and moves the cursor as little as possible."""

    _changes: ClassVar[dict[tuple[Any, Any, Any], str]] = {}  # (style before, style after, colours) -> escape sequence

    def render_segments(self, console: Console) -> str:
        out: list[str] = []
        add = out.append
        chops, chop_ends = self.chops, self.chop_ends
        system = console._color_system
        style: Style | None = None
        changes, restyle = self._changes, self._restyle
        at_y = at_x = -1
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(chop_ends[y], chops[y].items(), strict=False):
                if strip is None or x >= x2 or end <= x1:
                    continue
                left, right = max(x, x1), min(end, x2)
                if left != x or right != end:
                    strip = strip.crop(left - x, right - x)
                if at_y == y:
                    if left != at_x:
                        add(f"\x1b[{left - at_x}C")
                else:
                    add(f"\x1b[{y + 1};{left + 1}H")
                at_y, at_x = y, right
                for text, segment_style, control in strip._segments:
                    if control:
                        continue
                    if segment_style is not style:
                        key = (style, segment_style, system)
                        change = changes.get(key)
                        if change is None:
                            change = restyle(*key)
                        add(change)
                        style = segment_style
                    add(text)
        if style is not None:
            add("\x1b[0m")
        return "".join(out)

    @classmethod
    def _restyle(cls, before: Style | None, after: Style | None, system: ColorSystem | None) -> str:
        """The escape sequence from one style to another: the difference where that is enough, else all of it."""
        sequence = ""
        if system is not None:
            full = Strip.render_ansi(after, system) if after else ""
            sequence = f"\x1b[0;{full}m" if full else "\x1b[0m"
            if before is not None and after is not None and cls._differ_in_colour_only(before, after):
                codes: list[str] = []
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
    def _differ_in_colour_only(before: Style, after: Style) -> bool:
        return (
            before._attributes & before._set_attributes == after._attributes & after._set_attributes
            and (after._color is not None or before._color is None)
            and (after._bgcolor is not None or before._bgcolor is None)
        )


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
    """Give *screen* the exact compositor; call in its ``__init__``, after super's. Does nothing where it cannot work."""
    if available() and type(getattr(screen, "_compositor", None)) is _compositor.Compositor:
        screen._compositor = ExactCompositor()
