"""``gputop fleet`` as a user sees it: rows, filter, order, groups, a host's page, a source that does not answer."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gputop.fleet.filter import FleetFilter
from gputop.fleet.model import FleetHost, FleetSnapshot, History, HistoryRequest
from gputop.fleet.simulated import SimulatedFleet
from gputop.fleet.view import FleetView
from gputop.settings import DEFAULTS
from gputop.ui.fleet.app import FleetApp
from gputop.ui.fleet.remote import RefusedName, run_there, ssh_command
from tests.ui.screens import TORN_KEYS, until

NOW = 1796047351.0


class Watched:
    """A simulated fleet that notes what it is asked, and answers only while ``open_gate`` is set."""

    def __init__(self, hosts: int = 200, change: Callable[[FleetSnapshot], FleetSnapshot] = lambda one: one) -> None:
        self._fleet = SimulatedFleet(hosts, 7, lambda: NOW)
        self.name, self.timeout_seconds, self.has_past = "simulated", 30.0, True
        self.refresh_seconds = 0.05
        self.gate = threading.Event()
        self.gate.set()
        self.change = change
        self.asked: list[FleetView] = []

    def open(self) -> None: ...

    def close(self) -> None:
        self.gate.set()

    def poll(self, view: FleetView) -> FleetSnapshot:
        self.asked.append(view)
        self.gate.wait()
        return replace(self.change(self._fleet.poll(view)), taken_at=time.time())

    def host(self, name: str) -> FleetHost | None:
        self.gate.wait()
        return self._fleet.host(name)

    def hosts(self) -> tuple[FleetHost, ...]:
        raise AssertionError("never for a screen")

    def history(self, request: HistoryRequest) -> History:
        self.gate.wait()
        return self._fleet.history(request)


def text(app: FleetApp) -> str:
    lines = app.screen.query("LineWidget").first().lines  # type: ignore[attr-defined]
    return "\n".join("".join(span for span, _ in line) for line in lines)


@asynccontextmanager
async def showing(
    source: Watched, size: tuple[int, int] = (120, 40), wait: bool = True, **settings: Any
) -> AsyncIterator[tuple[FleetApp, Pilot[None]]]:
    app = FleetApp(source, FleetView(), replace(DEFAULTS, **settings))
    async with app.run_test(size=size) as pilot:
        if wait:
            await until(lambda: "HOST" in text(app), "the first rows")
        yield app, pilot
        source.close()


@pytest.mark.parametrize("hosts", [1, 200])
@pytest.mark.parametrize("size", [(40, 8), (60, 12), (80, 24), (120, 40), (200, 60)])
async def test_every_size_is_filled_exactly(size: tuple[int, int], hosts: int) -> None:
    async with showing(Watched(hosts), size) as (app, pilot):
        for keys in ((), ("end",), ("c",), ("b", "down", "enter"), ("f1",), ("escape",), ("escape", "enter")):
            await pilot.press(*keys)
            await pilot.pause()
            lines = text(app).split("\n")
            assert len(lines) <= size[1]
            assert all(len(line) <= size[0] for line in lines), keys


async def test_only_the_rows_that_are_seen_are_asked_for() -> None:
    source = Watched(200)
    async with showing(source, (80, 24)) as (app, pilot):
        await pilot.press("end")
        await until(lambda: "t4-200" in text(app) or "-200" in text(app), "the last host")
        assert all(view.count is not None and view.count <= 24 for view in source.asked)
        assert source.asked[-1].first > 150


async def test_a_typed_filter_is_asked_for_and_its_errors_are_said() -> None:
    source = Watched(200)
    async with showing(source, (80, 24)) as (app, pilot):
        await pilot.press("slash", *"free>=8")
        await until(lambda: source.asked[-1].filter == FleetFilter.parse("free>=8"), "the filter")
        await until(lambda: "/200" not in text(app), "fewer hosts")
        await pilot.press("enter", "slash", *" mem>x")
        await until(lambda: "mem>" in text(app).split("\n")[-1], "what is wrong")
        assert "Filter:" not in text(app)
        await pilot.press("escape")
        await until(lambda: "1/200" in text(app), "all hosts again")


async def test_hosts_are_sorted_by_what_is_chosen() -> None:
    source = Watched(200)
    async with showing(source, (80, 24)) as (app, pilot):
        await pilot.press("f6", "down", "down", "down", "enter", "I")
        await until(lambda: (source.asked[-1].sort, source.asked[-1].reverse) == ("free", True), "the order")
        await until(lambda: "by free" in text(app), "its name")


async def test_a_group_leads_to_its_hosts() -> None:
    source = Watched(200)
    async with showing(source, (80, 24)) as (app, pilot):
        await pilot.press("b", "down", "down", "enter")
        await until(lambda: "USER" in text(app) and "no user" in text(app), "the users")
        await pilot.press("down", "enter")
        await until(lambda: "HOST " in text(app) and "/user:" in text(app), "the hosts of a user")


async def test_the_page_of_a_host_shows_its_gpus_and_who_has_them() -> None:
    async with showing(Watched(200)) as (app, pilot):
        await pilot.press("down", "enter")
        await until(lambda: "Who has which GPU" in text(app) and "utilization, 1 h" in text(app), "the page")
        await pilot.press("escape")
        await until(lambda: "HOST " in text(app), "the list")


async def test_keys_act_while_the_source_does_not_answer() -> None:
    source = Watched(200)
    async with showing(source, (80, 24)) as (app, pilot):
        source.gate.clear()
        polls = len(source.asked)
        start = time.monotonic()
        await pilot.press(*["down"] * 30, "slash", *"user:ml", "enter", "f6", "escape", "f1", "escape")
        assert time.monotonic() - start < 5
        assert len(source.asked) <= polls + 1  # what waits is replaced, not queued
        await until(lambda: "asking for" in text(app).split("\n")[0], "its age")
        source.gate.set()
        await until(lambda: source.asked[-1].filter.text == "user:ml", "the newest question")
        await until(lambda: "asking for" not in text(app).split("\n")[0], "the answer")


async def test_a_source_that_never_answered_says_so_and_q_ends() -> None:
    source = Watched(200)
    source.gate.clear()
    async with showing(source, (80, 24), wait=False) as (app, pilot):
        await pilot.pause()
        assert "asking simulated" in text(app)
        await pilot.press("down", "enter", "o", "f6", "escape", "q")
    assert app.return_code == 0


async def test_the_past_waits_for_the_first_answer_and_is_asked_again_where_it_failed() -> None:
    class Forgetful(Watched):
        pasts = 0

        def history(self, request: HistoryRequest) -> History:
            self.pasts += 1
            assert self.asked
            return History(request, problem="not now") if self.pasts <= 4 else super().history(request)

    source = Forgetful(3)
    async with showing(source) as (app, _):
        await until(lambda: source.pasts > 4, "a second try")
        await until(lambda: "not now" not in text(app), "the past")


async def test_what_an_engine_complains_of_stands_above_the_rows() -> None:
    source = Watched(3, lambda one: replace(one, problems=("401 Unauthorized: give a token", "more")))
    async with showing(source) as (app, _):
        await until(lambda: "401 Unauthorized: give a token (+1 more)" in text(app), "the problem")


async def test_no_answer_at_all_shows_the_reason() -> None:
    source = Watched(3, lambda one: replace(one, totals=None, hosts=(), problems=("connection refused",)))
    async with showing(source, wait=False) as (app, _):
        await until(lambda: "connection refused" in text(app), "the reason")


async def test_ascii_only() -> None:
    async with showing(Watched(200), ascii=True) as (app, pilot):
        await pilot.press("enter")
        await until(lambda: "Who has" in text(app), "the page")
        assert text(app).isascii()


async def test_torn_keys_change_nothing() -> None:
    source = Watched(200)
    async with showing(source, (80, 24)) as (app, pilot):
        before = app.screen.asked  # type: ignore[attr-defined]
        await pilot.press(*TORN_KEYS)
        after = app.screen.asked  # type: ignore[attr-defined]
        assert (after.filter, after.sort, after.reverse, after.group_by) == (
            before.filter, before.sort, before.reverse, before.group_by
        )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["-oProxyCommand=touch x", "$(touch x)", "a b", "a;b", "a\nb", "", "a`b`", "@a", "u@-a", "a'b", "a|b", "%h", "a\n"],
)
def test_names_that_ssh_or_a_shell_would_take_for_something_else_are_refused(name: str) -> None:
    with pytest.raises(RefusedName):
        ssh_command(name)


def test_a_host_is_an_argument_after_the_options() -> None:
    assert ssh_command("node-01.cluster") == ["ssh", "-t", "--", "node-01.cluster", "gputop"]
    assert ssh_command("10.0.0.7:9400") == ["ssh", "-t", "--", "10.0.0.7", "gputop"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 0", None),
        ("echo 'Permission denied (publickey).' >&2; exit 255", "h: ssh failed: Permission denied (publickey)."),
        ("exit 127", "h: there is no gputop"),
        ("exit 3", "h: gputop ended there with status 3"),
    ],
)
def test_how_ssh_ended_is_said(tmp_path: Path, script: str, said: str | None) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\n{script}\n")
    ssh.chmod(0o755)
    problem = run_there([str(ssh), "-t", "--", "h", "gputop"])
    assert problem is None if said is None else problem is not None and problem.startswith(said)


def test_no_ssh_is_said(tmp_path: Path) -> None:
    assert "cannot be started" in (run_there([str(tmp_path / "ssh"), "-t", "--", "h", "gputop"]) or "")


async def test_a_refused_name_is_said_and_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("something was started"))
    hostile = Watched(3, lambda one: replace(one, hosts=(replace(one.hosts[0], name="-oProxyCommand=x"),)))
    async with showing(hostile) as (app, pilot):
        await pilot.press("home", "o")
        await until(lambda: any("is not a name" in toast.message for toast in app._notifications), "the toast")
