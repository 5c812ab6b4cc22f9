"""Signals to processes, sent to the right one or not at all, and what became of them.

``sender`` opens pidfds and compares start times before anything is sent; ``scope`` is who belongs together;
``termination`` is SIGTERM, a grace time, SIGKILL; ``outcome`` and ``reclaim`` verify that the process is gone and its
memory back. The kill dialog that asks is in ``ui.kill``.
"""
