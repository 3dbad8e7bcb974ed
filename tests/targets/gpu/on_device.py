"""What `pytest -m gpu` does: the tests of all operations, compiled for the GPU that is there and run on it.

Where there is none they are skipped, and say why. STABLEXLA_CUDA_DRIVER names another driver, a simulated one as well.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stablexla.targets.runtime.gpu_driver import device_chips

FOLDER = Path(__file__).parents[2] / "ops"


def pytest_configure(config: pytest.Config) -> None:
    """Every program that a test compiles for the CPU is compiled for the GPU."""
    os.environ.setdefault("TEST_TARGET", "gpu")
    os.environ["TEST_ON_DEVICE"] = "1"
    # JAX is an oracle on the CPU here; with its CUDA plugin each process would take three quarters of the memory
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    config.pluginmanager.import_plugin("tests.targets.gpu.other_target")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the operations' tests before others are left out."""
    skipped = None if device_chips() else pytest.mark.skip(reason="no CUDA driver, or no GPU")
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker("gpu")
            if skipped is not None:
                item.add_marker(skipped)
