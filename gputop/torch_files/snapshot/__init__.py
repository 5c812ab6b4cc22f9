"""PyTorch memory snapshots (``torch.cuda.memory._dump_snapshot``): read, replayed, grouped, explained.

``reader`` turns the pickle into columns in a child process; the others compute on these. Drawing them is in
``ui.torch_viewers.snapshot``.
"""
