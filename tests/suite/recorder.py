"""`pytest -p tests.suite.recorder --record=DIR`: processor time and the lines of the sources that each test reached."""

from __future__ import annotations

import os
import pickle
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.tree import ROOT

TOOL = 1
"""sys.monitoring.COVERAGE_ID; Python 3.11, with which nothing is recorded, does not have it."""
PACKAGES = tuple(f"{ROOT / name}{os.sep}" for name in ("stablexla", "dialects", "lowering", "targets"))
KINDS = ("compile", "run", "oracles")


@dataclass
class Recorded:
    """Time and lines of the tests of one worker.

    Attributes:
        lines: a number for each line of the sources, as "file:line".
        tests: by test, seconds of the processor as a whole, those of each of KINDS, and lines as a compressed bit set.
    """

    lines: dict[str, int] = field(default_factory=dict)
    tests: dict[str, tuple[float, dict[str, float], bytes]] = field(default_factory=dict)


class Recorder:
    def __init__(self, folder: Path) -> None:
        self.folder, self.recorded, self.packages = (
            folder,
            Recorded(),
            PACKAGES,
        )  # lines are told until all is torn down
        self.spent = dict.fromkeys(KINDS, 0.0)
        self.inside: str | None = None
        self.hit: set[int] = set()
        sys.monitoring.use_tool_id(TOOL, "stablexla suite")
        sys.monitoring.register_callback(TOOL, sys.monitoring.events.LINE, self._line)
        sys.monitoring.set_events(TOOL, sys.monitoring.events.LINE)
        self._time_calls()

    def _line(self, code: CodeType, line: int) -> Any:
        if code.co_filename.startswith(self.packages):
            lines = self.recorded.lines
            self.hit.add(lines.setdefault(f"{code.co_filename[len(str(ROOT)) + 1 :]}:{line}", len(lines)))
        return sys.monitoring.DISABLE

    @contextmanager
    def _within(self, kind: str) -> Iterator[None]:
        if self.inside:
            yield
            return
        self.inside, start = kind, _spent()
        try:
            yield
        finally:
            self.spent[kind] += _spent() - start
            self.inside = None

    def _time_calls(self) -> None:
        from stablexla.compiling import compiler
        from stablexla.executable.executable import Executable
        from tests import oracles

        names = (("interpreter", oracles), ("xla_executable", oracles), ("xla", oracles))
        calls: list[tuple[str, str, Any]] = [("oracles", name, owner) for name, owner in names]
        calls += [("compile", "_compile_now", compiler), ("run", "execute", Executable)]
        for kind, name, owner in calls:
            setattr(owner, name, self._timed(kind, getattr(owner, name)))
        from tests import programs

        programs.ORACLES.update(interpreter=oracles.interpreter, xla=oracles.xla)

    def _timed(self, kind: str, function: Any) -> Any:
        def timed(*args: Any, **named: Any) -> Any:
            with self._within(kind):
                return function(*args, **named)

        timed.__code__ = timed.__code__.replace(co_filename=function.__code__.co_filename)  # no line of a user's
        return timed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        sys.monitoring.restart_events()
        self.hit.clear()
        before, start = dict(self.spent), _spent()
        try:
            return (yield)
        finally:
            bits = bytearray(max(self.hit, default=0) // 8 + 1)
            for number in self.hit:
                bits[number // 8] |= 1 << number % 8
            kinds = {kind: self.spent[kind] - before[kind] for kind in KINDS}
            self.recorded.tests[item.nodeid] = _spent() - start, kinds, zlib.compress(bytes(bits), 1)

    def pytest_sessionfinish(self) -> None:
        sys.monitoring.free_tool_id(TOOL)
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        if self.recorded.tests:
            (self.folder / f"{worker}.pickle").write_bytes(pickle.dumps(self.recorded))


def _spent() -> float:
    """Seconds of all processors: this process's threads and the children that have ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, required=True, metavar="DIR", help="where each worker writes what it saw")


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--record").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    config.pluginmanager.register(Recorder(folder))
