"""Colours by meaning. Every span names a style; the palette of the current theme says what that is.

A style name is ``role``, ``role+b`` (bold) or ``role+b@surface``: ``dim``, ``g3@track``, ``critical+b@cursor``.

========== =====================================================================
role       meaning
========== =====================================================================
text dim faint   ordinary, secondary and barely visible text (borders, tracks)
title accent key      headings, what the eye should find, keys
good warning critical severity; always together with a word or a sign
l0 … l3    load, cool to warm
g0 … g7    identity: one hue a GPU, the same in panel, chart and table
s0 … s7    the same, softer: its sparkline
dead unattributed reserved   parts of the memory bar
========== =====================================================================

Surfaces (backgrounds): the screen's own, ``track`` (the empty part of a bar), ``cursor``, ``bar`` (header and footer),
``tag``.
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
        "block-cursor-background": "#24405f",
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

_GPU_DARK: Final = ("#58a6ff", "#f0944d", "#4cc38a", "#e06fb0", "#3cc8d2", "#b99bff", "#e3b93f", "#ff8077")
_GPU_LIGHT: Final = ("#0969da", "#bc4c00", "#1a7f4b", "#bf3989", "#0e7c86", "#8250df", "#8a6a00", "#cf222e")
_LOAD_DARK: Final = ("#4a8fc0", "#45b5a6", "#b9bd5a", "#ee9a4d")
_LOAD_LIGHT: Final = ("#3f7fb5", "#1f8f7d", "#8a8200", "#c25a00")

_ANSI_ROLES: dict[str, str] = {
    **{"text": "default", "dim": "bright_black", "faint": "bright_black", "title": "default", "accent": "cyan"},
    **{"key": "cyan", "good": "green", "warning": "yellow", "critical": "red"},
    **{"dead": "magenta", "unattributed": "yellow", "reserved": "bright_black"},
    **dict(zip(("l0", "l1", "l2", "l3"), ("blue", "cyan", "green", "yellow"), strict=True)),
    **dict(
        zip(
            ("g0", "g1", "g2", "g3", "g4", "g5", "g6", "g7"),
            ("blue", "yellow", "green", "magenta", "cyan", "bright_blue", "bright_yellow", "bright_magenta"),
            strict=True,
        )
    ),
}
_ANSI_ROLES |= {f"s{n}": _ANSI_ROLES[f"g{n}"] for n in range(8)}
_MONO_ATTRIBUTES: Final = {
    "title": "b",
    "warning": "b",
    "critical": "br",
    "dead": "b",
    "key": "b",
    "dim": "d",
    "faint": "d",
}


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

    roles: dict[str, RichColor | None]
    surfaces: dict[str, RichColor | None]
    monochrome: bool = False


class Palette:
    """The styles of one theme."""

    _by_theme: ClassVar[dict[str, Palette]] = {}

    def __init__(self, colours: _Colours) -> None:
        self._colours = colours
        self._styles: dict[str, Style] = {}

    @classmethod
    def of(cls, app: App[Any]) -> Palette:
        """The palette of the theme that *app* has now."""
        name = app.theme
        palette = cls._by_theme.get(name)
        if palette is None:
            palette = cls._by_theme[name] = cls(_colours(app.current_theme, app.theme_variables))
        return palette

    @property
    def has_track(self) -> bool:
        """Whether the empty part of a bar is told by its background; else it must be drawn with a character."""
        return self._colours.surfaces.get("track") is not None

    def style(self, name: str) -> Style:
        """The Rich style called *name*."""
        style = self._styles.get(name)
        if style is None:
            style = self._styles[name] = self._make(name)
        return style

    def hex(self, role: str) -> str | None:
        """The colour of *role* as ``#rrggbb``, for those who draw by other means; None where the terminal decides."""
        colour = self._colours.roles.get(role)
        return None if colour is None or colour.triplet is None else colour.triplet.hex

    def _make(self, name: str) -> Style:
        rest, _, surface = name.partition("@")
        role, _, attributes = rest.partition("+")
        colours = self._colours
        if colours.monochrome:
            attributes += _MONO_ATTRIBUTES.get(role, "")
            if surface in ("cursor", "bar"):
                attributes += "r"
            elif surface == "tag":
                attributes += "b"
        return Style(
            color=colours.roles.get(role, colours.roles.get("text")),
            bgcolor=colours.surfaces.get(surface, colours.surfaces.get("")),
            bold="b" in attributes or None,
            dim="d" in attributes or None,
            underline="u" in attributes or None,
            reverse="r" in attributes or None,
        )


def _colours(theme: Theme, variables: dict[str, str]) -> _Colours:
    if theme.ansi:
        if theme.name == MONOCHROME.name:
            return _Colours({}, {}, monochrome=True)
        roles = {role: RichColor.parse(name) for role, name in _ANSI_ROLES.items()}
        surfaces = {"cursor": RichColor.parse("blue"), "tag": RichColor.parse("bright_black")}
        return _Colours({**roles}, {**surfaces})
    background, text = Color.parse(variables["background"]), Color.parse(variables["foreground"])

    def colour(key: str) -> Color:
        return Color.parse(variables[key])

    own: dict[str, Color] = {
        "text": text,
        "dim": background.blend(text, 0.58),
        "faint": background.blend(text, 0.24),
        "title": background.blend(text, 1.0),
        "accent": colour("accent"),
        "key": colour("accent"),
        "good": colour("success"),
        "warning": colour("warning"),
        "critical": colour("error"),
        "dead": Color.parse("#d678e8" if theme.dark else "#a626a4"),
        "unattributed": colour("warning"),
        "reserved": background.blend(text, 0.42),
    }
    own |= {f"g{n}": Color.parse(c) for n, c in enumerate(_GPU_DARK if theme.dark else _GPU_LIGHT)}
    own |= {f"l{n}": Color.parse(c) for n, c in enumerate(_LOAD_DARK if theme.dark else _LOAD_LIGHT)}
    own |= {f"s{n}": background.blend(own[f"g{n}"], 0.55) for n in range(8)}
    surfaces_ = {
        "": background,
        "track": background.blend(text, 0.10 if theme.dark else 0.09),
        "cursor": Color.parse(variables.get("block-cursor-background", variables["primary"])),
        "bar": colour("panel"),
        "tag": background.blend(colour("warning"), 0.22),
    }
    if theme.name not in (DARK.name, LIGHT.name):
        surfaces_["cursor"] = background.blend(colour("primary"), 0.45)
    return _Colours(
        {role: c.rich_color for role, c in own.items()}, {surface: c.rich_color for surface, c in surfaces_.items()}
    )
