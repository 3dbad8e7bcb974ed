"""What a test does where the installed StableHLO is older than what it tests."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from stablexla.dialects.builds.stablehlo_version import INSTALLED, has_stablehlo
from tests.loading import load_file


def needs_stablehlo(version: str) -> pytest.MarkDecorator:
    """The mark of a test, or of a row of its parameters, that an older StableHLO skips."""
    return pytest.mark.skipif(not has_stablehlo(version), reason=f"StableHLO {INSTALLED}, and {version} has it")


def check_page(name: str) -> None:
    """A page of docs is as its script writes it; with an older jaxlib than the page's, its tables have all of ours."""
    script = load_file(Path(__file__).parents[1] / f"docs/{name}.py")
    written, made = script.PAGE.read_text(), script.page()
    if f"jaxlib {metadata.version('jaxlib')}" in written:
        assert written == made, f"run python docs/{name}.py"
    else:
        there = _rows(written)
        lacking = {head: cells - there.get(head, set()) for head, cells in _rows(made).items()}
        assert not {head: cells for head, cells in lacking.items() if cells}


def _rows(page: str) -> dict[str, set[str]]:
    """The items in the rows of a page's tables, by their first cells; a row may have several lists of items."""
    found: dict[str, set[str]] = {}
    for head, rest in re.findall(r"^\| (.*?) \|(.*)\|$", page, re.MULTILINE):
        found.setdefault(head, set()).update(item.strip() for item in re.split(r"[,|]", rest))
    return found
