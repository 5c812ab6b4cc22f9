"""``gputop fleet`` on the screen: many hosts, their sums and their past, one host as a page, and the way onto it.

* ``app`` is the Textual application; ``screen`` the list of hosts or groups with its keys; ``host_screen`` one host;
  ``help_screen`` the keys; ``choice`` the dialogs that sort and group.
* ``head``, ``rows`` and ``past`` draw: sums, lines of hosts and groups, charts. They know snapshots only.
* ``worker`` is the daemon thread that asks the source: nothing here waits for an engine on the event loop.
* ``remote`` starts the gputop of a host by ssh, and refuses names that ssh or a shell would take for something else.

Not here: where figures come from and what free or idle means (``gputop/fleet``), the dashboard of this machine.
"""
