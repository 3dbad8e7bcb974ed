"""Shape refinement: the extents of all arrays, inferred from those of the parameters once these are known.

StableHLO's own passes do most of it. `values.py` evaluates the shape computations that they leave; `calls.py` replaces
custom calls that JAX writes for operations whose attributes depend on shapes; `dialects.py` converts size computations
in other dialects.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.dialects.composites import name_and_version
from stablexla.dialects.contexts import diagnostics
from stablexla.dialects.dynamic_sizes import extents_of, is_unknown
from stablexla.dialects.errors import UnsupportedError, VerificationError
from stablexla.lowering.support.context import place_of
from stablexla.targets.pipeline.driver import parse_passes
from stablexla.targets.pipeline.messages import messages_of
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.pipeline.pipelines import Step, split
from stablexla.targets.signature.signature import body_of, main_of, outer_types
from stablexla.targets.stablehlo.imports import reachable, shardings, structured  # noqa: F401
from stablexla.targets.stablehlo.imports.shapes.assertions import check_shape_assertions
from stablexla.targets.stablehlo.imports.shapes.calls import replace_dynamic_calls
from stablexla.targets.stablehlo.imports.shapes.dialects import PREFIXES, shapes_to_stablehlo
from stablexla.targets.stablehlo.imports.shapes.values import evaluate_shapes
from stablexla.targets.stablehlo.imports.total_division import make_divisions_total
from stablexla.targets.stablehlo.inlining import call_decomposition, inline_calls, note_ways, noted_ways, operations_of

REFINE = "stablexla-refine-arguments"
SHAPES = "shapes"
"""Name of the step, before all others, that refines shapes."""
# Operations that may have dynamic results, or must be removed, though the parameters of main are static.
_SOURCES = frozenset(
    [
        "stablehlo.compute_reshape_shape",
        "stablehlo.dynamic_broadcast_in_dim",
        "stablehlo.dynamic_conv",
        "stablehlo.dynamic_gather",
        "stablehlo.dynamic_iota",
        "stablehlo.dynamic_pad",
        "stablehlo.dynamic_reshape",
        "stablehlo.real_dynamic_slice",
    ]
)
_REFINE_SHAPES = "stablehlo-refine-shapes"
_CANONICALIZE = "func.func(stablehlo-canonicalize-dynamism)"
_ROUNDS = 64


@module_pass(REFINE, "gives the parameters of main the types that a call has", side="stablehlo")
def refine_arguments(module: ir.Module, *, types: str = "") -> None:
    """Set the types of all parameters, given in order without spaces: tensor<2x3xf32>,tensor<i32>.

    Raises:
        VerificationError: types that do not fit those of the parameters.
    """
    parameters = [a.type for a in body_of(module).arguments]
    given = [_parse_type(e.text, module.context) for e in split(types)]
    if len(given) != len(parameters):
        raise VerificationError(f"main has {len(parameters)} parameters, but {len(given)} types are given for them")
    for number, (old, new) in enumerate(zip(parameters, given, strict=True)):
        if not refines(new, old):
            raise VerificationError(f"parameter {number} of main is of type {old}, which {new} does not fit")
        if new != old and is_unknown(new):
            raise VerificationError(f"parameter {number} of main: {new} leaves extents open")
    main = main_of(module)
    for argument, new in zip(body_of(module).arguments, given, strict=True):
        if argument.type != new:
            _refine(argument, new)
    type_ = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(given, list(type_.results)))


def _refine(argument: Any, new: Any) -> None:
    """Set the type of a parameter; its uses keep the old one until the shapes are refined.

    As StableHLO's pass does it, which cannot parse types with commas in them.
    """
    old, shape = argument.type, list(new.shape)
    with ir.InsertionPoint.at_block_begin(argument.owner):
        extents = ir.DenseElementsAttr.get(np.array(shape, np.int64))
        constant = ir.Operation.create("stablehlo.constant", results=[extents.type], attributes={"value": extents})
        attributes = {
            "call_target_name": ir.StringAttr.get("stablehlo.shape_refinement_operand_wrapper"),
            "indices_of_shape_operands": ir.DenseElementsAttr.get(np.array([1], np.int64)),
        }
        operands = [argument, constant.results[0]]
        wrapped = ir.Operation.create("stablehlo.custom_call", results=[old], operands=operands, attributes=attributes)
    argument.replace_all_uses_except(wrapped.results[0], wrapped)
    argument.set_type(new)


@module_pass(
    "stablexla-refine-shapes",
    "finds the extents of all arrays from those of the parameters, and checks shape assertions",
    side="stablehlo",
    acts_on=lambda held: held.has(*_SOURCES, *PREFIXES, "stablehlo.custom_call") or held.has_type(is_unknown),
)
def refine_shapes(module: ir.Module) -> None:
    """Infer all unknown extents; modules without any are left as they are.

    Raises:
        UnsupportedError: an extent that depends on data.
        VerificationError: extents that break the rule of an operation.
        ExecutionError: a shape assertion does not hold.
    """
    if not _has_unknown(module):
        return
    _check_parameters(module)
    _decompose(module)
    inline_calls(module)
    shapes_to_stablehlo(module)
    _check_groups(module)
    for _ in range(_ROUNDS):
        make_divisions_total(module)
        try:
            _run(module, _REFINE_SHAPES, _CANONICALIZE)
        except VerificationError:
            _check_first(module)
            raise
        if not (replace_dynamic_calls(module) or evaluate_shapes(module)):
            break
    check_shape_assertions(module)
    _check_static(module)


def _check_groups(module: ir.Module) -> None:
    """Refuse empty groups: StableHLO's pass divides by the number of devices in a group, and aborts the process."""
    for name in ("stablehlo.reduce_scatter", "stablehlo.all_gather"):
        for op in operations_of(module, name):
            groups = op.attributes["replica_groups"]
            empty = isinstance(groups, ir.DenseElementsAttr) and 0 in ir.RankedTensorType(groups.type).shape
            if empty and any(is_unknown(r.type) for r in op.results):
                said = f"groups without devices, whose number gives the extents of the result{place_of(op.location)}"
                raise UnsupportedError(said, operation=name)


