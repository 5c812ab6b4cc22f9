"""One file for each thing that a GPU reports: memory, processes, PCIe, NVLink, GPM, MIG, utilization, topology.

Each prepares its calls with ``driver`` and returns values of the model. When it is asked is up to ``fast_tier`` and
``background_tiers``.
"""
