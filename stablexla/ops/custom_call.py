"""Calls of functions that a user provides, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jaxlib.mlir.ir as ir

from stablexla.builder import XlaBuilder
from stablexla.checking import Operands, Rules, checking
from stablexla.dialects.arguments import told
from stablexla.dialects.shapes import Shape
from stablexla.op import XlaOp
from stablexla.ops.registry import operation

API_VERSIONS = (
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)


@operation("stablehlo.custom_call")
def custom_call(
    target_name: str,
    args: Operands,
    shape: Shape,
    opaque: str | Mapping[str, object] = "",
    has_side_effect: bool = False,
    output_operand_aliasing: Sequence[tuple[int, int]] = (),
    *,
    api_version: str = "API_VERSION_ORIGINAL",
) -> XlaOp:
    """The result of a function that `sx.register_custom_call` knows under a name when the program is compiled.

    Where there are no arguments, `b.custom_call(target_name, (), shape)` says in which builder.

    Args:
        target_name: the function's name.
        args: its arguments: arrays, or tokens, which it does not get.
        shape: of the result: an array's, or a tuple's.
        opaque: a text that a Python function gets as `opaque=`; for API_VERSION_TYPED_FFI a mapping of plain values,
            which it gets by their names.
        has_side_effect: it is called also when nobody uses its result, and in order with others like it. Without, the
            function must compute the same from the same arguments, and may be called more or less often.
        output_operand_aliasing: pairs (result, argument): the result holds the argument's elements when it is called.
        api_version: how it is called, by XLA's name; C functions know API_VERSION_ORIGINAL.

    Raises:
        ShapeError: a tuple among the arguments, a tuple in a tuple as the result; an alias of another type.

    Source: `CustomCall` of XLA's operation semantics; StableHLO `custom_call`.

    >>> b = sx.XlaBuilder("example")
    >>> x, y = b.parameter(0, sx.f32[2]), b.parameter(1, sx.f32[2, 3])
    >>> sx.custom_call("myfunc", (x, y), sx.f32[3, 3])
    XlaOp(stablehlo.custom_call, f32[3,3])
    """
    with checking("custom_call", target_name=target_name, args=args, shape=shape) as rule:
        ops = rule.sequence("args", args)
        rule("", bool(ops), "without arguments there is no builder", "b.custom_call(target_name, (), shape)")
        rule.one_builder(ops)
    return call_in(
        ops[0].builder, target_name, ops, shape, opaque, has_side_effect, output_operand_aliasing, api_version
    )


def call_in(
    builder: XlaBuilder,
    target_name: str,
    args: Operands,
    shape: Shape,
    opaque: str | Mapping[str, object],
    has_side_effect: bool,
    output_operand_aliasing: Sequence[tuple[int, int]],
    api_version: str,
) -> XlaOp:
    """`custom_call` in a builder that is known."""
    with checking("custom_call", target_name=target_name, args=args, shape=shape) as rule:
        rule("", rule.text("target_name", target_name) != "", "target_name must not be empty")
        ops = rule.sequence("args", args)
        for number, op in enumerate(ops):
            rule("", op.builder is builder, f"args[{number}] belongs to the builder {op.builder.name!r}")
            rule("", not op.shape.is_tuple, f"args[{number}] must be an array or a token, not a tuple")
        shape = rule.shape("shape", shape)
        flat = not any(part.is_tuple for part in shape.tuple_shapes)
        rule("", flat, "shape must be that of an array, or of a tuple of arrays")
        rule.word("", "api_version", api_version, API_VERSIONS)
        attributes = {
            "call_target_name": target_name,
            "has_side_effect": rule.truth("has_side_effect", has_side_effect),
            "api_version": builder.i32(API_VERSIONS.index(api_version)),
            **_opaque(rule, builder, opaque, typed=api_version == API_VERSIONS[-1]),
            **_aliasing(rule, builder, ops, shape, output_operand_aliasing),
        }
        if len(shape.tuple_shapes) == 1:
            attributes["stablexla.tuple"] = ir.UnitAttr.get(builder.context)
    return builder.emit("stablehlo.custom_call", ops, shape, attributes)


def _opaque(
    rule: Rules, builder: XlaBuilder, opaque: str | Mapping[str, object], *, typed: bool
) -> dict[str, ir.Attribute]:
    if isinstance(opaque, Mapping | str) and not opaque:
        return {}
    if typed:
        return {"backend_config": rule.attributes("opaque", opaque, builder)}
    hint = 'api_version="API_VERSION_TYPED_FFI"' if isinstance(opaque, Mapping) else ""
    rule("", isinstance(opaque, str), f"opaque must be a text, not {told(opaque)}", hint)
    return {"backend_config": builder.attribute(rule.text("opaque", opaque))}


def _aliasing(
    rule: Rules, builder: XlaBuilder, args: Sequence[XlaOp], shape: Shape, pairs: Sequence[tuple[int, int]]
) -> dict[str, ir.Attribute]:
    """StableHLO's way of saying it, in which only a tuple's results have a number."""
    aliases = []
    rows = rule.rows("output_operand_aliasing", pairs)
    rule("", all(len(row) == 2 for row in rows), "output_operand_aliasing must be pairs (result, argument)")
    for result, argument in rows:
        known = 0 <= result < len(shape.leaves) and 0 <= argument < len(args)
        rule("", known, f"output_operand_aliasing: there is no pair of result {result} and argument {argument}")
        given, wanted = args[argument].shape, shape.leaves[result]
        rule("", given == wanted, f"output_operand_aliasing: argument {argument} is {given}, result {result} {wanted}")
        places = str(result) if len(shape.leaves) > 1 else ""
        aliases.append(
            f"#stablehlo.output_operand_alias<output_tuple_indices = [{places}], operand_index = {argument}, "
            "operand_tuple_indices = []>"
        )
    if not aliases:
        return {}
    return {"output_operand_aliases": ir.Attribute.parse(f"[{', '.join(aliases)}]", builder.context)}
