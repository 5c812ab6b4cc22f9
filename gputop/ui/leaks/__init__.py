"""Leaks on the screen. Finding them is in ``gputop.leaks``."""
