"""Every place that leans on Textual's insides, and why: Textual is pinned below its next major version.

``exact_output`` writes changed spans only; ``plain_strip`` is a cheap strip; ``typeahead`` keeps keys and clicks in
order; ``terminal_driver`` takes any byte, any size, and being stopped; ``plain_widgets`` and ``command_palette`` make
Textual's own widgets ours; ``toasts`` keeps them few. Each falls back, or fails in a test, when a private name is gone.
"""
