"""A fleet as an engine with Prometheus' HTTP API knows it: Prometheus, VictoriaMetrics, Thanos, Mimir.

* ``client`` asks the engine and tells failures in words; ``credentials`` are those of the environment and the settings.
* ``exporters/`` has a file for each exporter: its metrics, units and labels, with their source (docs/fleet.md has the
  table); ``detection`` finds out which of them the engine scrapes.
* ``vectors`` writes PromQL: a value for each GPU, whoever exports it, and which GPUs are free, idle, broken.
* ``sums`` asks for the head, ``index`` for which hosts pass a view, ``rows`` for the GPUs of some hosts, ``lost`` for
  hosts that are gone, ``past`` for histories; ``source`` puts them together as a FleetSource.

Sums are made by the engine; of single GPUs only those on the visible page are fetched.
"""
