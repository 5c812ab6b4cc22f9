"""gputop as it is, with a note of each snapshot in the file $GPUTOP_PROBE: when its GPUs were read (oldest), when it
was published, how long the sweep took, whether the interval was stretched. Seconds; wall clock."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def install(file: Path) -> None:
    from gputop.sampling import poller

    publish = poller.Poller._publish
    out = file.open("w", buffering=1)

    def noted(self: poller.Poller, snapshot: Any) -> None:
        read_at = min((gpu.read_at for gpu in snapshot.gpus), default=snapshot.taken_at)
        out.write(json.dumps([read_at, time.time(), snapshot.took, snapshot.interval]) + "\n")
        publish(self, snapshot)

    poller.Poller._publish = noted  # type: ignore[method-assign]


if __name__ == "__main__":
    install(Path(os.environ["GPUTOP_PROBE"]))
    from gputop.cli import main

    sys.exit(main())
