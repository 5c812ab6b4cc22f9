"""The simulated NVIDIA driver as a fixture. Fixtures of one suite only live beside its tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver import DriverUnavailable, SimulatedDriver


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[SimulatedDriver]:
    """Two GPUs without processes; `driver.load()` puts it under pynvml, `driver.env` under another program.

    Without a C compiler the test is skipped, or fails where GPUTOP_REQUIRE_DRIVER=1 says it must run.
    """
    try:
        made = SimulatedDriver(tmp_path / "driver", gpus=2)
    except DriverUnavailable as e:
        if os.environ.get("GPUTOP_REQUIRE_DRIVER") == "1":
            pytest.fail(f"the simulated driver is required here: {e}")
        pytest.skip(f"simulated driver: {e}")
    with made:
        yield made
