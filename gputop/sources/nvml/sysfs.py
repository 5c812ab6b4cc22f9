"""What sysfs and /proc say about GPUs without touching (and waking) them."""

from __future__ import annotations

from pathlib import Path


def host_memory(root: Path = Path("/")) -> int | None:
    """MemTotal of /proc/meminfo, in bytes."""
    try:
        with open(root / "proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemTotal:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
