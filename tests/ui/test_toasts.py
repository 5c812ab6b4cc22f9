"""Toasts stood there twice, outlived their screen and covered the keys."""

from __future__ import annotations

import asyncio

import pytest
from textual.screen import Screen
from textual.widgets._toast import Toast

from gputop.signals.protocol import Signals
from gputop.ui.app import GputopApp
from gputop.ui.help_screen import HelpScreen
from gputop.ui.sizes import LEAST_HEIGHT, LEAST_WIDTH  # noqa: F401
from tests.ui.screens import monitor_of
