"""Signals to processes, sent to the right one or not at all, and what became of them.

* ``protocol``: what a screen may ask (``Signals``, ``ProcessHandle``) and the answers. ``sender`` does it on a real
  machine: it opens a pidfd (``pidfd``) and compares start times before anything is sent.
* ``scope``: who belongs together (descendants, process group, session).
* ``terminations``: processes that are being ended, from the first signal until they are seen gone and their memory back
  (``termination_state``: one of them; ``memory_reclaim``: what came back; ``terminations_text``: what is said of it).
* ``graceful_termination``: SIGTERM to the first process, then to the rest, SIGKILL after the grace time.
* ``timeouts``: every waiting time. ``names``: signals and what they do. ``kill_warnings``: what to know before.
  ``audit_log``: a line for every signal.

Not here: the kill dialog that asks (``ui.kill``), and the signals gputop itself reacts to (``ui.exit_signals``).
"""
