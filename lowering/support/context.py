"""The lowering context passed to rules, and the traversal of a StableHLO module that applies them.

Rank-0 tensors are scalars in the lowered program, so that loop counters and combiners never touch memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
from mlir.dialects import arith, func, tensor

from stablexla.dialects.attributes.device_groups import PARTITIONS, REPLICAS, Grid, grid_of
from stablexla.dialects.attributes.plain_values import plain
from stablexla.dialects.composites import attributes_of
from stablexla.dialects.contexts import upstream_context
from stablexla.dialects.errors import UnsupportedError, VerificationError
from stablexla.dialects.rules import COMPOSITE, LoweringRule
from stablexla.dialects.source_files import frames_in, line_of
from stablexla.dialects.stopping import look
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.operations import terminator_of
from stablexla.lowering.support.registry import lower_operation
from stablexla.lowering.support.repeats import PART
from stablexla.lowering.support.storage import entered, to_storage
from stablexla.lowering.support.types import (
    TOKEN,
    TensorType,
    is_token,
    ssa_type,
    storage_type,
    tensor_storage,
    tensor_type,
)

# The name of an operation, as JAX puts it around the frames of its calls.
_NAME = re.compile(r'"([^"\n]+)"\(.*"\(')

INLINE, LOWER = "stablexla-inline-calls", "stablexla-lower-to-tensor"
"""The pass that leaves one function, and the one that lowers it."""

_INTEGERS = (ir.IntegerType, ir.IndexType)


class LoweringContext:
    """One StableHLO operation that is being lowered.

    Attributes:
        op: the operation.
        operand_types, result_types: its tensor types.
        rule: the user's rule that is applied to it.
    """

    rule: LoweringRule | None = None

    def __init__(self, op: hlo_ir.Operation, walk: ModuleLowering) -> None:
        self.op = op
        self._walk = walk
        place = op.location
        self.operand_types: list[TensorType] = types_of(op.operands, op.name, place)
        self.result_types: list[TensorType] = types_of(op.results, op.name, place)

    @property
    def op_name(self) -> str:
        return str(self.op.name)

    @property
    def result(self) -> TensorType:
        """The type of the only result."""
        (only,) = self.result_types
        return only

    @property
    def attributes(self) -> Any:
        """The operation's attributes (StableHLO's objects)."""
        return self.op.attributes

    @property
    def plain_attributes(self) -> dict[str, Any]:
        """The attributes as plain values; for a composite those that its user gave."""
        if self.op_name == COMPOSITE:
            return attributes_of(self.op)
        return {name: plain(self.op.attributes[name]) for name in self.op.attributes}

    @property
    def place(self) -> str:
        """The operation's source location as a line of text; empty if unknown."""
        return place_of(self.op.location)

    def elementwise(self, function: Callable[..., ir.Value], *operands: ir.Value) -> list[ir.Value]:
        """Emit an element-wise operation as one loop nest; return its results.

        Args:
            function: emits scalar operations; it is called with an element of each operand.
            operands: as the rule was called with them, of the shape of the result.
        """
        from stablexla.lowering.support.generic import elementwise

        return elementwise(operands, self.operand_types, self.result_types, function)

    def constant(self, value: float, like: ir.Value) -> ir.Value:
        """Return a constant of another scalar's type; MLIR's own function aborts on an integer for a float."""
        return arith.constant(like.type, (int if isinstance(like.type, _INTEGERS) else float)(value))

    def built_in(self, *operands: ir.Value) -> list[ir.Value]:
        """Lower by the package's rule instead of the user's, for cases that a user's rule leaves to it."""
        from stablexla.lowering.support.user_rules import built_in

        return built_in(self, operands)

    def unsupported(self, what: str, hint: str = "", option: str = "") -> UnsupportedError:
        """Return the error for a case that this operation's rule does not support."""
        shapes = {f"operand {i}": t for i, t in enumerate(self.operand_types)}
        place = place_of(self.op.location)
        return UnsupportedError(what + place, operation=self.op_name, operands=shapes, hint=hint, option=option)

    def inline_region(self, region: int, arguments: Sequence[ir.Value]) -> list[ir.Value]:
        """Inline a region's block, lowered, at the insertion point with bound arguments; return its results."""
        return self._walk.lower_block(self.op.regions[region].blocks[0], arguments)

    def inline_function(self, name: str, arguments: Sequence[ir.Value]) -> list[ir.Value]:
        """Inline the body of another function, lowered, at the insertion point with bound arguments."""
        return self._walk.lower_block(self._walk.functions[name].regions[0].blocks[0], arguments)

    def new_symbol(self, stem: str) -> str:
        """Return an unused symbol name for a further function in the lowered module."""
        number = self._walk.symbols[stem] = self._walk.symbols.get(stem, -1) + 1
        return f"{stem}_{number}"

    @property
    def whole_sorts(self) -> bool:
        """Whether each sort is one kernel, for a target that has its own ways to sort."""
        return self._walk.whole_sorts

    def function(self, name: str) -> Any:
        """Return the StableHLO function of that name in the module."""
        return self._walk.functions[name]

    @property
    def grid(self) -> Grid:
        """The devices that the program is compiled for."""
        return self._walk.grid

    def once(self, name: str, make: Callable[[], ir.Value]) -> ir.Value:
        """Return a value emitted once, at the beginning of main, and shared by name."""
        return self._walk.once(name, make)


