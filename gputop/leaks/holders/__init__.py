"""Which processes hold NVIDIA devices open: GPU memory lives as long as the last descriptor or mapping of its device.

``holder`` has the values (a holder, one scan), ``scanner`` scans all processes, ``probe`` is the program that it runs
for that. The devices' numbers are in ``procfs.devices``; what is concluded from holders is in ``leaks.dead_pids``.
"""
