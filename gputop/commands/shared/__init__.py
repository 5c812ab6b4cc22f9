"""What several subcommands need.

``parsers`` and ``options`` read the command line, ``settings`` and ``machine`` say what it means, ``output`` prints,
``output_file`` looks at a file before it is written, ``refusal`` is what is said when a command cannot do what it was
asked for. ``headless`` runs the poller without a screen; ``demo_past`` is the demo's history before it was started.

Not here: what only one subcommand needs (its own module), and the output formats themselves (``outputs``).
"""
