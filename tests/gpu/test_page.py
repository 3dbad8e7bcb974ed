"""docs/gpu.md describes the kinds that have kernels of their own; its tables are in `test_operations.py`."""

from __future__ import annotations

import re
from pathlib import Path

from stablexla.targets.gpu import emit  # noqa: F401  (it registers emitters)
from stablexla.targets.gpu.emitters import EMITTERS

PAGE = (Path(__file__).parents[2] / "docs/gpu.md").read_text()


def test_kinds_with_kernels_of_their_own() -> None:
    section = PAGE.partition("## Which kernels")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(EMITTERS)
