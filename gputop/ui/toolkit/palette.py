"""Colours by meaning. Every span names a style; the palette of the current theme says what that is.

A style name is ``role``, ``role+b`` (bold) or ``role+b@surface``: ``dim``, ``g3@track``, ``critical+b@cursor``.

========== =====================================================================
role       meaning
========== =====================================================================
text dim   ordinary and secondary text
faint      lines that are no text: borders, rules, empty rails
title accent key      headings, what the eye should find, keys
good warning critical severity, the same in every theme; always together with a word or a sign
l0 … l3    load, from cool to bright; none of it looks like a warning: a busy GPU is a good GPU
g0 … g7    identity: one hue a GPU, the same in panel, chart and table; none is an alarm colour
s0 … s7    the same, softer: its sparkline
u0 … u7    the area of a chart, by height from the bottom: of a percentage
m0 … m7    … of memory
p0 … p7    … of any other quantity
dead unattributed reserved   parts of the memory bar
========== =====================================================================

Surfaces (backgrounds): the screen's own, ``track`` (the empty part of a bar), ``cursor``, ``bar`` (header and footer),
``tag``. What is text has a contrast of at least 4.5 on each of them, in every theme (contrast.py, and a test).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.color import Color as RichColor
from rich.style import Style
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from gputop.ui.toolkit.contrast import Contrast

if TYPE_CHECKING:
    from textual.app import App

    from gputop.settings import Settings

DARK: Final = Theme(
    name="gputop",
    primary="#58a6ff",
    secondary="#39c5cf",
    accent="#7ee0b8",
    foreground="#d3dae3",
    background="#0c1016",
    surface="#11161e",
    panel="#18202b",
    success="#4cc38a",
    warning="#e8b04b",
    error="#ff6a5f",
    dark=True,
    variables={
        "block-cursor-background": "#1d355e",
        "block-cursor-foreground": "#ffffff",
        "footer-key-foreground": "#7ee0b8",
    },
)
LIGHT: Final = Theme(
    name="gputop-light",
    primary="#0969da",
    secondary="#1b7c83",
    accent="#0f766e",
    foreground="#1f2630",
    background="#fbfcfd",
    surface="#f3f5f8",
    panel="#e9edf2",
    success="#1a7f4b",
    warning="#9a6700",
    error="#c8252d",
    dark=False,
    variables={"block-cursor-background": "#cfe3fb", "block-cursor-foreground": "#0b1622"},
)


def _ansi(name: str, **colours: Any) -> Theme:
    base = BUILTIN_THEMES["ansi-dark"]
    values: dict[str, Any] = {
        key: getattr(base, key)
        for key in (
            *("primary", "secondary", "warning", "error", "success", "accent"),
            *("foreground", "background", "surface", "panel", "boost", "dark", "variables", "ansi"),
        )
    }
    return Theme(name=name, **(values | colours))


SIXTEEN: Final = _ansi("ansi-16")
MONOCHROME: Final = _ansi(
    "monochrome",
    **dict.fromkeys(("primary", "secondary", "warning", "error", "success", "accent"), "ansi_default"),
    variables=BUILTIN_THEMES["ansi-dark"].variables
    | {"block-cursor-text-style": "reverse", "input-cursor-text-style": "reverse"},
)
THEMES: Final = (DARK, LIGHT, SIXTEEN, MONOCHROME)

_GPU_DARK: Final = ("#58a6ff", "#4fcf83", "#b48cff", "#2ec4c9", "#c3d94e", "#7b8cff", "#a5dcf0", "#d9c2f0")
_GPU_LIGHT: Final = ("#0969da", "#1a7f37", "#8250df", "#0e7c86", "#5c7300", "#4338ca", "#2b5f8a", "#6b5a8e")
_LOAD_DARK: Final = ("#4a8fc0", "#45b5a6", "#5fc46e", "#a9dc5c")
_LOAD_LIGHT: Final = ("#3f7fb5", "#147a6b", "#2b7a2b", "#4f6f00")
_ALARM_DARK: Final = {"warning": "#e8b04b", "critical": "#ff6a5f", "dead": "#e578d8", "unattributed": "#e8b04b"}
_ALARM_LIGHT: Final = {"warning": "#9a6700", "critical": "#c8252d", "dead": "#a626a4", "unattributed": "#9a6700"}
GRADIENT_STEPS: Final = 8
#: Bottom and top of an area, one family of hues each.
_GRADIENTS_DARK: Final = {"u": ("#1c4a86", "#5fd7ff"), "m": ("#443a8c", "#c0a8ff"), "p": ("#145a57", "#74e8c0")}
_GRADIENTS_LIGHT: Final = {"u": ("#9cc7f2", "#0a53a8"), "m": ("#c9bbf5", "#5b34b5"), "p": ("#a3ddd0", "#0b6b60")}
_NO_TEXT: Final = frozenset(
    {"faint", "reserved", *(f"{family}{n}" for family in "sump" for n in range(GRADIENT_STEPS))}
)

#: Of sixteen colours, those that can be read on black on the Linux console (where blue, red and magenta cannot) …
_ANSI_DARK: Final[dict[str, str]] = {
    **{"text": "default", "dim": "default", "faint": "bright_black", "title": "default", "accent": "cyan"},
    **{"key": "cyan", "good": "green", "warning": "bright_yellow", "critical": "bright_red"},
    **{"dead": "bright_magenta", "unattributed": "bright_yellow", "reserved": "bright_black"},
    **{"l0": "cyan", "l1": "cyan", "l2": "green", "l3": "bright_green"},
    **{"g0": "cyan", "g1": "green", "g2": "white", "g3": "bright_cyan", "g4": "bright_green", "g5": "bright_white"},
    **{"g6": "cyan", "g7": "green"},
    **{f"u{n}": "cyan" for n in range(8)} | {f"m{n}": "white" for n in range(8)} | {f"p{n}": "green" for n in range(8)},
}
#: … and on white, where hardly any can.
_ANSI_LIGHT: Final[dict[str, str]] = {
    **{"text": "default", "dim": "default", "faint": "white", "title": "default", "accent": "blue"},
    **{"key": "blue", "good": "default", "warning": "red", "critical": "red"},
    **{"dead": "magenta", "unattributed": "magenta", "reserved": "white"},
    **{"l0": "blue", "l1": "blue", "l2": "default", "l3": "default"},
    **{f"g{n}": ("blue", "default")[n % 2] for n in range(8)},
    **{f"{family}{n}": "blue" for family in "ump" for n in range(8)},
}
_MONO_ATTRIBUTES: Final = {"title": "b", "warning": "b", "critical": "br", "dead": "b", "key": "b", "faint": "d"}


_LOADS: Final = ("l0", "l1", "l2", "l3")  # few, since a bar that changes its colour is written anew


def theme_to_show(settings: Settings, known: Container[str], color_system: str | None) -> str:
    """The theme set, or the nearest that a terminal of *color_system* can show; one that is not *known* is the
    default."""
    if not settings.color:
        return MONOCHROME.name
    name = settings.theme if settings.theme in known else DARK.name
    return SIXTEEN.name if name == DARK.name and color_system == "standard" else name


def gpu_role(index: int) -> str:
    """The role that is a GPU's hue."""
    return f"g{index % 8}"


