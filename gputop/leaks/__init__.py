"""GPU memory that nobody uses any more: who holds it, the rules, the verdicts, the report.

``watch`` runs ``finder`` in a thread of its own; ``finder`` remembers (``process_history``), looks up
(``investigator``, ``holders``), and judges (``rules``, ``verdicts``). Not here: ending processes (``signals``), and
leaks inside a process, line by line (``torch_files.snapshot``).
"""
