"""Text that could not be read on its background, and GPUs in the colours of alarms."""

from __future__ import annotations

import itertools
import math

import pytest
from rich.color import Color, ColorSystem, ColorType
from rich.color_triplet import ColorTriplet
from textual.theme import BUILTIN_THEMES

from gputop.ui.toolkit.contrast import LEAST_RATIO, ratio
from gputop.ui.toolkit.palette import LIGHT, MONOCHROME, THEMES, Palette, colours_of

TEXTS = (
    *("text", "dim", "title", "accent", "key", "good", "warning", "critical", "dead", "unattributed"),
    *("l0", "l1", "l2", "l3"),
    *(f"g{n}" for n in range(8)),
)
GPUS = tuple(f"g{n}" for n in range(8))
SURFACES = ("", "@cursor", "@bar", "@tag", "@track")
ALL = {theme.name: theme for theme in (*BUILTIN_THEMES.values(), *THEMES)}
COLOURED = [name for name, theme in ALL.items() if not theme.ansi]
SIXTEEN = [name for name, theme in ALL.items() if theme.ansi and name != MONOCHROME.name]

#: The Linux console's sixteen colours (drivers/tty/vt/vt.c, default_red and its siblings), and xterm's.
CONSOLE = (
    "000000 aa0000 00aa00 aa5500 0000aa aa00aa 00aaaa aaaaaa 555555 ff5555 55ff55 ffff55 5555ff ff55ff 55ffff ffffff"
)
XTERM = (
    "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5 7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff"
)


def palette(name: str, reduced: bool = False) -> Palette:
    theme = ALL[name]
    return Palette(colours_of(theme, theme.to_color_system().generate() | theme.variables, reduced))


def in_256(colour: Color) -> ColorTriplet:
    return colour.downgrade(ColorSystem.EIGHT_BIT).get_truecolor()


def in_sixteen(
    colour: Color | None, bold: bool, ground: int, colours: list[ColorTriplet], bold_is_bright: bool
) -> ColorTriplet:
    """As a terminal shows it whose background is its colour *ground*."""
    if colour is None or colour.type is ColorType.DEFAULT:
        number = 0 if ground else 7
    else:
        assert colour.number is not None
        number = colour.number
    return colours[number + 8 if bold and bold_is_bright and number < 8 else number]


@pytest.mark.parametrize("name", COLOURED)
def test_text_on_the_cursors_row_and_dim_text_cannot_be_read(name: str) -> None:
    exact, reduced = palette(name), palette(name, reduced=True)
    for role, surface in itertools.product(TEXTS, SURFACES):
        style = exact.style(role + surface)
        assert style.color is not None and style.bgcolor is not None
        assert ratio(style.color.get_truecolor(), style.bgcolor.get_truecolor()) >= LEAST_RATIO, role + surface
        style = reduced.style(role + surface)
        assert style.color is not None and style.bgcolor is not None
        assert ratio(in_256(style.color), in_256(style.bgcolor)) >= LEAST_RATIO, role + surface


@pytest.mark.parametrize("name", SIXTEEN)
@pytest.mark.parametrize(("colours", "bold_is_bright"), [(CONSOLE, True), (CONSOLE, False), (XTERM, False)])
def test_text_in_sixteen_colours_cannot_be_read(name: str, colours: str, bold_is_bright: bool) -> None:
    known = [ColorTriplet(*bytes.fromhex(one)) for one in colours.split()]
    ground = 0 if ALL[name].dark else 15
    if ground and bold_is_bright:
        pytest.skip("the Linux console is black")
    styles = palette(name)
    for role, bold, surface in itertools.product(TEXTS, ("", "+b"), SURFACES):
        style = styles.style(role + bold + surface)
        text = in_sixteen(style.color, bool(style.bold), ground, known, bold_is_bright)
        behind = known[ground] if style.bgcolor is None else in_sixteen(style.bgcolor, False, ground, known, False)
        assert ratio(text, behind) >= LEAST_RATIO, (role + bold + surface, ratio(text, behind))


def test_without_colours_text_is_never_dimmed() -> None:
    styles = palette(MONOCHROME.name)
    assert not any(styles.style(role + surface).dim for role in TEXTS for surface in SURFACES)


def lab(colour: Color) -> tuple[float, float, float]:
    red, green, blue = (
        (c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4) for c in colour.get_truecolor()
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def distance(one: Color | None, other: Color | None) -> float:
    """CIE76: 2 is just seen, 20 is another colour."""
    assert one is not None and other is not None
    return math.dist(lab(one), lab(other))


@pytest.mark.parametrize("name", COLOURED)
def test_a_gpu_has_the_colour_of_an_alarm(name: str) -> None:
    styles = palette(name)
    for gpu, alarm, surface in itertools.product(
        (*GPUS, "l0", "l1", "l2", "l3"), ("warning", "critical", "dead"), ("", "@cursor")
    ):
        away = distance(styles.style(gpu + surface).color, styles.style(alarm + surface).color)
        assert away >= 20, (gpu + surface, alarm, away)


@pytest.mark.parametrize("name", COLOURED)
def test_two_gpus_have_the_same_colour(name: str) -> None:
    styles = palette(name)
    for one, other in itertools.combinations(GPUS, 2):
        away = distance(styles.style(one).color, styles.style(other).color)
        assert away >= 9, (one, other, away)


@pytest.mark.parametrize("name", SIXTEEN)
def test_a_gpu_has_the_colour_of_an_alarm_in_sixteen_colours(name: str) -> None:
    styles = palette(name)
    alarms = {styles.style(role).color for role in ("warning", "critical", "dead")}
    assert not alarms & {styles.style(role).color for role in (*GPUS, "l0", "l1", "l2", "l3")}


def test_the_themes_measured_are_all_there_are() -> None:
    assert len(ALL) == 25 and LIGHT.name in COLOURED
