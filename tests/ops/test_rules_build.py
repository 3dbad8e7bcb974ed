"""Every numbered rule that the builder checks has a test of its name: `clamp` and C2 ask for a test `clamp_c2`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from stablexla.builder.registry import REGISTRY

ROOT = Path(__file__).parents[2]
FILES = [*sorted((ROOT / "stablexla/ops").glob("*.py")), ROOT / "stablexla/builder/builder.py"]
TESTS = [*sorted((ROOT / "tests/ops").glob("test_*.py")), ROOT / "tests/test_builder.py"]
NUMBER = re.compile(r"[CI]\d+")

# Operations that call another one, whose numbered rules are tested with it.
SAME = {
    "collapse": "reshape",
    "concat_in_dim": "concatenate",
    "conv": "conv_general_dilated",
    "conv_general": "conv_general_dilated",
    "conv_with_general_dimensions": "conv_general_dilated",
    "conv_with_general_padding": "conv_general_dilated",
    "cross_replica_sum": "all_reduce",
    "dot": "dot_general",
    "outfeed": "outfeed_with_token",
    "pad_in_dim": "pad",
    "reduce_all": "reduce",
    "reduce_window_with_general_padding": "reduce_window",
    "select_and_scatter_with_general_padding": "select_and_scatter",
    "send": "send_with_token",
    "slice_in_dim": "slice",
    "top_k": "sort",
    "torch_gather": "gather",
}


def rules_of(file: Path) -> dict[str, set[str]]:
    """The rules that stand in each operation of a file, or in what it calls there."""
    tree = ast.parse(file.read_text())
    known = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {name: _rules(name, known, set()) for name in known if name in REGISTRY}


def _rules(name: str, known: dict[str, ast.AST], seen: set[str]) -> set[str]:
    seen.add(name)
    found = set()
    for node in ast.walk(known[name]):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NUMBER.fullmatch(node.value):
            found.add(node.value)
        elif isinstance(node, ast.Name) and node.id in known and node.id not in seen:
            found |= _rules(node.id, known, seen)
    return found


RULES = [
    (name, rule)
    for file in FILES
    for name, rules in rules_of(file).items()
    for rule in sorted(rules)
    if name not in SAME
]
TEXT = "\n".join(file.read_text() for file in TESTS)


def test_rules_are_found():
    assert ("clamp", "C2") in RULES
    assert ("dot_general", "C11") in RULES
    assert ("dynamic_update_slice", "C6") in RULES
    assert {name for name, _ in RULES} < set(REGISTRY)


@pytest.mark.parametrize(("name", "rule"), RULES, ids=lambda part: part)
def test_rule_is_tested(name, rule):
    asked = f"{name.rstrip('_')}_{rule.lower()}"
    entry = REGISTRY[name]
    if entry.family == "elementwise" and name not in ("clamp", "select", "compare"):
        # test_elementwise_build.py goes through all operations of two operands at once.
        asked = "binary_c1" if rule == "C1" else f"compare_{rule.lower()}"
    if name == "dot_general" and f'"{rule}",' in TEXT:
        asked = 'f"dot_general_{value.lower()}"'
    # A row of a table of refusals says the rule and makes the call.
    row = rf'"{rule}",\s*lambda [^\n]*\bsx\.{name}\('
    assert asked in TEXT or re.search(row, TEXT), asked