def soft_role(index: int) -> str:
    """The softer role of a GPU's hue."""
    return f"s{index % 8}"


def load_role(percent: float | None) -> str:
    """The role for a load of 0 to 100 percent."""
    if percent is None:
        return "dim"
    return _LOADS[max(0, min(len(_LOADS) - 1, int(percent / 100 * len(_LOADS))))]


@lru_cache(1024)
def blank_look(name: str) -> str:
    """What of the style called *name* is seen in a blank: its surface, and underline or reverse."""
    rest, _, surface = name.partition("@")
    attributes = rest.partition("+")[2]
    return surface + ("+" + name if "r" in attributes or "u" in attributes else "")


@dataclass(frozen=True, slots=True)
class _Colours:
    """Colours of the roles and surfaces of a theme; None: the terminal's own."""

    roles: dict[str, Color]
    surfaces: dict[str, Color]
    contrast: Contrast


@dataclass(frozen=True, slots=True)
class _SixteenColours:
    """The terminal's own colours by name. On a coloured surface all text is black: no two of sixteen colours but
    black, white and yellow can be read on cyan, green or grey alike."""

    roles: dict[str, str]  # empty: no colours at all, attributes instead
    surfaces: dict[str, str]


class Palette:
    """The styles of one theme."""

    _kept: ClassVar[dict[tuple[str, str | None], Palette]] = {}

    def __init__(self, colours: _Colours | _SixteenColours) -> None:
        self._colours = colours
        self._styles: dict[str, Style] = {}

    @classmethod
    def of(cls, app: App[Any]) -> Palette:
        """The palette of the theme that *app* has now, for as many colours as its terminal has."""
        key = app.theme, app.console.color_system
        palette = cls._kept.get(key)
        if palette is None:
            palette = cls._kept[key] = cls(colours_of(app.current_theme, app.theme_variables, key[1] == "256"))
        return palette

    @property
    def has_track(self) -> bool:
        """Whether the empty part of a bar is told by its background; else it must be drawn with a character."""
        return "track" in self._colours.surfaces

    def style(self, name: str) -> Style:
        """The Rich style called *name*."""
        style = self._styles.get(name)
        if style is None:
            style = self._styles[name] = self._make(name)
        return style

    def hex(self, role: str) -> str | None:
        """The colour of *role* as ``#rrggbb``, for those who draw by other means; None where the terminal decides."""
        colour = self.style(role).color
        return None if colour is None or colour.triplet is None else colour.triplet.hex

    def _make(self, name: str) -> Style:
        rest, _, surface = name.partition("@")
        role, _, attributes = rest.partition("+")
        colours = self._colours
        text: str | Color | None
        background: str | Color | None
        if isinstance(colours, _Colours):
            background = colours.surfaces.get(surface, colours.surfaces[""])
            text = colours.roles.get(role, colours.roles["text"])
            if role not in _NO_TEXT:
                text = colours.contrast.readable(text, background)
        elif colours.roles:
            background = colours.surfaces.get(surface)
            text = colours.roles.get(role, "default")
            if background is not None:
                text, attributes = "black", attributes.replace("b", "")  # bold black is grey on the Linux console
        else:
            text = background = None
            attributes += _MONO_ATTRIBUTES.get(role, "")
            if surface in ("cursor", "bar"):
                attributes += "r"
            elif surface == "tag":
                attributes += "b"
        return Style(
            color=_rich(text),
            bgcolor=_rich(background),
            bold="b" in attributes or None,
            dim="d" in attributes or None,
            underline="u" in attributes or None,
            reverse="r" in attributes or None,
        )


