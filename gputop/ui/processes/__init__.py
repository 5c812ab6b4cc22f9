"""The process table: columns, cursor, tags, filter prompt, sorting, and the page about one process.

Which rows there are, and in which order, is decided in ``listing``, which knows no widget.
"""
