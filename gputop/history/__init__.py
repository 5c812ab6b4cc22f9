"""What is kept of snapshots: rings of samples a GPU, the largest processes, the list of events.

``gpu_history`` (of GPUs, for curves and trends; ``history_until``: as it was at an earlier moment), ``detail_history``
(of the largest processes, for their pages), ``journal`` (what came, exited, jumped, was lost, throttled). The poller
fills the first before it publishes. Not here: what a leak rule remembers of a process (``leaks.process_history``), and
recordings (``recording``).
"""
