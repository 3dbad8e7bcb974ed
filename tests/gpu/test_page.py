"""docs/gpu.md names the kinds of kernels as the registries have them."""

from __future__ import annotations

import re
from pathlib import Path

from stablexla.targets.cpu.emitters import EMITTERS as ON_CPU
from stablexla.targets.cpu.emitters import ONLY
from stablexla.targets.gpu import emit  # noqa: F401  (it registers emitters)
from stablexla.targets.gpu.emitters import EMITTERS

PAGE = (Path(__file__).parents[2] / "docs/gpu.md").read_text()


def sentence(beginning: str) -> set[str]:
    """The names in the sentence that begins so."""
    found = re.search(rf"{beginning}: (.*?)\.\s", PAGE, re.DOTALL)
    assert found is not None
    return set(re.findall(r"`(\w+)`", found[1]))


def test_kinds_with_kernels_of_their_own() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(EMITTERS)


def test_kinds_on_the_general_path() -> None:
    assert sentence("These kinds have none") == set(ON_CPU) - set(EMITTERS) - set(ONLY)


def test_kinds_on_the_host() -> None:
    assert sentence("These kinds run on the host") == set(ONLY)
