"""F2, the settings screen. The settings themselves are in ``gputop.settings``."""
