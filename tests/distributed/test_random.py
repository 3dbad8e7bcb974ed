"""Random programs of several devices, some in the suite: `python -m tests.distributed.random_campaign` runs more."""

from __future__ import annotations

import pytest

from tests.distributed.random_campaign import check_program


@pytest.mark.parametrize("seed", range(30))
def test_a_random_program(seed: int) -> None:
    check_program(seed, size=10)
