"""What every screen is drawn with, and every place that leans on Textual's insides.

The private seams are in files of their own, each of which says what it touches: ``exact_output`` (its compositor),
``terminal_driver`` (its driver of the terminal and parser of keys), ``command_palette``.

A line widget that redraws changed spans only, spans and cells, glyphs, the palette, dialogs, scrolling pages, text
entry. Nothing here knows what a GPU is.
"""
