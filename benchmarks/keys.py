"""How soon a key press shows its effect: Down and Up move the highlighted row of every monitor's process table."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import measure
from measure import spread
from session import Session, Setup
from terminal import Emulator

LIMIT = 3.0  # seconds: an effect later than this is none


def latency(command: list[str], setup: Setup, pids: Path, *, presses: int = 60, faults: str = "") -> dict[str, Any]:
    """Press Down and Up in turn at random moments: milliseconds until another row was highlighted.

    `faults` come after the first paint. What the other GPUs did meanwhile is in `gap_but_slowest_ms`.
    """
    moments, pressed = random.Random(7), []
    with Session(command, setup, pids) as session:
        ready = measure.wait_ready(session)
        session.pump(1.5)
        session.arrow("down")  # nvtop and nvitop select the first process only now
        session.pump(1)
        if faults:
            session.scenario(faults)
            session.pump(4)
        alive = ready
        for i in range(presses):
            alive = alive and session.pump(0.35 + 0.4 * moments.random())
            pressed.append(session.arrow("down" if i % 2 == 0 else "up"))
        session.pump(LIMIT)
        chunks = list(session.chunks)
    if not alive:
        return {"ok": False}
    seen = measure.replay(chunks, setup, (pressed[0], pressed[-1]))
    effects = _effects(chunks, pressed, setup)
    return {
        "ok": True,
        "key_ms": spread(effect for effect in effects if effect is not None),
        "keys_without_effect": effects.count(None),
        "gap_but_slowest_ms": spread(measure.gaps(seen.changes, without=1)),
    }


def _effects(chunks: list[tuple[float, bytes]], pressed: list[float], setup: Setup) -> list[float | None]:
    """For each press the seconds until the highlighted lines were others than before it."""
    emulator, effects = Emulator(setup.columns, setup.rows), []
    waiting: list[float] = []  # the press that is looked for, at most one
    before: tuple[object, ...] = ()
    todo = list(pressed)
    for t, data in chunks:
        if todo and t > todo[0]:
            if waiting:
                effects.append(None)
            waiting, before = [todo.pop(0)], emulator.backgrounds()
        emulator.feed(data)
        if waiting and emulator.backgrounds() != before:
            effects.append(t - waiting.pop())
    effects += [None] * (len(pressed) - len(effects))
    return [effect if effect is not None and effect < LIMIT else None for effect in effects]
