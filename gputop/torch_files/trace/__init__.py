"""PyTorch Profiler traces and memory timelines: read as a stream, summed like ``key_averages()``.

Drawing them is in ``ui.torch_viewers.trace``.
"""
