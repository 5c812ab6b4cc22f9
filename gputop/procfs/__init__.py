"""What the host says about a pid: who it is, whose, its command, CPU, memory, open devices, and the host itself.

* ``host_reader``: what the poller may ask (the protocol). ``proc_host_reader``: answers it from /proc, tick after tick.
* ``host_facts``: builds a process's :class:`~gputop.model.HostFacts`, from ``stat`` (/proc/PID/stat), its owner and its
  command line. ``machine``: the machine's own CPU, memory and load.
* ``owner``: container, job, unit, terminal. ``tmux``: its windows. ``devices``: the NVIDIA devices a process has open.
* ``details``: more about one process, for the details screen.

The only place that imports psutil, and with ``leaks.proc_investigator``, ``leaks.holders`` and ``signals.sender`` the
only one that reads /proc. What is concluded is in ``leaks``; what is done to a process is in ``signals``.
"""
