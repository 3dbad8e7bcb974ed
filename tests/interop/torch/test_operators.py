"""PyTorch's own samples of its operators: a part of them by the number that the suite draws with.

docs/pytorch_operators.md, which `python docs/make_pytorch.py` writes, has all of them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.interop import torch_operators

PAGE = Path(__file__).parents[3] / "docs" / "pytorch_operators.md"
PARTS = 48


def _section(name: str) -> set[str]:
    """The operators of a section of the page."""
    text = PAGE.read_text().partition(f"## {name}")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)) or set(re.findall(r"`([^`]+)`", text))


@pytest.mark.parametrize("part", range(PARTS))
def test_samples_of_operators(part: int) -> None:
    names = sorted(torch_operators.entries())[part::PARTS]
    wrong = {}
    for name in set(names) - _section("Not right"):
        outcome = torch_operators.run(name, others=part % 2 == 0, samples=2)
        if outcome.failed:
            wrong[name] = outcome.failed[:3]
    assert not wrong


def test_the_page_lists_every_operator() -> None:
    if f"PyTorch {torch.__version__.partition('+')[0]} " not in PAGE.read_text():
        pytest.skip("the page was made with another release of PyTorch")
    found = _section("Not right") | _section("Refused") | _section("Right")
    assert found == set(torch_operators.entries())
