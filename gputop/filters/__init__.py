"""The grammar of filters and conditions: ``mem>10G user:ml``, ``memory > 40GiB``. One for the ``/`` prompt and alarms.

A text is read into terms (:mod:`terms`), with the fields it may name given from outside (:class:`field.FieldRegistry`);
a term that compares becomes a :class:`comparison.Comparison`, which is asked of a GPU, a process, or whatever the
fields are of. :mod:`gpu_fields` and :mod:`process_fields` are those of this machine. Not here: what only an alarm says
(``for``, ``clear``, ``gone``: alarms/conditions.py), and words looked for in command lines (ui/processes/listing).
"""
