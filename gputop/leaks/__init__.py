"""GPU memory that nobody uses any more: who holds it, the rules, the verdicts, the report (docs/leak-rules.md).

* ``watch`` runs ``finder`` in a thread of its own; ``finder`` makes a report of each snapshot.
* What it looks up: ``process_context`` (what the rules want to know of a process), ``proc_investigator`` (reads it from
  /proc), ``holders/`` (who has devices open), ``process_history`` (what was seen of a process so far).
* What it concludes: ``dead_pids`` (R1, R2), ``rules`` (R3 to R10, one function a rule), ``verdicts`` (combines them),
  ``unattributed`` (R11, R12), ``stragglers`` (ranks that differ from their peers); ``thresholds`` has every figure.
* What comes out: ``report`` (values), ``text`` (the page and the JSON of ``gputop leaks``).

Not here: where the bytes of a GPU are (``model.memory``), ending processes (``signals``), and leaks inside a process,
line by line (``torch_files.snapshot``).
"""
