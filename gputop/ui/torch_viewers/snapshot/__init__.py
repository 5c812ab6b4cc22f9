"""The views of a memory snapshot. What they show is computed in ``gputop.torch_files.snapshot``."""
