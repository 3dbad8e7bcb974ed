"""Donation in the builder: parameters that alias results, marked on the parameters as by JAX and XLA.

docs/arrays.md says what a caller must do so that memory is reused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jaxlib.mlir.ir as ir

from stablexla.builder.checking import Rules, checking
from stablexla.dialects.shapes import Shape

ALIASING, DONOR = "tf.aliasing_output", "jax.buffer_donor"
MAY_ALIAS, MUST_ALIAS = "may_alias", "must_alias"

#: The path of a leaf in nested tuples; () for a value that is no tuple.
ShapeIndex = Sequence[int]
#: Pairs of a leaf of a call's result and one of its arguments: the number of each, or the numbers on the way to it.
Aliasing = Sequence[tuple[int | Sequence[int], int | Sequence[int]]]


class Aliases:
    """The builder's mixin for input-output aliasing."""

    def _begin_aliases(self) -> None:
        self._aliases: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = []
        self._donors: list[tuple[int, tuple[int, ...]]] = []

    def set_up_alias(
        self, output_index: ShapeIndex, param_number: int, param_index: ShapeIndex = (), kind: str = MAY_ALIAS
    ) -> None:
        """Let a result alias a parameter, in calls that donate it.

        Such calls are `executable.execute(arguments, donate=True)`; other calls leave the parameter unchanged.

        Args:
            output_index: the result, by the numbers that lead to it in the tuple of results; () where there is one.
            param_number: the parameter.
            param_index: the array in it, where it is a tuple.
            kind: "may_alias"; there is no "must_alias", as callers may always keep their arguments.

        Raises:
            ShapeError: numbers that are none, another kind. When it is built: no such result or parameter, arrays of
                different shapes, or one that has been given away already.

        Source: `SetUpAlias` of XLA's builder.

        >>> b = sx.XlaBuilder("update")
        >>> state = b.parameter(0, sx.f32[1000])
        >>> b.set_up_alias((), 0)
        >>> "tf.aliasing_output = 0" in str(b.build(state + 1.0))
        True
        """
        given = {"output_index": output_index, "param_number": param_number, "param_index": param_index, "kind": kind}
        with checking("set_up_alias", **given) as rule:
            out, path = rule.integers("output_index", output_index), rule.integers("param_index", param_index)
            number = rule.integer("param_number", param_number)
            rule("", kind != MUST_ALIAS, "there is no must_alias: a caller may keep its arguments", repr(MAY_ALIAS))
            rule("", kind == MAY_ALIAS, f"kind must be {MAY_ALIAS!r}, not {kind!r}")
        self._aliases.append((out, number, path))

    def add_buffer_donor(self, param_number: int, param_index: ShapeIndex = ()) -> None:
        """Let any result that fits alias a parameter, in calls that donate it.

        Args:
            param_number: the parameter.
            param_index: the array in it, where it is a tuple.

        Raises:
            ShapeError: numbers that are none. When it is built: no such parameter, or one given away already.

        Source: `AddBufferDonor` of XLA's builder.

        >>> b = sx.XlaBuilder("update")
        >>> state = b.parameter(0, sx.f32[1000])
        >>> b.add_buffer_donor(0)
        >>> "jax.buffer_donor = true" in str(b.build(state + 1.0))
        True
        """
        with checking("add_buffer_donor", param_number=param_number, param_index=param_index) as rule:
            self._donors.append((rule.integer("param_number", param_number), rule.integers("param_index", param_index)))

    def _donations(
        self, rule: Rules, parameters: Mapping[int, Shape], result: Shape, context: ir.Context
    ) -> dict[tuple[int, int], dict[str, ir.Attribute]]:
        """Return the attributes of parameters' leaves, by the parameter's number and the leaf's position."""
        found: dict[tuple[int, int], dict[str, ir.Attribute]] = {}
        taken: set[int] = set()
        for out, number, path in self._aliases:
            place, shape = _leaf(rule, parameters, number, path)
            to = result.leaf_at(out)
            if to is None:
                rule.broken("", f"set_up_alias: output_index {out} is no array of the result, {result}")
            rule(
                "",
                result.leaves[to] == shape,
                f"set_up_alias: the result is {result.leaves[to]}, the parameter {shape}",
            )
            rule("", to not in taken, f"set_up_alias: output_index {out} has a parameter's memory already")
            taken.add(to)
            index = ir.IntegerAttr.get(ir.IntegerType.get_signless(32, context), to)
            _give(rule, found, (number, place), {ALIASING: index})
        for number, path in self._donors:
            place, _ = _leaf(rule, parameters, number, path)
            _give(rule, found, (number, place), {DONOR: ir.BoolAttr.get(True, context)})
        return found


def _leaf(rule: Rules, parameters: Mapping[int, Shape], number: int, path: tuple[int, ...]) -> tuple[int, Shape]:
    if number not in parameters:
        rule.broken("", f"there is no parameter {number} to give its memory away")
    place = parameters[number].leaf_at(path)
    if place is None:
        rule.broken("", f"param_index {path} is no array of parameter {number}, {parameters[number]}")
    return place, parameters[number].leaves[place]


def _give(
    rule: Rules,
    found: dict[tuple[int, int], dict[str, ir.Attribute]],
    leaf: tuple[int, int],
    attributes: dict[str, ir.Attribute],
) -> None:
    rule("", leaf not in found, f"parameter {leaf[0]} gives its memory away twice")
    found[leaf] = attributes
