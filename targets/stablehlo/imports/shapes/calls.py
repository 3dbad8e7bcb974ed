"""Custom calls for operations whose attributes depend on shapes, as `jax.export` writes them.

Once their shape operands are constant they become the operations that they stand for, with static results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.erasing import erase
from stablexla.dialects.symbols import symbol_of
from stablexla.targets.stablehlo.imports.shapes.values import constant_of
from stablexla.targets.stablehlo.inlining import operations_of


def replace_dynamic_calls(module: ir.Module) -> bool:
    """Replace the calls whose operands are known.

    Returns:
        Whether there was any.
    """
    changed = False
    for op in operations_of(module, "stablehlo.custom_call"):
        rule = _CALLS.get(str(ir.StringAttr(op.attributes["call_target_name"]).value))
        if rule is None:
            continue
        with op.location, ir.InsertionPoint(op):
            made = rule(module, op)
        if made is None:
            continue
        for old, new in zip(op.results, made, strict=True):
            replace_value(old, new)
        erase(op)
        changed = True
    return changed


def replace_value(old: Any, new: Any) -> None:
    """Replace a dynamic value by a static one; only types of functions need updating."""
    returns = [use.owner.operation for use in old.uses if use.owner.operation.name == "func.return"]
    old.replace_all_uses_with(new)
    for op in returns:
        function = op.parent
        type_ = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        results = [v.type for v in op.operands]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(list(type_.inputs), results))


def _numbers(value: Any) -> list[int] | None:
    found = constant_of(value)
    return None if found is None else [int(n) for n in found.reshape(-1)]


def _top_k(module: ir.Module, op: Any) -> Sequence[Any] | None:
    """Replace a top_k. Operands: the array, and k."""
    x, k = op.operands
    count = _numbers(k)
    if count is None or not x.type.has_static_shape:
        return None
    shape = [*x.type.shape[:-1], count[0]]
    types = [_with_shape(r.type, shape) for r in op.results]
    attributes = {"k": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), count[0])}
    return list(ir.Operation.create("chlo.top_k", results=types, operands=[x], attributes=attributes).results)


def _rng_bit_generator(module: ir.Module, op: Any) -> Sequence[Any] | None:
    """Replace a generator of random bits. Operands: the state, and the shape of the bits."""
    state, shape = op.operands
    extents = _numbers(shape)
    if extents is None:
        return None
    types = [state.type, _with_shape(op.results[1].type, extents)]
    attributes = {"rng_algorithm": op.attributes["rng_algorithm"]}
    made = ir.Operation.create("stablehlo.rng_bit_generator", results=types, operands=[state], attributes=attributes)
    return list(made.results)


def _reduce_window(module: ir.Module, op: Any) -> Sequence[Any] | None:
    """Replace a window reduction. Operands: arrays, initial values, window dimensions, strides, dilations, padding."""
    *values, last = op.operands
    window = [_numbers(v) for v in (*values[-4:], last)]
    arrays = values[: (len(values) - 4) // 2]
    if any(w is None for w in window) or not all(v.type.has_static_shape for v in arrays):
        return None
    sizes, strides, base, dilations, padding = (np.array(w, np.int64) for w in window)
    padding = padding.reshape(-1, 2)
    reduced = _window_extents(np.array(arrays[0].type.shape), sizes, strides, base, dilations, padding)
    made = ir.Operation.create(
        "stablehlo.reduce_window",
        results=[_with_shape(r.type, reduced) for r in op.results],
        operands=values[:-4],
        attributes={
            "window_dimensions": ir.DenseI64ArrayAttr.get(sizes.tolist()),
            "window_strides": ir.DenseI64ArrayAttr.get(strides.tolist()),
            "base_dilations": ir.DenseI64ArrayAttr.get(base.tolist()),
            "window_dilations": ir.DenseI64ArrayAttr.get(dilations.tolist()),
            "padding": ir.DenseIntElementsAttr.get(padding),
        },
        regions=1,
    )
    _move_body(_called(module, op), made.regions[0])
    return list(made.results)


def _window_extents(extents: Any, sizes: Any, strides: Any, base: Any, dilations: Any, padding: Any) -> list[int]:
    """Compute the number of windows along each dimension."""
    spread = np.where(extents == 0, 0, (extents - 1) * base + 1) + padding.sum(axis=1)
    reach = (sizes - 1) * dilations + 1
    count = np.where((spread <= 0) | (reach > spread), 0, (spread - reach) // strides + 1)
    return [int(n) for n in count]


def _approximate_top_k(module: ir.Module, op: Any) -> Sequence[Any] | None:
    """Replace by an exact top-k: sort all arrays by the called comparator, and slice the first k.

    Operands: n arrays, n initial values, k, and the shapes of the results, which follow from k.
    """
    config = op.attributes["mhlo.backend_config"]
    place = int(ir.IntegerAttr(config["reduction_dim"]).value)
    arrays = list(op.operands)[: len(op.results)]
    count = _numbers(op.operands[2 * len(arrays)])
    if count is None or not all(v.type.has_static_shape for v in arrays):
        return None
    attributes = {
        "dimension": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), place),
        "is_stable": ir.BoolAttr.get(True),
    }
    types = [v.type for v in arrays]
    order = ir.Operation.create("stablehlo.sort", results=types, operands=arrays, attributes=attributes, regions=1)
    _move_body(_called(module, op), order.regions[0])
    extents = [count[0] if i == place else n for i, n in enumerate(types[0].shape)]
    return [stablehlo.slice(v, [0] * len(extents), extents, [1] * len(extents)) for v in order.results]


def _called(module: ir.Module, op: Any) -> Any:
    (symbol,) = op.attributes["called_computations"]
    name = ir.FlatSymbolRefAttr(symbol).value
    for function in module.body.operations:
        if symbol_of(function) == name:
            return function.operation
    raise AssertionError(f"no function @{name}, which the verifier asks for")


def _move_body(function: Any, region: Any) -> None:
    """Clone the function's operations into an operation's region."""
    copy = function.clone().operation
    old = copy.regions[0].blocks[0]
    new = region.blocks.append(*(a.type for a in old.arguments), arg_locs=[a.location for a in old.arguments])
    for old_argument, argument in zip(list(old.arguments), new.arguments, strict=True):
        old_argument.replace_all_uses_with(argument)
    *operations, terminator = (op.operation for op in old.operations)
    with ir.InsertionPoint(new):
        end = ir.Operation.create("stablehlo.return", operands=list(terminator.operands))
    for op in operations:
        op.move_before(end)
    erase(terminator)
    erase(copy)


def _with_shape(type_: Any, extents: Sequence[int]) -> ir.RankedTensorType:
    return ir.RankedTensorType.get([int(n) for n in extents], type_.element_type)


_CALLS: dict[str, Callable[[ir.Module, Any], Sequence[Any] | None]] = {
    "stablehlo.dynamic_approx_top_k": _approximate_top_k,
    "stablehlo.dynamic_reduce_window": _reduce_window,
    "stablehlo.dynamic_rng_bit_generator": _rng_bit_generator,
    "stablehlo.dynamic_top_k": _top_k,
}