def refining_step(types: str) -> Step:
    """Return the refinement step for parameters of these types, spelled as the pass takes them."""
    types = types.replace(" ", "")
    return Step(
        SHAPES, f"{REFINE}{{types={types}}},stablexla-drop-unreachable,stablexla-drop-shardings,stablexla-refine-shapes"
    )


def _check_parameters(module: ir.Module) -> None:
    for number, argument in enumerate(body_of(module).arguments):
        if is_unknown(argument.type):
            raise UnsupportedError(
                f"parameter {number} of main is {argument.type}: its extents must be known first",
                hint=f"the pass {REFINE}{{types=...}}, or arguments: sx.compile(program)(*arguments)",
            )


def _check_first(module: ir.Module) -> None:
    """Check shape assertions first: a failing one says more than the rule of the operation that it guards."""
    with suppress(UnsupportedError):
        check_shape_assertions(module)


def refines(new: Any, old: Any) -> bool:
    """Whether a type equals another one, or refines its extents."""
    if new == old:
        return True
    if not (isinstance(new, ir.RankedTensorType) and isinstance(old, ir.RankedTensorType)):
        return False
    if new.rank != old.rank or new.element_type != old.element_type:
        return False
    return all(old.is_dynamic_dim(i) or new.shape[i] == old.shape[i] for i in range(old.rank))


def _has_unknown(module: ir.Module) -> bool:
    found = False

    def look(op: Any) -> Any:
        nonlocal found
        name = op.name
        if name in _SOURCES:
            found = not any(extents_of(r.type)[1] for r in op.results)  # bounded ones are supported
        elif name.startswith(PREFIXES):
            found = True
        elif name == "func.func":
            found = any(map(is_unknown, outer_types(op)))
        elif name == "stablehlo.custom_call":
            found = _target(op) == "shape_assertion" or any(is_unknown(r.type) for r in op.results)
        return ir.WalkResult.INTERRUPT if found else ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found


def _target(op: Any) -> str:
    return str(ir.StringAttr(op.attributes["call_target_name"]).value)


def _decompose(module: ir.Module) -> None:
    """Decompose composites of dynamic arrays: the extents of their results follow from the decompositions."""
    ways = noted_ways(module)
    for op in operations_of(module, "stablehlo.composite"):
        if any(is_unknown(v.type) for v in (*op.operands, *op.results)):
            ways["{} v{}".format(*name_and_version(op))] = "decomposition"
            call_decomposition(op)
    note_ways(module, ways)


def _run(module: ir.Module, *passes: str) -> None:
    """Run MLIR's passes, with verification.

    Raises:
        VerificationError: extents that do not fit each other, with MLIR's diagnostics.
    """
    for text in passes:
        manager = parse_passes(tuple(split(text)), "stablehlo", verify_each=True)
        with diagnostics(module.context) as seen:
            try:
                manager.run(module.operation)
            except ir.MLIRError as error:
                # The notes hold whole functions.
                said = [line for line in messages_of(error, seen) if not line.startswith("note")]
                raise VerificationError("; ".join(_short(line) for line in said) or str(error)) from None


def _short(message: str) -> str:
    return message.removeprefix("error: ").replace("\n    from ", ", at ")


def _parse_type(text: str, context: ir.Context) -> Any:
    with diagnostics(context):
        try:
            return ir.Type.parse(text, context).maybe_downcast()
        except (ir.MLIRError, ValueError):
            raise VerificationError(f"{text!r} is no type", hint="types=tensor<2x3xf32>,tensor<i32>") from None


def _check_static(module: ir.Module) -> None:
    """Refuse the first operation that has a result of unknown extents."""
    first: list[Any] = []

    def look(op: Any) -> Any:
        if any(is_unknown(r.type) for r in op.results):
            first.append(op.operation)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    main_of(module).walk(look)
    if first:
        raise _data_dependent(first[0])


def _data_dependent(op: Any) -> UnsupportedError:
    dynamic = [
        (number, [i for i in range(r.type.rank) if r.type.is_dynamic_dim(i)])
        for number, r in enumerate(op.results)
        if is_unknown(r.type)
    ]
    number, places = dynamic[0]
    which = f"result {number}" if len(op.results) > 1 else "the result"
    name = f"{op.name} @{_target(op)}" if op.name == "stablehlo.custom_call" else op.name
    return UnsupportedError(
        f"the size of dimension {' and '.join(map(str, places))} of {which} cannot be told from the shapes of the "
        f"arguments: it depends on their values{place_of(op.location)}",
        operation=name,
        operands={f"operand {i}": v.type for i, v in enumerate(op.operands)} | {"result": op.results[number].type},
        hint="a bounded type, tensor<?xf32, #stablehlo.bounds<8>>, where a bound is known",
    )
