"""Recordings: snapshots as lines of JSON (``lines``), those lines in a file that survives anything (``container``), and
a cursor in such a file (``reading``). ``when`` reads a time as somebody types it; ``tape`` is a recording in memory.
docs/recording.md describes the format.

Nothing here knows who records or who looks: :mod:`gputop.outputs.recorder` writes, :mod:`gputop.sampling.player` plays.
"""
