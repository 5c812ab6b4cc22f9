"""The views of a profiler trace. What they show is computed in ``gputop.torch_files.trace``."""
