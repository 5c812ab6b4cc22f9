"""Many machines: their GPUs, who uses them, and what is free, from whatever a site already has.

* ``model`` is what pages and commands know: hosts, GPUs with their state and usage, sums. ``states`` says what free,
  held but idle and broken mean; ``totals`` sums; ``view`` is what a page asks for (filter, order, group, visible rows)
  and ``filter`` reads its ``/`` text; ``free`` answers ``--free '4 × h100'``.
* ``source`` is the protocol of where it comes from: ``prometheus/`` (an engine that already holds the series of the
  exporters), ``ssh/`` (for those who have none), ``simulated`` (``--demo``).
* ``in_memory`` applies a view to hosts that are all at hand; a source whose sums are made elsewhere does not use it.
* ``text`` and ``json_output`` are ``gputop fleet --once``.

Not here: one machine's GPUs through its driver (``sources``), the screen (``ui/fleet``), the exporter of this machine
(``outputs/prometheus.py``). Nothing here imports Textual.
"""
