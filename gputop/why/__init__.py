"""Why is this GPU full, or slow: the diagnosis of one GPU, and the page of text it becomes."""
