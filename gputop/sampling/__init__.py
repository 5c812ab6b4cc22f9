"""The beat: an asynchronous NVML poller publishes snapshots onto a message bus.

``poller`` decides when to sample, ``reader_threads`` may block in the driver, ``snapshot_builder`` puts GPU and host
readings together, ``bus`` carries the result onto the event loop. ``history`` (of GPUs), ``detail_history`` (of the
largest processes) and ``journal`` are what is kept of it; ``sampler`` is what a screen may ask of the poller or of the
``player`` of a recording; ``one_shot`` is one snapshot.
Not here: how a quantity is read (``sources``, ``procfs``), and anything that draws.
"""
