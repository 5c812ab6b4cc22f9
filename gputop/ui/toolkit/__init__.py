"""What every screen is drawn with, and every place that leans on Textual's insides.

A line widget that redraws changed spans only, spans and cells, glyphs, the palette, dialogs, scrolling pages, text
entry. Nothing here knows what a GPU is.
"""
