"""Fixtures for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """`pytest -m gpu` runs what is there for the CPU on a GPU."""
    if config.getoption("markexpr") == "gpu":
        from tests.gpu import on_device

        config.pluginmanager.register(on_device)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own answer to Ctrl-C: what runs in the background of a shell begins by ignoring it."""
    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, kept)
