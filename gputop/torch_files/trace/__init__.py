"""What PyTorch's profiler wrote: chrome traces and memory timelines, read as a stream, in bounded memory.

``profiler_file`` gives a file's bytes, ``reader`` and ``event_parser`` make columns of ``events`` of a trace;
``profiler_trace`` is what one file tells, of it ``op_table`` (as ``key_averages()``) with its ``callers``, and
``memory_curve``. ``memory_timeline`` is what ``export_memory_timeline()`` wrote. Drawing them is in
``ui.torch_viewers.trace``.
"""
