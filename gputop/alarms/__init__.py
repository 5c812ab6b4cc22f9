"""Alarms: conditions as people write them, their evaluation on each snapshot, and what is done when one is raised.

conditions.py reads a condition (in the grammar of filters/) into condition.py's clauses; engine.py keeps the state of
each alarm over the evaluation.py of every look; messages.py says what is so. What is done then: command.py, webhook.py
and event_log.py, with facts.py, by the queue of delivery.py. dashboard.py has the alarms of the settings file evaluated
behind the dashboard, raised.py is what the screen shows of them. Not here: ``gputop watch`` itself (commands/), leaks.
"""
