"""The examples in docstrings run and print what they say; `sx` and `np` stand for the package and numpy in them."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest

import stablexla as sx

ROOT = Path(__file__).parents[1]
NEEDED = {"stablexla.interop.tensorflow": "tensorflow", "tensorflow.md": "tensorflow"}
"""Libraries that modules and pages need and that are not among those of `dev`."""
FOLDERS = {"stablexla": "stablexla", "dialects": "stablexla.dialects"}
FOLDERS |= {folder: f"stablexla.{folder}" for folder in ("lowering", "targets")}


def modules_with_examples() -> list[str]:
    found = []
    for folder, package in FOLDERS.items():
        for file in sorted((ROOT / folder).rglob("*.py")):
            if ">>> " in file.read_text():
                parts = file.relative_to(ROOT / folder).with_suffix("").parts
                found.append(".".join((package, *parts)).removesuffix(".__init__"))
    return found


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_of(name):
    pytest.importorskip(NEEDED.get(name, "numpy"))
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs={"sx": sx, "np": np}, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


def pages_with_examples() -> list[str]:
    return sorted(page.name for page in (ROOT / "docs").glob("*.md") if "\n>>> " in page.read_text())


@pytest.mark.parametrize("page", pages_with_examples())
def test_examples_of_pages(page):
    pytest.importorskip(NEEDED.get(page, "numpy"))
    names = {"sx": sx, "np": np}
    result = doctest.testfile(
        str(ROOT / "docs" / page), module_relative=False, extraglobs=names, optionflags=doctest.ELLIPSIS
    )
    assert result.attempted > 2
    assert result.failed == 0
