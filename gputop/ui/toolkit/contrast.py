"""How well text can be read on its background, and colours moved until it can.

The measure is WCAG 2's contrast ratio, 1 to 21; 4.5 is what it asks of text. The reduction to 256 colours moves either
colour by up to a fifth, so it is taken after it where the terminal has no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.color_triplet import ColorTriplet
from textual.color import Color

LEAST_RATIO: Final = 4.5
TINTED_RATIO: Final = 9.0  # of ordinary text on a tinted surface: leaves room for hues that are told apart there
_STEPS: Final = 24
_WHITE: Final = Color(255, 255, 255)
_BLACK: Final = Color(0, 0, 0)


def ratio(one: ColorTriplet, other: ColorTriplet) -> float:
    """Contrast of two colours, 1 to 21."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@dataclass(frozen=True, slots=True)
class Contrast:
    """Contrast as a terminal shows it: in true colour, or *reduced* to 256 colours."""

    reduced: bool = False

    def of(self, text: Color, background: Color) -> float:
        shown = _of_256 if self.reduced else _triplet
        return ratio(shown(text), shown(background))

    def readable(self, text: Color, background: Color) -> Color:
        """*text*, moved towards white or black as little as it takes to be read on *background*."""
        if self.of(text, background) >= LEAST_RATIO:
            return text
        end = max(_WHITE, _BLACK, key=lambda colour: self.of(colour, background))
        for step in range(1, _STEPS):
            moved = text.blend(end, step / _STEPS)
            if self.of(moved, background) >= LEAST_RATIO:
                return moved
        return end

    def tinted(self, background: Color, tint: Color, text: Color, most: float) -> Color:
        """*background* with as much of *tint*, up to the share *most*, as leaves *text* room for hues on it."""
        least = min(TINTED_RATIO, self.of(text, background))
        for step in range(_STEPS):
            mixed = background.blend(tint, most * (1 - step / _STEPS))
            if self.of(text, mixed) >= least:
                return mixed
        return background


def _triplet(colour: Color) -> ColorTriplet:
    return ColorTriplet(colour.r, colour.g, colour.b)


@lru_cache(1024)
def _of_256(colour: Color) -> ColorTriplet:
    return RichColor.from_triplet(_triplet(colour)).downgrade(ColorSystem.EIGHT_BIT).get_truecolor()


@lru_cache(1024)
def _luminance(colour: ColorTriplet) -> float:
    def linear(value: float) -> float:
        value /= 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    return 0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) + 0.0722 * linear(colour.blue)
