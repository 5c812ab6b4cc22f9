"""The history chart: scales, curves, the picture that plotext draws, and the widget that shows it."""
