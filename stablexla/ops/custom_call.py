"""Calls of functions that a user provides, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jaxlib.mlir.ir as ir

from stablexla.builder.aliases import Aliasing
from stablexla.builder.checking import Operands, Rules, checking
from stablexla.builder.computation import CALLED, XlaComputation
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.errors import ShapeError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.shapes import Shape

__all__ = [
    "custom_call", "custom_call_with_computation", "custom_call_with_computation_and_layouts",
    "custom_call_with_layout",
]  # fmt: skip

if TYPE_CHECKING:
    from stablexla.builder.builder import XlaBuilder

API_VERSIONS = (
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)

#: A shape, or XLA's text of one that says how its arrays lie in memory: "f32[2,3]{0,1}", the fastest dimension first.
ShapeWithLayout = Shape | str

_ARRAY = re.compile(r"[a-z]\w*\[[^\]]*\](?:\{([^}]*)\})?|\btoken\b")


@operation("stablehlo.custom_call")
def custom_call(
    target_name: str,
    args: Operands,
    shape: Shape,
    opaque: str | Mapping[str, object] = "",
    has_side_effect: bool = False,
    output_operand_aliasing: Aliasing = (),
    *,
    api_version: str = "API_VERSION_ORIGINAL",
) -> XlaOp:
    """The result of a function that `sx.register_custom_call` knows under a name when the program is compiled.

    Where there are no arguments, `b.custom_call(target_name, (), shape)` says in which builder.

    Args:
        target_name: the function's name.
        args: its arguments: arrays, tuples, or tokens, which it does not get. A Python function gets a tuple of arrays
            and tuples for a tuple; a C function the address of a list of addresses; a handler of the typed interface
            the arrays from left to right.
        shape: of the result: an array's, or a tuple's, which may hold tuples.
        opaque: a text that a Python function gets as `opaque=`; for API_VERSION_TYPED_FFI a mapping of plain values,
            which it gets by their names.
        has_side_effect: it is called even if its result has no user, in order with other such calls. Without, the
            function must compute the same from the same arguments, and may be called more or less often.
        output_operand_aliasing: pairs (result, argument): the result starts with the argument's elements.
            Each is a number, or inside of tuples the numbers that lead to an array: `((1, 0), 2)`.
        api_version: the calling convention, by XLA's name; C functions use API_VERSION_ORIGINAL.

    Raises:
        ShapeError: arguments of different builders; an alias of another type, or of what is no array.

    Source: `CustomCall` of XLA's operation semantics; StableHLO `custom_call`.

    >>> b = sx.XlaBuilder("example")
    >>> x, y = b.parameter(0, sx.f32[2]), b.parameter(1, sx.f32[2, 3])
    >>> sx.custom_call("myfunc", (x, y), sx.f32[3, 3])
    XlaOp(stablehlo.custom_call, f32[3,3])
    """
    call = CustomCall(target_name, opaque, has_side_effect, output_operand_aliasing, api_version)
    return call.emit(_builder_of("custom_call", args, shape), "custom_call", args, shape)


@operation("stablehlo.custom_call")
def custom_call_with_layout(
    target_name: str,
    args: Operands,
    shape_with_layout: ShapeWithLayout,
    operand_shapes_with_layout: Sequence[ShapeWithLayout],
    opaque: str | Mapping[str, object] = "",
    has_side_effect: bool = False,
    output_operand_aliasing: Aliasing = (),
    *,
    api_version: str = "API_VERSION_ORIGINAL",
) -> XlaOp:
    """`custom_call` of a function that asks for its arrays in certain layouts, and gives them so.

    A layout is in XLA's text of a shape: "f32[2,3]{0,1}" says that dimension 0 is the fastest. Without one, and in a
    `Shape`, an array is row-major. Python functions get and give the same arrays in any layout.

    Args:
        shape_with_layout: of the result.
        operand_shapes_with_layout: of each argument; they must be the arguments' shapes.

    Raises:
        ShapeError: a text that is no shape, a layout that does not name each dimension once, the shape of another
            argument; as `custom_call`.

    Source: `CustomCallWithLayout` of XLA's builder; StableHLO `custom_call`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2, 3])
    >>> sx.custom_call_with_layout("column_major", x, "f32[2]", ["f32[2,3]{0,1}"])
    XlaOp(stablehlo.custom_call, f32[2])
    """
    call = CustomCall(target_name, opaque, has_side_effect, output_operand_aliasing, api_version)
    call.operand_shapes_with_layout = operand_shapes_with_layout
    name = "custom_call_with_layout"
    return call.emit(_builder_of(name, args, shape_with_layout), name, args, shape_with_layout)


@operation("stablehlo.custom_call")
def custom_call_with_computation(
    target_name: str,
    args: Operands,
    computation: XlaComputation,
    shape: Shape,
    opaque: str | Mapping[str, object] = "",
    has_side_effect: bool = False,
    output_operand_aliasing: Aliasing = (),
    *,
    api_version: str = "API_VERSION_ORIGINAL",
) -> XlaOp:
    """`custom_call` that applies a computation, which stays a function of the module.

    It is for targets that read it when they are compiled, such as "ApproxTopK", whose comparison it is. A function that
    a user has registered does not get it.

    Args:
        computation: of any parameters and result.

    Raises:
        ShapeError: no computation; as `custom_call`.

    Source: `CustomCallWithComputation` of XLA's builder; StableHLO `custom_call` (`called_computations`).

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[4])
    >>> c = sx.XlaBuilder("larger")
    >>> larger = c.build(c.parameter(0, sx.f32[()]) > c.parameter(1, sx.f32[()]))
    >>> sx.custom_call_with_computation("mysort", x, larger, sx.f32[4])
    XlaOp(stablehlo.custom_call, f32[4])
    """
    call = CustomCall(target_name, opaque, has_side_effect, output_operand_aliasing, api_version)
    call.computation = computation
    name = "custom_call_with_computation"
    return call.emit(_builder_of(name, args, shape), name, args, shape)


@operation("stablehlo.custom_call")
def custom_call_with_computation_and_layouts(
    target_name: str,
    args: Operands,
    computation: XlaComputation,
    shape_with_layout: ShapeWithLayout,
    operand_shapes_with_layout: Sequence[ShapeWithLayout],
    opaque: str | Mapping[str, object] = "",
    has_side_effect: bool = False,
    output_operand_aliasing: Aliasing = (),
    *,
    api_version: str = "API_VERSION_ORIGINAL",
) -> XlaOp:
    """`custom_call` with a computation, as in `custom_call_with_computation`, and layouts: `custom_call_with_layout`.

    Raises:
        ShapeError: as those.

    Source: `CustomCallWithComputationAndLayouts` of XLA's builder; StableHLO `custom_call`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[4, 2])
    >>> c = sx.XlaBuilder("larger")
    >>> larger = c.build(c.parameter(0, sx.f32[()]) > c.parameter(1, sx.f32[()]))
    >>> sx.custom_call_with_computation_and_layouts("mysort", x, larger, "f32[4,2]{0,1}", ["f32[4,2]{0,1}"])
    XlaOp(stablehlo.custom_call, f32[4,2])
    """
    call = CustomCall(target_name, opaque, has_side_effect, output_operand_aliasing, api_version)
    call.computation, call.operand_shapes_with_layout = computation, operand_shapes_with_layout
    name = "custom_call_with_computation_and_layouts"
    return call.emit(_builder_of(name, args, shape_with_layout), name, args, shape_with_layout)


def _builder_of(name: str, args: Operands, shape: object) -> XlaBuilder:
    with checking(name, args=args, shape=shape) as rule:
        ops = rule.sequence("args", args)
        rule("", bool(ops), "without arguments there is no builder", "b.custom_call(target_name, (), shape)")
        rule.one_builder(ops)
    return ops[0].builder


def custom_call_in(builder: XlaBuilder, args: Operands, shape: Shape, *attributes: Any) -> XlaOp:
    """A custom call in this builder, with the attributes of `CustomCall` in order."""
    return CustomCall(*attributes).emit(builder, "custom_call", args, shape)


@dataclass
class CustomCall:
    """The attributes of a custom call: target, configuration, aliasing, layouts, called computation."""

    target_name: str
    opaque: str | Mapping[str, object]
    has_side_effect: bool
    output_operand_aliasing: Aliasing
    api_version: str
    computation: XlaComputation | None = None
    operand_shapes_with_layout: Sequence[ShapeWithLayout] | None = None

    def emit(self, builder: XlaBuilder, operation: str, args: Operands, shape: ShapeWithLayout) -> XlaOp:
        """The call, checked, as an operation of a builder."""
        builder = builder.innermost()
        with checking(operation, target_name=self.target_name, args=args, shape=shape) as rule:
            rule("", rule.text("target_name", self.target_name) != "", "target_name must not be empty")
            ops = rule.sequence("args", args)
            rule.belong(builder, args=ops)
            layouts, result = self._layouts(rule, builder, ops, shape)
            rule.word("", "api_version", self.api_version, API_VERSIONS)
            attributes = {
                "call_target_name": self.target_name,
                "has_side_effect": rule.truth("has_side_effect", self.has_side_effect),
                "api_version": builder.i32(API_VERSIONS.index(self.api_version)),
                **_opaque(rule, builder, self.opaque, typed=self.api_version == API_VERSIONS[-1]),
                **_aliasing(rule, builder, ops, result, self.output_operand_aliasing),
                **_tuples(ops, result),
                **layouts,
                **self._called(rule, builder),
            }
        return builder.emit("stablehlo.custom_call", ops, result, attributes)

    def _layouts(
        self, rule: Rules, builder: XlaBuilder, ops: Sequence[XlaOp], shape: ShapeWithLayout
    ) -> tuple[dict[str, ir.Attribute], Shape]:
        """The layouts of arguments and results, where the call has any, and the shape of the result."""
        if "layout" not in rule.operation:
            return {}, rule.shape("shape", shape)
        given = rule.items("operand_shapes_with_layout", self.operand_shapes_with_layout, "a sequence of shapes")
        read = [_with_layout(rule, f"operand_shapes_with_layout[{i}]", each) for i, each in enumerate(given)]
        taken = [known for known, _ in read]
        fits = taken == [op.shape for op in ops]
        rule("", fits, "operand_shapes_with_layout must be the shapes of the arguments")
        result, orders = _with_layout(rule, "shape_with_layout", shape)
        sides = {"operand_layouts": [order for _, each in read for order in each], "result_layouts": orders}
        return {name: _layouts_attribute(builder, each) for name, each in sides.items()}, result

    def _called(self, rule: Rules, builder: XlaBuilder) -> dict[str, ir.Attribute]:
        if self.computation is None and "computation" not in rule.operation:
            return {}
        given = isinstance(self.computation, XlaComputation)
        rule("", given, "computation must be an XlaComputation", "sx.XlaBuilder(name).build(root)")
        assert self.computation is not None
        name = ir.FlatSymbolRefAttr.get(builder.add_function(self.computation), builder.context)
        return {CALLED: ir.ArrayAttr.get([name], builder.context)}


def _tuples(ops: Sequence[XlaOp], shape: Shape) -> dict[str, str]:
    """The shapes of arguments and result, where the arrays that stand in the module do not say them."""
    found = {}
    if any(op.shape.is_tuple for op in ops):
        found["stablexla.arguments"] = str(Shape.tuple(op.shape for op in ops))
    if len(shape.tuple_shapes) == 1 or any(part.is_tuple for part in shape.tuple_shapes):
        found["stablexla.result"] = str(shape)
    return found


def _with_layout(rule: Rules, name: str, given: object) -> tuple[Shape, list[tuple[int, ...]]]:
    """A shape, and for each leaf its dimensions from the fastest on."""
    rule("", isinstance(given, (str, Shape)), f"{name} must be a Shape or XLA's text of one", '"f32[2,3]{0,1}"')
    try:
        shape = given if isinstance(given, Shape) else Shape.parse(str(given))
    except ShapeError as error:
        rule.broken("", f"{name}: {error.summary}", error.hint)
    orders = []
    for leaf, found in zip(shape.leaves, _ARRAY.finditer(str(given)), strict=True):
        text = (found[1] or "").replace(" ", "")
        order = tuple(text.split(",")) if text else tuple(map(str, range(leaf.rank)))[::-1]
        once = sorted(order) == sorted(map(str, range(leaf.rank)))
        rule("", once, f"{name}: a layout must name each dimension of {leaf} once, and say no more")
        orders.append(tuple(map(int, order)))
    return shape, orders


def _layouts_attribute(builder: XlaBuilder, orders: Sequence[Sequence[int]]) -> ir.Attribute:
    each = [f"dense<{list(order) or ''}> : tensor<{len(order)}xindex>" for order in orders]
    return ir.Attribute.parse(f"[{', '.join(each)}]", builder.context)


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
    rule: Rules, builder: XlaBuilder, args: Sequence[XlaOp], shape: Shape, pairs: Aliasing
) -> dict[str, ir.Attribute]:
    """StableHLO's way of saying it, in which only a tuple's results have a number."""
    aliases = []
    given = Shape.tuple(arg.shape for arg in args)
    for result, argument in _pairs(rule, pairs):
        # The only array of a result that is no tuple has the number 0.
        there = shape.leaf_at(result) if shape.is_tuple else {(): 0, (0,): 0}.get(result)
        from_ = given.leaf_at(argument)
        if there is None or from_ is None:
            said = [each[0] if len(each) == 1 else each for each in (result, argument)]
            rule.broken("", f"output_operand_aliasing: there is no pair of result {said[0]} and argument {said[1]}")
        taken, wanted = given.leaves[from_], shape.leaves[there]
        rule("", taken == wanted, f"output_operand_aliasing: argument {from_} is {taken}, result {there} {wanted}")
        places = str(there) if len(shape.leaves) > 1 else ""
        aliases.append(
            f"#stablehlo.output_operand_alias<output_tuple_indices = [{places}], operand_index = {from_}, "
            "operand_tuple_indices = []>"
        )
    if not aliases:
        return {}
    return {"output_operand_aliases": ir.Attribute.parse(f"[{', '.join(aliases)}]", builder.context)}


def _pairs(rule: Rules, pairs: Aliasing) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Both leaves of each pair by the numbers that lead to them."""
    name = "output_operand_aliasing"
    found = [rule.items(f"{name}[{i}]", pair, "a pair") for i, pair in enumerate(rule.items(name, pairs))]
    rule("", all(len(pair) == 2 for pair in found), f"{name} must be pairs (result, argument)", "[(0, 0)]")
    return [(_path(rule, f"{name}[{i}][0]", a), _path(rule, f"{name}[{i}][1]", b)) for i, (a, b) in enumerate(found)]


def _path(rule: Rules, name: str, given: object) -> tuple[int, ...]:
    return rule.integers(name, given) if isinstance(given, Sequence) else (rule.integer(name, given),)
