"""Fixtures for all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from stablexla.dialects import composites
from stablexla.targets.pipeline import driver
from stablexla.targets.pipeline.passes import USERS_EMITTERS
from tests import programs, tombstones
from tests.suite.drawing import drawn

# Tests compile; those of the cache turn it on, and STABLEXLA_KERNEL_CACHE=DIR does so for all others.
os.environ.setdefault("STABLEXLA_KERNEL_CACHE", "off")
os.environ.setdefault("STABLEXLA_LIBRARY", "off")
os.environ.setdefault("STABLEXLA_KEPT_KERNELS", "0")
# What depends on jaxlib most: operations, formats and programs of each kind, the first case of each test; and texts.
SLICE = ("tests/ops/", "tests/interop/", "tests/targets/runtime/test_pins.py", "tests/test_examples.py")
TEXTS = "tests/test_filecheck.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", action="store_true", help="a part: operations, formats, programs")
    parser.addoption("--target", default="cpu", help="the target for programs of tests/ops: upstream")
    parser.addoption("--drawn", type=int, metavar="SEED", help="of crosses a part: each value once")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--slice` is for the line of jaxlib that the whole suite does not run with, `--drawn` for every change."""
    if config.getoption("--slice"):
        chosen = _slice(items)
    elif config.getoption("--drawn") is not None:
        chosen = drawn(items, config.getoption("--drawn"))
    else:
        return
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def _slice(items: list[pytest.Item]) -> list[pytest.Item]:
    kept: dict[str, pytest.Item] = {}
    for item in items:
        if item.nodeid.startswith(TEXTS):
            kept[item.nodeid] = item
        elif item.nodeid.startswith(SLICE):
            kept.setdefault(item.nodeid.partition("[")[0], item)
    return list(kept.values())


def pytest_configure(config: pytest.Config) -> None:
    """Erased operations leave tombstones, and modules are verified often; `pytest -m gpu` runs on a GPU what is there
    for the CPU.
    """
    tombstones.install()
    driver.VERIFIES_ALL = True
    programs.TARGET = config.getoption("target")
    if config.getoption("markexpr") == "gpu":
        from tests.targets.gpu import on_device

        config.pluginmanager.register(on_device)


@pytest.fixture(autouse=True)
def registrations() -> Iterator[None]:
    """Unregister a test's emitters and composite kernels at its end: with a user's, pipelines are not trusted."""
    emitters, kernels = list(USERS_EMITTERS), dict(composites.REGISTERED)
    yield
    USERS_EMITTERS[:] = emitters
    composites.REGISTERED.clear()
    composites.REGISTERED.update(kernels)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own answer to Ctrl-C: what runs in the background of a shell begins by ignoring it."""
    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, kept)
