"""PyTorch memory snapshots (``torch.cuda.memory._dump_snapshot``): read, replayed, grouped, explained.

In a child process ``schema`` knows the forms since torch 1.8, and ``reader`` makes columns of one; in ours
``memory_snapshot`` maps these, and the others compute on them: ``summary`` is the page of text, ``json_report`` the
figures. Drawing them is in ``ui.torch_viewers.snapshot``.
"""
