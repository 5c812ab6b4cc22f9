"""What the host says about a pid: identity, owner, command, CPU, memory, open devices, and the host itself.

The only place that reads /proc and imports psutil (``leaks.holder_probe`` and ``signals`` read single files of it
through this package). What is concluded from it is in ``leaks``; what is done to a process is in ``signals``.
"""
