"""Alarms: conditions as people write them, their evaluation on each snapshot, and what is done when one is raised.

Used by ``gputop watch``, by ``[[alarms]]`` of the settings file and by process filters. Not here: leak verdicts.
"""
