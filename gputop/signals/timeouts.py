"""How long gputop waits for processes that it signals. Who waits for what is said at each."""

from __future__ import annotations

from typing import Final

#: From SIGTERM to SIGKILL, where the user chose both (``graceful_termination``): the setting ``kill_grace``, 10 s if
#: unchanged. Never without that choice: SIGTERM alone is not followed by anything.
GRACE_SECONDS: Final = 10.0
#: A process that has children is asked alone for this long, so that it can end them itself (``graceful_termination``).
LEADER_ALONE_SECONDS: Final = 2.0
#: A process that still runs this long after a signal that should end it is offered SIGKILL (``terminations``).
OFFER_SIGKILL_SECONDS: Final = 5.0
#: Where nothing is wrong SIGKILL takes less; afterwards the process is called stuck, if it is in state D.
STUCK_SECONDS: Final = 1.0
#: The driver gets this long after an exit to free the memory: tens of GiB take it some seconds.
MEMORY_BACK_SECONDS: Final = 10.0
