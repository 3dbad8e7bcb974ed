"""Parameters as constants of a program: weights that never change, which the compiler packs and folds once."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.builder.computation import XlaComputation
from stablexla.builder.constants import constant_attribute
from stablexla.compiling.core import contexts_with_room, leaf_names
from stablexla.dialects.errors import ShapeError
from stablexla.dialects.held_arrays import can_be_held, held_attribute, is_one_number
from stablexla.interop.loading import Program, load
from stablexla.lowering.support.context import ALIASING, DONOR
from stablexla.lowering.support.types import is_token, tensor_type
from stablexla.targets.signature.interface import argument_names
from stablexla.targets.signature.signature import argument_name, main_of


def freeze(
    program: Program, constants: Mapping[str, Any] | Mapping[int, Any] | Mapping[str | int, Any], *, entry: str = "main"
) -> ir.Module:
    """Return a program with some of its parameters as constants; the others keep their order.

    The compiler knows their elements then: it packs the weights of products and convolutions, and no call passes
    them. Only what never changes should be frozen: other values take another compilation.

    Large arrays that are read-only, as those of a file that is mapped and of JAX, are not copied, and nobody may change
    them. The executable has each weight once, as its kernels read it.

    Args:
        program: as `sx.load` takes it; it stays as it is.
        constants: arrays by the parameters' names (arg0, arg1 ... where they have none) or numbers. Their shapes and
            element types are those of the parameters.
        entry: the function to run, which gets the name `main`.

    Returns:
        A module for `sx.compile`, `sx.freeze` and the tools.

    Raises:
        ShapeError: no such parameter; an array of another shape or type; a parameter that is donated, or whose size or
            element type has no constants.
        StablexlaError: as `sx.load`.

    >>> b = sx.XlaBuilder("layer")
    >>> x, w = b.parameter(0, sx.f32[2], "x"), b.parameter(1, sx.f32[2], "w")
    >>> frozen = sx.freeze(b.build(x * w), {"w": np.array([2, 3], np.float32)})
    >>> sx.compile(frozen)(np.array([10, 10], np.float32))
    array([20., 30.], dtype=float32)
    """
    # Types of the module are kept with the contexts that are this thread's, and keep the module's.
    with contexts_with_room(sum(np.asarray(value).nbytes for value in constants.values())):
        return _frozen(load(program, entry=entry), program, constants)


def _frozen(module: ir.Module, program: Program, constants: Mapping[Any, Any]) -> ir.Module:
    main = main_of(module)
    block = main.regions[0].blocks[0]
    places = [number for number, argument in enumerate(block.arguments) if not is_token(argument.type)]
    own = [argument_name(block.arguments[place]) for place in places]
    names = argument_names(leaf_names(program) if isinstance(program, XlaComputation) else own)
    chosen = {places[_number(key, names)]: value for key, value in constants.items()}
    if len(chosen) < len(constants):
        raise ShapeError("a parameter is frozen twice", hint="its name or its number")
    rows = _attributes(main, len(block.arguments))
    with module.context, ir.Location.unknown():
        for place, value in chosen.items():
            told = f"the parameter {names[places.index(place)]}"
            if ALIASING in rows[place] or DONOR in rows[place]:
                raise ShapeError(f"{told} is donated, and cannot be constant")
            argument = block.arguments[place]
            attribute = _elements(value, argument.type, told)
            with ir.InsertionPoint.at_block_begin(block), argument.location:
                made = ir.Operation.create("stablehlo.constant", [argument.type], attributes={"value": attribute})
            argument.replace_all_uses_with(made.result)
        for place in sorted(chosen, reverse=True):
            block.erase_argument(place)
        kept = [row for place, row in enumerate(rows) if place not in chosen]
        type_ = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        inputs = [each for place, each in enumerate(type_.inputs) if place not in chosen]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, list(type_.results)))
        if "arg_attrs" in main.attributes:
            main.attributes["arg_attrs"] = ir.ArrayAttr.get(kept)
    return module


def _number(key: str | int, names: list[str]) -> int:
    """Return the number of a parameter, given by its name or by it."""
    if key in names:
        return names.index(str(key))
    if isinstance(key, (int, np.integer)) and 0 <= key < len(names):
        return int(key)
    near = get_close_matches(str(key), names, 1)
    raise ShapeError(
        f"the program has no parameter {key!r}: it has {', '.join(names) or 'none'}", hint=near[0] if near else ""
    )


def _attributes(main: Any, count: int) -> list[Any]:
    if "arg_attrs" not in main.attributes:
        return [{}] * count
    return [ir.DictAttr(row) for row in ir.ArrayAttr(main.attributes["arg_attrs"])]


def _elements(value: Any, type_: ir.Type, told: str) -> ir.Attribute:
    """Return an array as the elements of a constant."""
    known = tensor_type(type_)
    array = np.asarray(value, order="C")
    if array.dtype != known.element.dtype or array.shape != known.shape:
        raise ShapeError(f"{told} is {known}, and the constant an array {array.dtype.name}{list(array.shape)}")
    if array.flags.writeable or not can_be_held(array) or is_one_number(array):
        return constant_attribute(array, type_)
    return held_attribute(array, type_)
