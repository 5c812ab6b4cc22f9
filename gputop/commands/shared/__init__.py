"""What several subcommands need.

``parsers`` and ``options`` read the command line, ``settings`` and ``machine`` say what it means, ``output`` prints,
``refusal`` is what is said when a command cannot do what it was asked for. ``headless`` runs the poller without a
screen; ``dashboard_alarms`` and ``demo_past`` are what the dashboard starts with.

Not here: what only one subcommand needs (its own module), and the output formats themselves (``outputs``).
"""
