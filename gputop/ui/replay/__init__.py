"""Time travel: the dashboard on a recording, and looking back at its own past."""
