"""Configurations as attributes: what comes back, how it is printed, and what text by hand may get wrong."""

from __future__ import annotations

from dataclasses import dataclass

import mlir.ir as ir
import pytest

from stablexla.dialects.errors import CompileError
from stablexla.lowering.support.configs import config_attribute, config_value, read_config


@dataclass(frozen=True)
class Loop:
    extent: int
    step: int = 1


@dataclass(frozen=True)
class Nest:
    name: str
    loops: tuple[Loop, ...]
    inner: Loop
    reversed: bool
    sizes: dict[str, int]
    groups: tuple[tuple[int, ...], ...] = ()
    limit: int | None = None


NEST = Nest("nest", (Loop(3), Loop(4, 2)), Loop(5), True, {"n": 7}, ((0, 1), ()))
PRINTED = (
    "{groups = [[0, 1], []], inner = {extent = 5 : i64, step = 1 : i64}, "
    "loops = [{extent = 3 : i64, step = 1 : i64}, {extent = 4 : i64, step = 2 : i64}], "
    'name = "nest", reversed = true, sizes = {n = 7 : i64}}'
)


def read(text: str) -> Nest:
    with ir.Context():
        return read_config(Nest, ir.Attribute.parse(text), "@nest")


def test_fields_are_printed_by_name() -> None:
    with ir.Context():
        assert str(config_attribute(NEST)) == PRINTED


@pytest.mark.parametrize("value", [NEST, Nest("", (), Loop(0, -1), False, {}, limit=3)], ids=["full", "empty"])
def test_a_configuration_comes_back_as_it_was(value: Nest) -> None:
    with ir.Context():
        assert read_config(Nest, config_attribute(value), "@nest") == value


@pytest.mark.parametrize("value", [True, False, 3, -1, "text", (1, 2), (), ("a", (1, True)), {"a": {"b": (1,)}}])
def test_plain_values_come_back_as_they_were(value: object) -> None:
    with ir.Context():
        assert config_value(config_attribute(value)) == value


def test_a_field_with_a_default_may_be_left_out() -> None:
    text = '{name = "", loops = [{extent = 2 : i64}], inner = {extent = 1 : i64}, reversed = false, sizes = {}}'
    assert read(text) == Nest("", (Loop(2),), Loop(1), False, {})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("reversed = true, ", "", "@nest lacks the field 'reversed' of Nest"),
        ("extent = 4 : i64, ", "", r"@nest.loops\[1\] lacks the field 'extent' of Loop"),
        ("reversed", "reverse", "(?s)@nest has a field 'reverse', and Nest does not.*try: reversed"),
        ("reversed = true", "reversed = 1 : i64", "@nest.reversed is 1 : i64, not a boolean"),
        ("extent = 4 : i64", "extent = true", r"@nest.loops\[1\].extent is true, not an integer"),
        ('"nest"', "[]", r"@nest.name is \[\], not a string"),
        ("{n = 7 : i64}", "[7]", r"@nest.sizes is \[7\], not a dictionary"),
        ("[[0, 1], []]", "array<i64: 0, 1>", "@nest.groups is array<i64: 0, 1>, not a list"),
    ],
)
def test_text_by_hand_that_does_not_fit_is_named(old: str, new: str, message: str) -> None:
    assert old in PRINTED
    with pytest.raises(CompileError, match=message):
        read(PRINTED.replace(old, new, 1))
