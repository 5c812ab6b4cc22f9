"""The dashboard on a recording. Which moment is shown, also while looking back, is ``gputop.sampling.shown_time``."""
