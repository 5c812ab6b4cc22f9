"""Where readings come from: one folder a source (``nvml``: NVIDIA's driver; ``simulated``: ``--demo``).

``source`` is the protocol that each of them fulfils, ``query_fields`` what `gputop query` may ask by name. A source
knows *how* to read; *when* is the business of ``gputop.sampling``, and what the host says about a pid is in
``gputop.procfs``. Another vendor's GPUs would be a third folder.
"""
