"""Every operation of the installed dialects has a state in docs/interop_formats.md.

That the page says what its script finds is held by `test_formats.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stablexla as sx
from stablexla.dialects.contexts import stablehlo_context
from tests.loading import load_file

DOCS = Path(__file__).parents[2] / "docs"
script = load_file(DOCS / "dialect_operations.py")


def rows(dialect: str) -> dict[str, list[str]]:
    """The operations of a dialect in the page, by their state."""
    _, _, section = (DOCS / "interop_formats.md").read_text().partition("## Operations of the dialects")
    part = section.partition(f"### {script.DIALECTS[dialect]}:")[2].partition("\n##")[0]
    found = re.findall(r"^\| (.*?) \| (`.*) \|$", part, re.MULTILINE)
    return {state: [f"{dialect}.{name}" for name in re.findall(r"`([^`]+)`", names)] for state, names in found}


@pytest.mark.parametrize("dialect", script.DIALECTS)
def test_each_has_a_state(dialect: str) -> None:
    """Exactly one, and a reason where it is refused; a new jaxlib's operations have none."""
    found = rows(dialect)
    written = sorted(name for names in found.values() for name in names)
    assert len(set(written)) == len(written)
    assert set(script.operations(dialect)) <= set(written)  # the page is of the newest jaxlib
    assert [names for state, names in found.items() if state == "refused: "] == []


def test_nothing_of_chlo_or_stablehlo_is_refused() -> None:
    assert [state for dialect in ("chlo", "stablehlo") for state in rows(dialect) if state.startswith("refused")] == []


@pytest.mark.parametrize("dialect", ["chlo", "stablehlo"])
def test_list_is_that_of_the_context(dialect: str) -> None:
    """The Python classes that the list is taken from are of operations that MLIR knows."""
    context = stablehlo_context()
    assert all(context.is_registered_operation(name) for name in script.operations(dialect))


def test_samples_are_of_operations_that_there_are() -> None:
    known = {name for dialect in script.DIALECTS for names in rows(dialect).values() for name in names}
    assert {*script.SAMPLES, *script.REASONS} <= known


@pytest.mark.parametrize("name", script.REASONS)
def test_refusals_name_the_operation(name: str) -> None:
    """Where it stands with its reason; what is in the table and runs by now has none there."""
    if any(name in names for state, names in rows("mhlo").items() if state.startswith("refused")):
        with pytest.raises(sx.UnsupportedError, match=re.escape(name)):
            sx.compile(script.SAMPLES[name])
