"""From the pickle to columns: every form since torch 1.8, checked value by value. Runs in a child process."""
