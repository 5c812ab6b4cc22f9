"""Files from inside a process, read safely: PyTorch's memory snapshots and profiler traces."""
