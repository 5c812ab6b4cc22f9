"""For a training script: what PyTorch's caching allocator holds, by step and phase, seen live by a running gputop.

::

    from gputop.torch_monitor import MemoryMonitor

    with MemoryMonitor() as monitor:
        for epoch, batch in enumerate(loader):
            with monitor.phase("forward"):
                loss = model(batch)
            with monitor.phase("backward"):
                loss.backward()
            monitor.step(epoch=epoch)  # labels: numbers or words, shown in gputop

It imports no torch (it uses the one that the script imported), never initialises CUDA, never synchronises and starts
no thread. Without torch, or before CUDA is used, it does nothing. Nothing it does for gputop raises into the script.

Both ends of the talk between a training process and gputop live here; they meet in ``runtime_directory``, small files
in a directory of the user's own.

* In the training process, and all that ``import gputop.torch_monitor`` loads: ``monitor`` (what the script calls) is a
  ``tracker`` (what was sampled of the ``allocator``) with an ``oom`` report and a ``publisher``; ``adapters`` put it
  into training frameworks.
* In gputop: ``reports`` reads what processes published and asks them for snapshots; ``process_memory`` tells a
  process's GPU memory apart with it.

Files that torch itself writes are read in :mod:`gputop.torch_files`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputop.torch_monitor.allocator import DeviceMemory
from gputop.torch_monitor.monitor import Alarm, MemoryMonitor
from gputop.torch_monitor.tracker import Phase, Step

if TYPE_CHECKING:
    from gputop.torch_monitor.adapters import accelerate_tracker, lightning_callback, trainer_callback

__all__ = [
    "Alarm",
    "DeviceMemory",
    "MemoryMonitor",
    "Phase",
    "Step",
    "accelerate_tracker",
    "lightning_callback",
    "trainer_callback",
]


def __getattr__(name: str) -> Any:
    if name in ("accelerate_tracker", "lightning_callback", "trainer_callback"):
        from gputop.torch_monitor import adapters

        return getattr(adapters, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
