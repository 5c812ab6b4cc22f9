"""Recordings: snapshots as lines of JSON (``lines``), those lines in a file that survives anything (``container``), and
a place in such a file (``reading``). docs/recording.md describes the format.

Nothing here knows who records or who looks: :mod:`gputop.outputs.recorder` writes, :mod:`gputop.sampling.player` plays.
"""