def types_of(values: Sequence[Any], operation: str, location: Any) -> list[TensorType]:
    """Return the tensor types of an operation's operands or results.

    Raises:
        UnsupportedError: one of them has no lowering; the message names the operation and where it stands.
    """
    try:
        return [tensor_type(v.type) for v in values]
    except UnsupportedError as error:
        raise UnsupportedError(error.summary + place_of(location), operation=operation) from None


def arrays_of(values: Sequence[Any]) -> list[Any]:
    """Return the values that are not tokens."""
    return [v for v in values if not is_token(v.type)]


def new_token() -> ir.Value:
    """Return a placeholder value for a token."""
    return tensor.empty(TOKEN.shape, storage_type(TOKEN.element))


def place_of(location: Any) -> str:
    """Return a source location as a line for an error's message; empty if unknown."""
    place = str(location).removeprefix("loc(").removesuffix(")")
    if place == "unknown":
        return ""
    frames = frames_in(place)
    if frames and (frames[0].function or frames[0].text):  # Python's code outside of a function has a line, too
        return f"\n  from {line_of(place)}"
    name = None if frames else _NAME.match(place)
    return f"\n  from {name[1] if name else place}"


class ModuleLowering:
    """The lowering of one StableHLO module into a new upstream module."""

    def __init__(self, module: hlo_ir.Module, *, whole_sorts: bool) -> None:
        self.source = module
        self.whole_sorts = whole_sorts
        self.functions = {symbol_of(op): op for op in module.body.operations if op.operation.name == "func.func"}
        self.symbols: dict[str, int] = {}
        self.grid = grid_of(module)
        self._entry: ir.Block | None = None
        self._made_once: dict[str, ir.Value] = {}
        self._values: dict[hlo_ir.Value, ir.Value] = {}
        self._locations: dict[hlo_ir.Attribute, ir.Location] = {}

    def lower(self) -> ir.Module:
        """Lower the module; return an upstream module with one public function `main`."""
        with upstream_context(), ir.Location.unknown():
            module = ir.Module.create()
            if name := symbol_of(self.source):
                module.operation.attributes["sym_name"] = ir.StringAttr.get(name)
            if self.grid.size > 1:
                for name, count in ((REPLICAS, self.grid.replicas), (PARTITIONS, self.grid.partitions)):
                    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), count)
                    module.operation.attributes[name] = number
            if "main" not in self.functions:
                raise VerificationError("the module has no function main")
            with ir.InsertionPoint(module.body):
                for name, function in self.functions.items():
                    if PART in function.operation.attributes:
                        self._lower_part(name, function)
                self._lower_main(self.functions["main"])
            return module

    def _lower_part(self, name: str, source: Any) -> None:
        """Lower a function that `main` calls; numbers are handed over as scalars."""
        block = source.regions[0].blocks[0]
        inputs = types_of(block.arguments, f"the parameters of {name}", source.location)
        outputs = types_of(terminator_of(block).operands, f"the results of {name}", source.location)
        signature = ir.FunctionType.get([ssa_type(t) for t in inputs], [ssa_type(t) for t in outputs])
        part = func.FuncOp(name, signature, visibility="private")
        part.attributes[PART] = ir.UnitAttr.get()
        self._entry, self._made_once = part.add_entry_block(), {}
        with ir.InsertionPoint(self._entry):
            func.ReturnOp(self.lower_block(block, list(part.arguments)))

    def _lower_main(self, source: Any) -> None:
        """Lower `main` without its tokens: operations with effects stay in program order anyway."""
        block = source.regions[0].blocks[0]
        inputs = types_of(arrays_of(block.arguments), "the parameters of main", source.location)
        terminator = terminator_of(block)
        outputs = types_of(arrays_of(terminator.operands), "the results of main", terminator.location)
        signature = ir.FunctionType.get([tensor_storage(t) for t in inputs], [tensor_storage(t) for t in outputs])
        main = func.FuncOp("main", signature, visibility="public")
        note_donations(source, main.operation)
        self._entry, self._made_once = main.add_entry_block(), {}
        with ir.InsertionPoint(self._entry):
            loaded = iter([entered(v, t) for v, t in zip(main.arguments, inputs, strict=True)])
            arguments = [new_token() if is_token(v.type) else next(loaded) for v in block.arguments]
            made = zip(terminator.operands, self.lower_block(block, arguments), strict=True)
            results = [value for formal, value in made if not is_token(formal.type)]
            func.ReturnOp([self._leave(v, t) for v, t in zip(results, outputs, strict=True)])

    def once(self, name: str, make: Callable[[], ir.Value]) -> ir.Value:
        """Emit a value once, at the beginning of main; return it."""
        assert self._entry is not None
        if name not in self._made_once:
            with ir.InsertionPoint.at_block_begin(self._entry):
                self._made_once[name] = make()
        return self._made_once[name]

    def _leave(self, value: ir.Value, type_: TensorType) -> ir.Value:
        if type_.rank:
            return value
        return tensor.from_elements(tensor_storage(type_), [to_storage(value, type_.element)])

    def lower_block(self, block: Any, arguments: Sequence[ir.Value]) -> list[ir.Value]:
        """Lower a block's operations in order; return the values of its terminator's operands."""
        for formal, actual in zip(block.arguments, arguments, strict=True):
            self._values[formal] = actual
        operations = list(block.operations)
        for view in operations[:-1]:
            self._lower_operation(view.operation)
        return [self._values[v] for v in operations[-1].operation.operands]

    def _lower_operation(self, op: hlo_ir.Operation) -> None:
        look()
        ctx = LoweringContext(op, self)
        operands = [self._values[v] for v in op.operands]
        with self._location(op.location):
            if op.name == "func.call":  # of a part
                callee = hlo_ir.FlatSymbolRefAttr(op.attributes["callee"]).value
                if callee not in self.functions or PART not in self.functions[callee].operation.attributes:
                    raise ctx.unsupported(
                        f"the call of @{callee} is not inlined",
                        hint=f"{INLINE} before {LOWER}",
                        option=f"-{INLINE} -{LOWER}",
                    )
                results = list(func.CallOp([ssa_type(t) for t in ctx.result_types], callee, operands).results)
            else:
                results = lower_operation(ctx, operands)
        for formal, actual, type_ in zip(op.results, results, ctx.result_types, strict=True):
            assert actual.type == ssa_type(type_), f"{op.name}: {actual.type} is not {ssa_type(type_)}"
            self._values[formal] = actual

    def _location(self, location: Any) -> ir.Location:
        attribute = location.attr
        found = self._locations.get(attribute)
        if found is None:
            text = str(location)
            try:
                found = ir.Location.from_attr(ir.Attribute.parse(text))
            except ir.MLIRError:  # a location that wraps an attribute of StableHLO's own context
                found = ir.Location.name(text)
            self._locations[attribute] = found
        return found


