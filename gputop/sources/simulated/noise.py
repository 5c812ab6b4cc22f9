"""Reproducible noise: every curve of the simulation is a pure function of time made from these."""

from __future__ import annotations

import random
from typing import Final

_SIZE: Final = 4096
_RANDOM: Final = random.Random(20_260_101)
_TABLE: Final = tuple(_RANDOM.random() for _ in range(_SIZE))


def noise(k: int, seed: int) -> float:
    """A value in [0, 1) for step *k*, unrelated to that of its neighbours; a table look-up, so it costs 0.1 µs."""
    return _TABLE[(k * 2477 + seed * 1597 + (k >> 12) * 61 + (seed >> 12) * 17) & (_SIZE - 1)]


def smooth(x: float, seed: int) -> float:
    """A value in [0, 1) that drifts from one :func:`noise` to the next while *x* goes from k to k + 1."""
    k = int(x // 1)
    part = x - k
    here = noise(k, seed)
    return here + (noise(k + 1, seed) - here) * part * part * (3.0 - 2.0 * part)


def clamp(value: float, low: float = 0.0, high: float = 1.0) -> float:
    return low if value < low else high if value > high else value
