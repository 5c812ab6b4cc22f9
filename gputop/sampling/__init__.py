"""Sampling: an asynchronous NVML poller publishes snapshots onto a message bus.

``poller`` decides when to sample. A ``sweeper`` reads all GPUs in ``reader_threads``, which may block in the driver,
and joins them with what ``host_side`` read of /proc (``snapshot_builder``); ``slow_tiers`` reads what changes slowly,
behind the ``driver_gate``. ``bus`` carries ``messages`` onto the event loop. ``one_shot`` is one snapshot, by
two sweeps. ``shown_time`` is which moment is on the screen: now, the past (``history_until`` then), or a recording's.
``sampler`` is what a screen may ask of the poller or of the ``player`` of a recording.

Not here: what is kept of snapshots (``history``), how a quantity is read (``sources``, ``procfs``), anything
that draws.
"""
