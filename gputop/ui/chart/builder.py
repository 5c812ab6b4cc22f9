"""Builds history charts on a thread of its own, seldom enough that nobody notices.

Drawing one takes 10 to 20 ms of pure Python, which no event loop should wait for. The thread draws the newest request
only, at most once a second, and pays for each picture with a pause: it takes no more than *share* of a core whatever
the machine, the size or the number of curves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gputop.history.gpu_history import History
from gputop.model import clean_text
from gputop.ui.chart.picture import ChartPane, ChartStyle, Curve, Painter, PanePicture

SHARE: Final = 0.025  # of a core, at most
LEAST_INTERVAL: Final = 1.0  # seconds between two pictures of the same size and subject…
_CURVE_INTERVAL: Final = 0.5  # … and for each curve: more of them is more to write
_MOST_DEBT: Final = 5.0  # seconds that pictures of new sizes (a window dragged larger) may put off the next ones


@dataclass(frozen=True, slots=True)
class ChartRequest:
    """What is to be drawn. *history* is read when it is; *now* (epoch seconds) is where the time axis ends."""

    panes: tuple[ChartPane, ...]
    look: ChartStyle
    curves: tuple[Curve, ...]
    history: History
    now: float
    jump: int = 0  # counts up where the history is another one than before: the picture cannot wait then

    @property
    def subject(self) -> tuple[object, ...]:
        """What makes another picture necessary at once when it changes."""
        return self.panes, self.look, self.curves, self.jump


@dataclass(frozen=True, slots=True)
class Picture:
    """The answer: the picture of each pane, or why there are none."""

    request: ChartRequest
    panes: tuple[PanePicture, ...]
    cpu_seconds: float
    error: str | None = None


class ChartBuilder:
    """*deliver* is called in the builder's thread with each picture; it must only hand it on."""

    def __init__(self, deliver: Callable[[Picture], object], share: float = SHARE) -> None:
        self._deliver = deliver
        self._share = share
        self._changed = threading.Condition()
        self._request: ChartRequest | None = None
        self._drawn: tuple[object, ...] | None = None  # the subject of the last picture
        self._due = 0.0  # monotonic time before which the same subject is not drawn again
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._painter = Painter()

    def request(self, request: ChartRequest) -> None:
        """Draw *request* when the next picture is due, at once where its subject is new. The newest one counts."""
        with self._changed:
            if self._stopped:
                return
            waiting, self._request = self._request, request
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gputop-chart", daemon=True)
                self._thread.start()
            elif waiting is None or waiting.subject != request.subject:  # else it waits for the same one to be due
                self._changed.notify()

    def cancel(self) -> None:
        """Draw nothing until the next request (the chart is hidden)."""
        with self._changed:
            self._request = None

    def stop(self) -> None:
        """End the thread; not waited for."""
        with self._changed:
            self._stopped, self._request = True, None
            self._changed.notify()

    def _next(self) -> ChartRequest | None:
        """Wait for a request that is due. None: stopped."""
        with self._changed:
            while not self._stopped:
                request = self._request
                if request is None:
                    self._changed.wait()
                    continue
                wait = self._due - time.monotonic()
                if request.subject != self._drawn or wait <= 0:
                    self._request = None
                    return request
                self._changed.wait(wait)
            return None

    def _run(self) -> None:
        while (request := self._next()) is not None:
            started = time.monotonic()
            picture = self._build(request)
            least = max(LEAST_INTERVAL, _CURVE_INTERVAL * len(request.curves))
            pause = max(least, self._dot_seconds(picture), picture.cpu_seconds / self._share)
            self._drawn = request.subject
            self._due = min(max(self._due, started) + pause, started + max(pause, _MOST_DEBT))
            self._deliver(picture)

    def _dot_seconds(self, picture: Picture) -> float:
        """Seconds of the narrowest dot: nothing new is to be seen sooner. At most 5."""
        return min([5.0, *(pane.axis.seconds for pane in picture.panes if pane.axis is not None)])

    def _build(self, request: ChartRequest) -> Picture:
        started = time.thread_time()
        panes: list[PanePicture] = []
        error = None
        try:
            self._painter.prepare()
            started = time.thread_time()  # loading plotext happens once, and is no reason for a pause
            self._painter.keep_only(request.curves, tuple(pane.metric for pane in request.panes))
            for pane in request.panes:
                panes.append(self._painter.paint(pane, request.look, request.curves, request.history, request.now))
                time.sleep(0)  # let the event loop have the interpreter between two panes
        except Exception as e:  # plotext is not ours: whatever it raises is shown, and the dashboard lives on
            error = clean_text(f"the chart cannot be drawn: {type(e).__name__}: {e}", 200)
            self._painter = Painter()
        return Picture(request, tuple(panes), time.thread_time() - started, error)
