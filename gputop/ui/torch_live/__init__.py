"""What a running process tells through ``gputop.torch_monitor``, and asking it for a memory snapshot."""
