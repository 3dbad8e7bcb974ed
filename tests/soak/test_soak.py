"""A short soak, by counts: nothing fails, and threads, files, /dev/shm and the pool are after it as before."""

from __future__ import annotations

import numpy as np
import pytest

from tests.soak.bouts import BOUTS
from tests.soak.samples import Sample, slope, trends
from tests.soak.soak import Soak
from tests.soak.work import UNITS, Work


def test_nothing_is_left() -> None:
    """After two rounds in which what is made once is made."""
    soak = Soak(threads=4)
    soak.meet()
    with Work() as work:
        for round_ in range(4):
            soak.round(work, lambda count: count < 25, 0 if round_ else None)
        assert set(UNITS) <= set(soak.done)
    assert soak.faults == []
    before, after = soak.samples[1], soak.samples[-1]
    for name in ("threads", "files", "shared", "pool"):
        assert getattr(after, name) == getattr(before, name), name


@pytest.mark.parametrize("bout", BOUTS[1:], ids=lambda bout: bout.__name__)
def test_bouts(bout, work: Work) -> None:  # type: ignore[no-untyped-def]
    bout(work)


@pytest.fixture(scope="module")
def work():  # type: ignore[no-untyped-def]
    with Work() as made:
        yield made


def _samples(growth: float, noise: float) -> list[Sample]:
    rng = np.random.default_rng(1)
    memory = [int(1e8 + growth * n + noise * rng.normal()) for n in range(300)]
    return [Sample(n * 5.0, m, m, 0, 0, 9, 20, 0) for n, m in enumerate(memory)]


def test_what_grows_is_seen() -> None:
    grown = {t.name: t for t in trends(_samples(1e5, 1e6))}  # 72 MB an hour
    assert grown["rss"].grows
    assert grown["rss"].an_hour == pytest.approx(72e6, rel=0.05)
    assert not grown["threads"].grows
    flat = {t.name: t for t in trends(_samples(0, 1e6))}
    assert not flat["rss"].grows
    assert slope(np.arange(10.0), np.arange(10.0) * 3) == (3.0, 0.0)