def lower_to_tensor(module: hlo_ir.Module, *, whole_sorts: bool = False) -> ir.Module:
    """Lower a verified, inlined StableHLO module to linalg, tensor, scf, arith and math on tensors.

    Args:
        whole_sorts: makes each sort one kernel.

    Raises:
        UnsupportedError: an operation, type or attribute that has no lowering; the message names the user's line.
        VerificationError: there is no function `main`.
    """
    return ModuleLowering(module, whole_sorts=whole_sorts).lower()


ALIASING, DONOR = "tf.aliasing_output", "jax.buffer_donor"
DONATED = "stablexla.donated"
"""Attribute of a donated parameter: the number of the result that may alias it, -1 for any."""


def note_donations(source: Any, main: ir.Operation) -> None:
    """Copy the donations of the StableHLO function's parameters to main's; tokens are no parameters here."""
    if "arg_attrs" not in source.attributes:
        return
    block = source.regions[0].blocks[0]
    results = terminator_of(block).operands
    arrays = [number for number, value in enumerate(results) if not is_token(value.type)]
    rows = []
    for argument, given in zip(block.arguments, hlo_ir.ArrayAttr(source.attributes["arg_attrs"]), strict=True):
        if not is_token(argument.type):
            wanted = _wanted({named.name: named.attr for named in hlo_ir.DictAttr(given)}, arrays)
            rows.append({} if wanted is None else {DONATED: wanted})
    if any(rows):
        i64 = ir.IntegerType.get_signless(64)
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get({name: ir.IntegerAttr.get(i64, number) for name, number in row.items()}) for row in rows]
        )


def _wanted(given: dict[str, Any], arrays: list[int]) -> int | None:
    """Return the result that may alias the parameter; None if the parameter is not donated."""
    if ALIASING in given:
        number = int(hlo_ir.IntegerAttr(given[ALIASING]).value)
        return arrays.index(number) if number in arrays else -1
    if DONOR in given and hlo_ir.BoolAttr(given[DONOR]).value:
        return -1
    return None
