"""The viewers of PyTorch's files: the frame they share. The views are in ``snapshot`` and ``trace``."""
