"""The limits of the machine: measured, kept by processor and threads, and in no file where nothing is to be kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stablexla.inspection.profiling import machine_limits as limits_of
from stablexla.inspection.profiling.machine_limits import MachineLimits, keep_limits, measure_limits, read_limits
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import get_num_threads, processor


def test_this_machine_has_limits() -> None:
    found = measure_limits(2, copied=1 << 16, rounds=1)
    assert found.bandwidth > 0
    assert found.peak > 0
    assert (found.processor, found.threads) == (processor.name(), 2)


def test_they_are_kept_by_processor_and_threads(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    one, two = MachineLimits("a", 1, 1e9, 1e10), MachineLimits("a", 2, 2e9, 2e10)
    keep_limits(path, one)
    keep_limits(path, two)
    assert (read_limits(path, "a", 1), read_limits(path, "a", 2)) == (one, two)
    assert read_limits(path, "b", 1) is None
    assert [p.name for p in tmp_path.iterdir()] == ["limits.json"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"a, 1 threads": 3}', '{"a, 1 threads": {"bandwidth": 0, "peak": 0}}']
)
def test_a_damaged_file_is_measured_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "limits.json"
    path.write_text(text)
    assert read_limits(path, "a", 1) is None
    keep_limits(path, MachineLimits("a", 1, 1e9, 1e10))
    assert read_limits(path, "a", 1) is not None


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Nothing is known in this process; the list has what is measured."""
    threads: list[int] = []

    def measure(count: int) -> MachineLimits:
        threads.append(count)
        return MachineLimits(processor.name(), count, 1e9, 1e10)

    monkeypatch.setattr(limits_of, "measure_limits", measure)
    limits_of._limits.cache_clear()
    yield threads
    limits_of._limits.cache_clear()


def test_a_process_measures_once_and_the_next_reads_the_file(tmp_path: Path, measured: list[int]) -> None:
    with knobs.scoped(kernel_cache=tmp_path):
        first = limits_of.machine_limits()
        assert limits_of.machine_limits() is first
        limits_of._limits.cache_clear()
        assert limits_of.machine_limits() == first
    assert measured == [get_num_threads()] * 2  # which agree
    assert len(json.loads((tmp_path / limits_of.FILE).read_text())) == 1


def test_nothing_is_kept_where_the_cache_is_off(measured: list[int]) -> None:
    with knobs.scoped(kernel_cache="off"):
        limits_of.machine_limits()
        limits_of._limits.cache_clear()
        limits_of.machine_limits()
    assert len(measured) == 4


def test_nothing_is_kept_of_a_busy_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two measurements that disagree; the higher peak counts in this process."""
    peaks = iter([3e9, 1e11])
    monkeypatch.setattr(limits_of, "measure_limits", lambda threads: MachineLimits("a", threads, 1e10, next(peaks)))
    limits_of._limits.cache_clear()
    with knobs.scoped(kernel_cache=tmp_path):
        assert limits_of.machine_limits(3).peak == 1e11
    limits_of._limits.cache_clear()
    assert not (tmp_path / limits_of.FILE).exists()


def test_limits_below_those_of_one_thread_are_not_believed(tmp_path: Path) -> None:
    path, name = tmp_path / "limits.json", processor.name()
    keep_limits(path, MachineLimits(name, 2, 20e9, 170e9))
    assert limits_of._plausible(path, 2) is not None
    keep_limits(path, MachineLimits(name, 1, 28e9, 100e9))
    assert limits_of._plausible(path, 2) is None
    keep_limits(path, MachineLimits(name, 2, 40e9, 170e9))
    assert limits_of._plausible(path, 2) == MachineLimits(name, 2, 40e9, 170e9)
