"""The machines that can be simulated, by name: which GPU models, which users and processes, what goes wrong.

``scenarios`` is the list; ``servers``, ``workstations`` and ``faults`` build them out of ``gpu_models`` and the
``process_factory``. How a simulated GPU or process behaves over time is one level up.
"""
