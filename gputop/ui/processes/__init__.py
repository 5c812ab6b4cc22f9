"""The process table: cells, cursor, tags, filter prompt, sorting, and the page about one process.

The columns are data that settings read too: ``gputop/model/columns.py``. ``cells.py`` has the cells and sort keys of
those that show more than a fact as it is. Which rows there are, and in which order, is decided in ``listing``, which
knows no widget.
"""
