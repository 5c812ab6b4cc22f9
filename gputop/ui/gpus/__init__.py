"""The GPUs on the screen: a line, two lines or a card each, their remarks, and the pages about one GPU."""
