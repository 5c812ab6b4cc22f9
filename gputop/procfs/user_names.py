"""Names of users: the name service may be a slow network one, or hang."""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from gputop.model import clean_text
from gputop.procfs.lookups import Key, Lookups

#: A number without a name is looked up again after this long: the name service may have been away.
AGAIN_SECONDS: Final = 600.0
MAX_NAMES: Final = 4096


class UserNames:
    """Asks for each name once, and waits for a late one but once: its number stands in until it is there. May be used
    from any thread."""

    def __init__(self, lookups: Lookups | None = None) -> None:
        self.lookups = lookups or Lookups()
        self._names: dict[int, str] = {}
        self._nameless: dict[int, float] = {}  # when that was told (monotonic)

    def name(self, uid: int | None) -> str | None:
        """The name, the number as text where it has none or that is not known yet, None for None."""
        if uid is None:
            return None
        if uid not in self._names:
            self.take(self.lookups.ask(self.calls((uid,))))
        return self._names.get(uid, str(uid))

    def calls(self, uids: Iterable[int | None]) -> dict[Key, Callable[[], str | None]]:
        """The look-ups that names of *uids* still take; :meth:`take` wants what they answer."""
        wanted = {uid for uid in uids if uid is not None and uid not in self._names}
        return {("user", uid): partial(_name, uid) for uid in wanted if not self._is_nameless(uid)}

    def take(self, answers: Mapping[Key, Any]) -> None:
        for key, name in answers.items():
            if isinstance(key, tuple) and key[0] == "user":
                if len(self._names) + len(self._nameless) >= MAX_NAMES:
                    self._names.clear()
                    self._nameless.clear()
                if name is None:
                    self._nameless[key[1]] = time.monotonic()
                else:
                    self._names[key[1]] = name

    def waits(self, uid: int | None) -> bool:
        """Whether the name service has not answered for *uid* yet."""
        return self.lookups.waits(("user", uid))

    def _is_nameless(self, uid: int) -> bool:
        told_at = self._nameless.get(uid)
        return told_at is not None and time.monotonic() - told_at < AGAIN_SECONDS


def _name(uid: int) -> str | None:
    try:
        return clean_text(pwd.getpwuid(uid).pw_name, limit=64)
    except KeyError:
        return None
