"""Leaks and alarms on the screen. Finding them is in ``gputop.leaks`` and ``gputop.alarms``."""
