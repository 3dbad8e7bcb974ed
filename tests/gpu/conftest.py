"""Fixtures of the tests for GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stablexla.targets.runtime import _runtime
from tests.gpu import simulator


@pytest.fixture(scope="module")
def simulated_gpu() -> Iterator[None]:
    """The runtime finds two simulated GPUs, which take PTX alone."""
    _runtime.use_cuda_driver(str(simulator.library()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STABLEXLA_PTXAS", "none")
        yield
    _runtime.use_cuda_driver(None)
