"""The kill dialog: who will get which signal, and what became of them. Sending is in ``gputop.signals``."""
