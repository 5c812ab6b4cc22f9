"""Keys and clicks in the order they came, each after what the one before it has done."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final, TypeAlias, TypeVar

from textual import events
from textual.app import App, ScreenStackError
from textual.dom import DOMNode
from textual.message_pump import MessagePump
from textual.timer import Timer

ReturnT = TypeVar("ReturnT")
_Typed: TypeAlias = events.Key | events.Paste | events.MouseDown | events.MouseUp  # a click does not overtake keys
_PATIENCE: Final = 2.0  # seconds; should a widget vanish with the mark, keys must not wait for it for ever


class TypeaheadApp(App[ReturnT]):
    """Hands out a key only when the one before it was acted on.

    Textual sends each key to what has the focus *now*; what the key does happens later. A slow link delivers keys in
    bunches: of ``/kill``, the letters would go to the table, whose ``k`` opens the kill dialog, instead of the prompt
    that ``/`` opens.

    A mark follows each key the way it goes, through the queues from the focused widget up to the application: when it
    arrives, the key has been acted on.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[_Typed] = deque()
        self._mark: object | None = None  # of the key that was handed out
        self._guard: Timer | None = None

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, _Typed) or event.is_forwarded:
            await super().on_event(event)
        elif self._mark is not None:
            self._waiting.append(event)
        else:
            await self._hand_out(event)

    async def _hand_out(self, event: _Typed) -> None:
        try:
            target = self.focused or self.screen
        except ScreenStackError:  # the application ends: nobody is there to take it
            return
        mark = self._mark = object()
        self._guard = self.set_timer(_PATIENCE, partial(self._arrived, mark))
        await super().on_event(event)
        self._follow(target, mark)

    def _follow(self, node: MessagePump | None, mark: object) -> None:
        """Put *mark* behind the key in the queue of *node*; from there it goes on to the parent's."""
        while node is not None and node is not self:
            parent = node.parent if isinstance(node, DOMNode) else None
            if node.call_later(self._follow, parent, mark):
                return
            node = parent  # that one is closed
        self.call_later(self._arrived, mark)

    async def _arrived(self, mark: object) -> None:
        if mark is not self._mark:
            return  # it was given up
        self._mark = None
        if self._guard is not None:
            self._guard.stop()
        if self._waiting:
            await self._hand_out(self._waiting.popleft())
