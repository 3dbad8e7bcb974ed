"""Runs other tests' programs for another target: `pytest -p tests.targets.gpu.other_target tests/ops`.

The variable TEST_TARGET names it, a GPU: `gpu:sm_80` without it. Its PTX runs on the simulated driver; with
TEST_ON_DEVICE=1, which `pytest -m gpu` sets, on the GPU that is there. With PTX_FOLDER the PTX of every program is
written there, and nothing is run. With TEST_SAMPLE=3 only the first three cases of each test are there.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import stablexla as sx
from stablexla import api
from stablexla.targets.runtime import _runtime
from tests.targets.gpu import simulated as simulator

TARGET = os.environ.get("TEST_TARGET", "gpu:sm_80")
IS_SIMULATED = not {"TEST_ON_DEVICE", "PTX_FOLDER"} & os.environ.keys()
if IS_SIMULATED:
    os.environ["STABLEXLA_PTXAS"] = "none"  # the driver must get PTX
    _runtime.use_cuda_driver(str(simulator.library()))
_compile = api.compile
OF_THE_CPU = {
    "test_holes_of_dilation_do_nothing[lhs-1]": "the general path multiplies holes as zeros",
    "test_how_plain_comparators_are_sorted": "the CPU's ways to sort",
    "test_what_is_given_is_no_copy": "the host gets copies of what is on a GPU",
}
"""Tests of what the CPU does, and what is otherwise on a GPU."""
SEVERAL_DEVICES = "programs for several devices do not run on GPUs yet"


@functools.wraps(_compile)
def _for_other_target(program: Any, *, target: str = "cpu", **rest: Any) -> sx.Executable:
    options = rest.get("options")
    if target == "cpu" and (options is None or options.pipeline is None):
        folder = os.environ.get("PTX_FOLDER")
        if folder:
            _write(Path(folder), _compile(program, target=TARGET, **rest))
            pytest.skip("compiled")
        target = TARGET
    return _compile(program, target=target, **rest)


def _write(folder: Path, executable: sx.Executable) -> None:
    ptx, source = executable.ir("ptx"), executable.ir("source")
    with (folder / "operations.txt").open("a") as names:
        names.writelines(f"{name}\n" for name in sorted(set(re.findall(r"\b(?:stablehlo|chlo)\.\w+", source))))
    test = os.environ.get("PYTEST_CURRENT_TEST", "x").split("::")[-1].split(" ")[0].replace("/", "_")[:60]
    (folder / f"{test}-{hashlib.sha1(ptx.encode()).hexdigest()[:8]}.ptx").write_text(ptx)


sx.compile = api.compile = _for_other_target  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Skips tests of several devices, where the runtime has refused them."""
    try:
        yield
    except sx.ExecutionError as error:
        if SEVERAL_DEVICES in str(error):
            pytest.skip(SEVERAL_DEVICES)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds what the simulated driver found wrong, and starts it anew for the tests that follow."""
    found: pytest.TestReport = yield
    if found.failed and IS_SIMULATED:
        found.sections.append(("simulated driver", simulator.report()))
        simulator.driver().simulator_reset()
        _runtime.use_cuda_driver(str(simulator.library()))
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps a sample of the tests, and skips those of the CPU."""
    for item in items:
        if item.name in OF_THE_CPU:
            item.add_marker(pytest.mark.skip(reason=OF_THE_CPU[item.name]))
    most = int(os.environ.get("TEST_SAMPLE", "0"))
    seen: Counter[str] = Counter()
    kept = []
    for item in items:
        name = item.nodeid.partition("[")[0]
        seen[name] += 1
        if not most or seen[name] <= most:
            kept.append(item)
    items[:] = kept
