"""What every screen is drawn with, and every place that leans on Textual's insides.

The private seams are in two files, each of which says what it touches: ``exact_output`` (its compositor) and
``terminal_driver`` (its driver of the terminal and parser of keys).

A line widget that redraws changed spans only, spans and cells, glyphs, the palette, dialogs, scrolling pages, text
entry. Nothing here knows what a GPU is.
"""
