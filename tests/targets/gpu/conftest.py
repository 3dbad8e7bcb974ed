"""Fixtures for tests of the GPU."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.targets.gpu import simulated as simulator


@pytest.fixture
def simulated_gpu() -> Iterator[None]:
    """The runtime finds simulated GPUs, as the settings say; nothing may be left of what a test made on them."""
    if shutil.which("g++") is None:
        pytest.skip("no g++, with which the simulator is built")
    with simulator.in_runtime():
        yield
    if simulator.report():
        simulator.driver().simulator_reset()