def _rich(colour: str | Color | None) -> RichColor | None:
    if isinstance(colour, str):
        return RichColor.parse(colour)
    return None if colour is None else colour.rich_color


def colours_of(theme: Theme, variables: dict[str, str], reduced: bool = False) -> _Colours | _SixteenColours:
    """The colours of *theme*, whose *variables* are its colours by name; *reduced*: to be read in 256 colours."""
    if theme.ansi:
        if theme.name == MONOCHROME.name:
            return _SixteenColours({}, {})
        if theme.dark:
            return _SixteenColours(_ANSI_DARK, {"cursor": "cyan", "tag": "green"})
        return _SixteenColours(_ANSI_LIGHT, {"cursor": "cyan", "tag": "green"})
    contrast = Contrast(reduced)
    background, text = Color.parse(variables["background"]), Color.parse(variables["foreground"])

    def colour(key: str) -> Color:
        return Color.parse(variables[key])

    alarms, gpus, loads = (
        (_ALARM_DARK, _GPU_DARK, _LOAD_DARK) if theme.dark else (_ALARM_LIGHT, _GPU_LIGHT, _LOAD_LIGHT)
    )
    roles: dict[str, Color] = {
        "text": text,
        "dim": background.blend(text, 0.58),
        "faint": background.blend(text, 0.24),
        "title": text,
        "accent": colour("accent"),
        "key": colour("accent"),
        "good": colour("success"),
        "reserved": background.blend(text, 0.42),
    }
    roles |= {role: Color.parse(c) for role, c in alarms.items()}
    roles |= {f"g{n}": Color.parse(c) for n, c in enumerate(gpus)}
    roles |= {f"l{n}": Color.parse(c) for n, c in enumerate(loads)}
    roles |= {f"s{n}": background.blend(roles[f"g{n}"], 0.55) for n in range(8)}
    for family, (low, high) in (_GRADIENTS_DARK if theme.dark else _GRADIENTS_LIGHT).items():
        bottom, top = Color.parse(low), Color.parse(high)
        roles |= {f"{family}{n}": bottom.blend(top, n / (GRADIENT_STEPS - 1)) for n in range(GRADIENT_STEPS)}
    surfaces = {
        "": background,
        "track": background.blend(text, 0.10 if theme.dark else 0.09),
        "cursor": contrast.tinted(background, colour("primary"), text, 0.45),
        "bar": contrast.tinted(background, colour("panel"), text, 1.0),
        "tag": contrast.tinted(background, roles["warning"], text, 0.22),
    }
    if theme.name in (DARK.name, LIGHT.name):
        surfaces["cursor"] = colour("block-cursor-background")
    return _Colours(roles, surfaces, contrast)
