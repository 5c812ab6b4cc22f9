"""The Textual dashboard. Textual, Rich and plotext are imported under this package only.

Here: the application, the main screen, its upper half and its layout, keys, header and footer. Each part of the screen
has a package: ``gpus``, ``processes``, ``chart``, ``kill``, ``leaks``, ``settings``, ``replay``, ``torch_live``,
``torch_viewers``; what they are drawn with is in ``toolkit``. Screens take ``gputop.monitor`` and are
``monitor_screen``s: the bus tells them when there is something new, and none of them knows the application.
"""
