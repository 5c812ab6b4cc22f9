"""The monitor inside training frameworks. Each function imports its framework when it is called.

::

    Trainer(callbacks=[lightning_callback()])                    # Lightning, as lightning or pytorch_lightning
    Trainer(..., callbacks=[trainer_callback()])                 # Hugging Face transformers
    Accelerator(log_with=accelerate_tracker())                   # Accelerate: each accelerator.log() is a step
"""

from __future__ import annotations

import importlib
from typing import Any

from gputop.torch_monitor.monitor import MemoryMonitor


def lightning_callback(monitor: MemoryMonitor | None = None) -> Any:
    """A Lightning callback: a step a training batch, phases forward, backward and optimizer."""
    try:
        base: Any = importlib.import_module("lightning.pytorch").Callback
    except ImportError:
        base = importlib.import_module("pytorch_lightning").Callback

    class GputopCallback(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.monitor = monitor or MemoryMonitor()

        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            self.monitor.enter("forward")

        def on_before_backward(self, *_: Any) -> None:
            self._next("backward")

        def on_after_backward(self, *_: Any) -> None:
            self.monitor.leave()

        def on_before_optimizer_step(self, *_: Any) -> None:
            self.monitor.enter("optimizer")

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            while self.monitor.phase_now is not None:
                self.monitor.leave()
            self.monitor.step(epoch=trainer.current_epoch, global_step=trainer.global_step)

        def teardown(self, *_: Any) -> None:
            self.monitor.close()

        def _next(self, name: str) -> None:
            self.monitor.leave()
            self.monitor.enter(name)

    return GputopCallback()


def trainer_callback(monitor: MemoryMonitor | None = None) -> Any:
    """A callback for Hugging Face's Trainer: a step an optimizer step."""
    base: Any = importlib.import_module("transformers").TrainerCallback

    class GputopCallback(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.monitor = monitor or MemoryMonitor()

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.monitor.enter("forward+backward")

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            self.monitor.leave()
            self.monitor.enter("optimizer")

        def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            while self.monitor.phase_now is not None:
                self.monitor.leave()
            self.monitor.step(global_step=state.global_step)

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.monitor.close()

    return GputopCallback()


def accelerate_tracker(monitor: MemoryMonitor | None = None) -> Any:
    """A tracker for Accelerate: each ``accelerator.log()`` is a step."""
    base: Any = importlib.import_module("accelerate.tracking").GeneralTracker

    class GputopTracker(base):  # type: ignore[misc]
        name = "gputop"
        requires_logging_directory = False

        def __init__(self) -> None:
            super().__init__()
            self.monitor = monitor or MemoryMonitor()

        @property
        def tracker(self) -> MemoryMonitor:
            return self.monitor

        def store_init_configuration(self, values: Any) -> None:
            pass

        def log(self, values: Any, step: int | None = None, **_: Any) -> None:
            self.monitor.step(**({} if step is None else {"step": step}))

        def finish(self) -> None:
            self.monitor.close()

    return GputopTracker()
