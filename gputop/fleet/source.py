"""The protocol of where fleets come from.

Who calls what, from which thread
* ``open()`` once, before anything else; then ``poll()`` again and again; ``close()`` once, at the end.
* No method but ``close()`` and reading the attributes is called on the event loop: all others may block. ``poll``,
  ``host``, ``hosts`` and ``history`` may be called from several threads at the same time (the screen has one worker for
  ``poll`` and one for ``history`` and ``host``), so a source locks what they share, and holds no lock while it waits
  for the network: a slow ``history`` never keeps a ``poll``.
* ``close()`` may be called from any thread, at any time, twice too. It returns at once (within 100 ms); calls that wait
  end soon after, with what they have. After it, the results of calls are worth nothing.

When
* A screen calls ``poll(view)`` each ``refresh_seconds``, measured from the answer, and at once (from the same worker)
  when its view changed: typed filter, order, scrolled rows. It asks for the rows it shows and no more, so a source may
  fetch as little. A source whose data stream in (ssh) answers from memory within a few milliseconds.
* ``poll`` blocks for at most ``timeout_seconds`` in all. A screen goes on with the last snapshot meanwhile.

Errors are data
* ``open()`` raises SourceError where going on makes no sense: a wrong URL, a host name no shell may see, a file that
  cannot be read. What may pass (engine down, 401, 503, all hosts unreachable) is no reason: it is in ``problems`` of
  the next snapshot.
* ``poll`` and the others never raise for what the other side does. ``poll`` answers the last good figures with their
  ``taken_at`` and says in ``problems`` what failed; before there are any, ``totals`` is None.
* A host that does not answer is a row of state ``unreachable`` with its ``reason``, never a missing row.
"""

from __future__ import annotations

from typing import Protocol

from gputop.fleet.model import FleetHost, FleetSnapshot, History, HistoryRequest
from gputop.fleet.view import FleetView


class FleetSource(Protocol):
    """See the module's docstring for threads, times and errors."""

    name: str  # as people would say it: "prometheus https://prom:9090", "ssh, 100 hosts", "simulated"

    @property
    def refresh_seconds(self) -> float:
        """How soon polling again tells something new; ask after each poll: at first it may be sooner."""
        ...

    timeout_seconds: float  # what a poll may take at most
    has_past: bool  # whether history() knows times before open(), e.g. an engine's; else only since then

    def open(self) -> None:
        """Check what can be checked at once and begin; takes no longer than a second. Raises SourceError."""
        ...

    def poll(self, view: FleetView) -> FleetSnapshot:
        """Sums of everything (``totals``, ``by_model``), the rows and, if asked for, the groups of *view*."""
        ...

    def host(self, name: str) -> FleetHost | None:
        """All that is known of one host now, for its page: more of each GPU than a row needs, labels, processes. None
        where there is no such host."""
        ...

    def hosts(self) -> tuple[FleetHost, ...]:
        """All hosts, in the order of their names: for ``--once --json`` and ``--free``, never for a screen."""
        ...

    def history(self, request: HistoryRequest) -> History:
        """The past of a quantity, of the fleet or a host; in ``problem`` why there is none."""
        ...

    def close(self) -> None:
        """Let go of everything: connections, processes, threads."""
        ...
