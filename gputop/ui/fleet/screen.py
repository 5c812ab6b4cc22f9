"""The list of hosts, or of groups: sums above, rows below, the source asked from a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from textual import events
from textual.timer import Timer

from gputop.fleet.filter import FleetFilter
from gputop.fleet.model import FleetHost, FleetSnapshot
from gputop.fleet.source import FleetSource
from gputop.fleet.totals import GROUPS
from gputop.fleet.view import FleetView, HostSort
from gputop.text import fit, width
from gputop.ui.fleet import head, rows
from gputop.ui.fleet.choice import SORTS, ChoiceDialog
from gputop.ui.fleet.help_screen import FleetHelp
from gputop.ui.fleet.host_screen import HostScreen
from gputop.ui.fleet.keys import ACTIONS, KEYS
from gputop.ui.fleet.past import Past, ask_past, past_lines
from gputop.ui.fleet.worker import NewestOnly
from gputop.ui.footer import footer_line
from gputop.ui.keys import Key
from gputop.ui.toolkit.cells import Line
from gputop.ui.toolkit.full_screen import FullScreen
from gputop.ui.toolkit.text_entry import Entry
from gputop.ui.toolkit.view import View

_TICK_SECONDS: Final = 1.0  # the age of what is shown
_LATE_REFRESHES: Final = 2.5  # as often without an answer, and it is said
_REST_SECONDS: Final = 0.4  # the cursor stands, before the past of its host is asked for
_PAST_SECONDS: Final = 30.0  # how often the past is asked for again
_CHARTS: Final = ("fleet", "host", "both", "none")


class FleetScreen(FullScreen[None]):
    """Shows the newest answer; what is late keeps the last one, with its age."""

    least_size: ClassVar[tuple[int, int]] = (40, 8)

    def __init__(self, source: FleetSource, asked: FleetView, view: View, open_there: Callable[[str], None]) -> None:
        super().__init__()
        self._source, self._view, self._open_there = source, view, open_there
        self.asked = replace(asked, first=0, count=1)
        self.snapshot: FleetSnapshot | None = None
        self._answers: FleetView | None = None  # the view that the snapshot is of
        self._hosts: dict[int, FleetHost] = {}  # rows that were read, by their place; of that view
        self.cursor = 0
        self._first = 0
        self._room = 1  # rows of the list
        self._name_cells = 8  # names seen so far
        self._waiting_since: float | None = None
        self._prompt: Entry | None = None
        self._chart: str | None = None  # None: as many as there is room for
        self._past: dict[str | None, tuple[float, Past]] = {}
        self._places: list[tuple[int, int, Key]] = []
        self._worker: NewestOnly | None = None
        self._past_worker: NewestOnly | None = None
        self._next: Timer | None = None
        self._rest: Timer | None = None

    @property
    def view(self) -> View:
        return self._view

    # asking

    def on_mount(self) -> None:
        super().on_mount()
        self._worker = NewestOnly(self, "gputop-fleet-poll")
        self._past_worker = NewestOnly(self, "gputop-fleet-past")
        self._room = max(1, self.app.size.height - 5)  # no more will be seen
        self._ask()
        self.set_interval(_TICK_SECONDS, self._tick)

    def on_unmount(self) -> None:
        for worker in (self._worker, self._past_worker):
            if worker is not None:
                worker.end()

    def _ask(self) -> None:
        """For the rows that are seen, as soon as the source is done with what it was asked before."""
        if self._worker is None:
            return
        if self._next is not None:
            self._next.stop()
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()
        asked = self.asked = replace(self.asked, first=self._first, count=max(1, self._room))
        self._worker.submit(lambda: (asked, self._source.poll(asked)), self._answered)

    def _answered(self, answer: tuple[FleetView, FleetSnapshot]) -> None:
        asked, snapshot = answer
        here = self.host_at_cursor
        if self._answers is None or _rows_of(self._answers) != _rows_of(asked):
            self._hosts.clear()
        self._answers, self.snapshot = asked, snapshot
        self._hosts.update(enumerate(snapshot.hosts, snapshot.first))
        self._hosts = {place: host for place, host in self._hosts.items() if place < snapshot.hosts_matched}
        self._follow(here, snapshot)
        if asked == self.asked:
            self._waiting_since = None
        self._ask_past()
        if self._next is not None:
            self._next.stop()
        self._next = self.set_timer(self._source.refresh_seconds, self._ask)
        self.draw()

    def _follow(self, here: FleetHost | None, snapshot: FleetSnapshot) -> None:
        """The cursor stays on its host where that is still seen."""
        names = [host.name for host in snapshot.hosts]
        if here is not None and self.cursor and here.name in names:
            self.cursor = snapshot.first + names.index(here.name)

    def _tick(self) -> None:
        if self.is_current:
            self._ask_past()
            self.draw()

    def _ask_past(self) -> None:
        if self.snapshot is None or self.snapshot.totals is None:
            return  # before it was read once, a source may not know what to ask for
        now = time.time()
        shown = self._charts()
        wanted: list[str | None] = [None] if "fleet" in shown else []
        here = self.host_at_cursor
        if "host" in shown and here is not None and self._rest is None:
            wanted.append(here.name)
        due = [of for of in wanted if of not in self._past or now - self._past[of][0] >= _PAST_SECONDS]
        if not due or self._past_worker is None:
            return
        for of in due:
            self._past[of] = now, self._past.get(of, (0.0, {}))[1]
        self._past_worker.submit(lambda: {of: ask_past(self._source, of, now) for of in due}, self._past_came)

    def _past_came(self, found: dict[str | None, Past]) -> None:
        now = time.time()
        self._past = {of: kept for of, kept in self._past.items() if of is None or now - kept[0] < 10 * _PAST_SECONDS}
        for of, past in found.items():
            failed = any(history.problem for history in past.values())
            self._past[of] = (now - _PAST_SECONDS + self._source.refresh_seconds if failed else now), past
        self.draw()

    # what is shown

    @property
    def host_at_cursor(self) -> FleetHost | None:
        return None if self.asked.group_by else self._hosts.get(self.cursor)

    @property
    def _total(self) -> int:
        """Rows there are."""
        if self.snapshot is None:
            return 0
        return len(self.snapshot.groups) if self.asked.group_by else self.snapshot.hosts_matched

    def _charts(self) -> tuple[str, ...]:
        rows_ = self.app.size.height
        chosen = self._chart or ("both" if rows_ >= 50 else "fleet" if rows_ >= 30 else "none")
        charts = {"none": (), "both": ("fleet", "host")}.get(chosen, (chosen,))
        return charts if rows_ >= 16 else ()

    def picture(self, cells: int, rows_: int) -> Sequence[Line]:
        snapshot = self.snapshot
        totals = snapshot.totals if snapshot is not None else None
        name = snapshot.source if snapshot is not None else self._source.name
        age = head.age_of(snapshot, self._waited, _LATE_REFRESHES * self._source.refresh_seconds)
        lines: list[Line] = [head.header_line(name, totals, *age, cells, self.view)]
        if snapshot is None or totals is None:
            lines += head.no_figures(name, snapshot, self._waited, cells, self.view)
            lines += [()] * (rows_ - 1 - len(lines))
            return [*lines[: rows_ - 1], self._bottom(cells)]
        lines += head.sum_lines(totals, cells, self.view)
        lines += head.model_lines(snapshot.by_model, cells, 6 if rows_ >= 36 else 0)
        height = 4 if rows_ < 45 else 6
        for of in self._charts():
            lines += self._chart_lines(of, cells, height)
        lines += head.problem_lines(snapshot, cells, self.view)
        self._room = max(1, rows_ - len(lines) - 2)
        self._keep_in_sight()
        lines += self._list(snapshot, cells)
        lines += [()] * (rows_ - 1 - len(lines))
        asked_end = self.asked.first + (self.asked.count or 0)
        if not self.asked.group_by and not self.asked.first <= self._first <= asked_end - self._room:
            self._ask()
        return [*lines[: rows_ - 1], self._bottom(cells)]

    @property
    def _waited(self) -> float:
        """Seconds without the answer to what is asked."""
        return 0.0 if self._waiting_since is None else time.monotonic() - self._waiting_since

    def _chart_lines(self, of: str, cells: int, height: int) -> list[Line]:
        here = self.host_at_cursor
        if of == "host" and here is None:
            return [()] * height
        key = here.name if of == "host" and here is not None else None
        total = here.memory_total_bytes if of == "host" and here is not None else None
        if of == "fleet" and self.snapshot is not None and self.snapshot.totals is not None:
            total = self.snapshot.totals.memory_total_bytes
        past = self._past.get(key, (0.0, {}))[1]
        return past_lines(past, key or "", total, cells, height, self.view)

    def _list(self, snapshot: FleetSnapshot, cells: int) -> list[Line]:
        places = range(self._first, min(self._total, self._first + self._room))
        if self.asked.group_by:
            name = max([8, *(width(group.label) for group in snapshot.groups)])
            name = min(name, max(12, cells - 59))
            by = self.asked.group_by
            if self._answers is None or self._answers.group_by != by:
                return [rows.group_title(by, name, cells), ((" asking…", "dim"),)]
            return [
                rows.group_title(by, name, cells),
                *(rows.group_line(snapshot.groups[n], by, name, cells, self.view, n == self.cursor) for n in places),
            ]
        seen = [self._hosts[n] for n in places if n in self._hosts]
        columns = rows.HostColumns.of(seen, cells, self._name_cells)
        self._name_cells = max([self._name_cells, *(width(host.name) for host in seen)])
        lines = [rows.title_line(columns, self.view)]
        for n in places:
            host = self._hosts.get(n)
            chosen = n == self.cursor
            lines.append(
                rows.waiting_line(columns, self.view, chosen) if host is None
                else rows.host_line(host, columns, self.view, chosen)
            )  # fmt: skip
        if not places:
            lines.append(((" no host passes the filter" if self.asked.filter else " no hosts", "dim"),))
        elif not seen and snapshot.problems and self._waiting_since is None:
            lines[1:] = [((" the hosts could not be read; see above", "dim"),)]
        return lines

    def _bottom(self, cells: int) -> Line:
        if self._prompt is not None:
            problems = self.asked.filter.problems
            label = f" {problems[0]} " if problems else " Filter: "
            label = fit(label, min(width(label), cells * 2 // 3))
            return ((label, "warning+b@bar" if problems else "key+b@bar"), *self._prompt.line(cells - width(label)))
        said = self._said()
        room = cells - width(said)
        line, self._places = footer_line([key for key in KEYS if key.footer], room)
        return (*line, (said, "accent@bar"))

    def _said(self) -> str:
        """Filter, order and place, at the right of the keys."""
        parts = [f"/{self.asked.filter.text}"] if self.asked.filter.text else []
        if self.asked.sort is not HostSort.NAME and not self.asked.group_by:
            parts.append(f"by {self.asked.sort.value}")
        matched = self.snapshot.matched if self.snapshot is not None else None
        if matched is not None and self.asked.filter:
            parts.append(f"{matched.gpus_free} of {matched.gpus} free")
        if self._total:
            parts.append(f"{self.cursor + 1}/{self._total}")
        return fit(f" {' '.join(parts)} ", min(width(" ".join(parts)) + 2, self.app.size.width // 2))

    def _keep_in_sight(self) -> None:
        self.cursor = max(0, min(self.cursor, self._total - 1))
        self._first = max(0, min(self._first, self.cursor, max(0, self._total - self._room)))
        self._first = max(self._first, self.cursor - self._room + 1)

    # keys

    def take(self, event: events.Key) -> bool:
        if self._prompt is not None:
            return self._type(event, self._prompt)
        page = max(1, self._room - 1)
        steps = {"down": 1, "up": -1, "pagedown": page, "pageup": -page, "home": -self._total, "end": self._total}
        if event.key in steps:
            self._move(self.cursor + steps[event.key])
            return True
        action = ACTIONS.get(event.key)
        if action is None:
            return False
        self._act(action)
        return True

    def _act(self, action: str) -> None:
        match action:
            case "help":
                self.app.push_screen(FleetHelp(self.view))
            case "filter":
                self._prompt = Entry(self.asked.filter.text)
            case "sort":
                choices = [(sort.value, about) for sort, about in SORTS.items()]
                self.app.push_screen(ChoiceDialog("Sort by", choices, self.asked.sort.value, self.view), self._sort)
            case "group":
                choices = [("", "a line for each host"), *((name, "") for name in self._group_names())]
                self.app.push_screen(ChoiceDialog("Group by", choices, self.asked.group_by, self.view), self._group)
            case "invert":
                self._change(replace(self.asked, reverse=not self.asked.reverse))
            case "chart":
                shown = self._charts()
                now = "both" if len(shown) == 2 else shown[0] if shown else "none"
                self._chart = _CHARTS[(_CHARTS.index(now) + 1) % len(_CHARTS)]
                self._ask_past()
            case "page":
                self._enter()
            case "there":
                if (host := self.host_at_cursor) is not None:
                    self._open_there(host.name)
            case "back":
                if self.asked.filter.text:
                    self._change(replace(self.asked, filter=FleetFilter()))
                elif self.asked.group_by:
                    self._change(replace(self.asked, group_by=""))
            case "quit":
                self.app.exit(return_code=0)

    def _group_names(self) -> list[str]:
        labels = {label for host in self._hosts.values() for label in host.labels}
        return [*(name for name in GROUPS if name != "host"), *sorted(labels - set(GROUPS))]

    def _sort(self, chosen: str | None) -> None:
        if chosen is not None:
            self._change(replace(self.asked, sort=HostSort(chosen), reverse=False))

    def _group(self, chosen: str | None) -> None:
        if chosen is not None:
            self._change(replace(self.asked, group_by=chosen))

    def _enter(self) -> None:
        snapshot = self.snapshot
        if self.asked.group_by and snapshot is not None and self.cursor < len(snapshot.groups):
            label = snapshot.groups[self.cursor].label
            if label:
                value = f'"{label}"' if " " in label else label
                text = f"{self.asked.filter.text} {self.asked.group_by}:{value}".strip()
                self._change(replace(self.asked, group_by="", filter=FleetFilter.parse(text)))
        elif (host := self.host_at_cursor) is not None:
            self.app.push_screen(HostScreen(self._source, host, self.view, self._open_there))

    def _change(self, asked: FleetView) -> None:
        """Ask for something else from now on; the old rows are shown until the answer."""
        self.asked = asked
        self.cursor = self._first = 0
        self._ask()
        self.draw()

    def _type(self, event: events.Key, prompt: Entry) -> bool:
        if event.key == "escape":
            self._prompt = None
            self._filter("")
        elif event.key == "enter":
            self._prompt = None
        elif prompt.key(event):
            self._filter(prompt.text)
        else:
            return False
        return True

    def _filter(self, text: str) -> None:
        if text != self.asked.filter.text:
            self._change(replace(self.asked, filter=FleetFilter.parse(text)))

    def _move(self, to: int) -> None:
        self.cursor = max(0, min(self._total - 1, to))
        if self._rest is not None:
            self._rest.stop()
        self._rest = self.set_timer(_REST_SECONDS, self._rested)

    def _rested(self) -> None:
        self._rest = None
        self._ask_past()

    # the mouse

    def on_click(self, event: events.Click) -> None:
        if event.y == self.app.size.height - 1:
            for start, end, key in self._places:
                if start <= event.x < end and self._prompt is None:
                    self._act(key.action)
        else:
            first = self.app.size.height - 1 - self._room
            place = self._first + event.y - first
            if event.y >= first and place < self._total:
                if place == self.cursor:
                    self._enter()
                else:
                    self._move(place)
        if self.is_current:
            self.draw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._move(self.cursor + 3)
        self.draw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._move(self.cursor - 3)
        self.draw()


def _rows_of(view: FleetView) -> tuple[object, ...]:
    """What decides which host stands in which place."""
    return view.filter, view.sort, view.reverse
