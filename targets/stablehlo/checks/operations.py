"""Which operations can make a NaN or an infinity out of values that are none, by their names and types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.element_types import ElementType
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.op_traits import TRAITS
from stablexla.dialects.value_checks import DIVISION, ERRORS, INDICES, INF, NAN, SHIFTS
from stablexla.lowering.support.types import tensor_type

CONTROL = ("stablehlo.while", "stablehlo.if", "stablehlo.case")
_MOVE = (
    *("broadcast", "broadcast_in_dim", "concatenate", "copy", "dynamic_broadcast_in_dim", "dynamic_gather"),
    *("dynamic_pad", "dynamic_reshape", "dynamic_slice", "dynamic_update_slice", "gather", "get_tuple_element"),
    *(
        "optimization_barrier",
        "pad",
        "real_dynamic_slice",
        "reshape",
        "reverse",
        "select",
        "slice",
        "sort",
        "transpose",
    ),
    *("torch_index_select", "tuple"),
)
_MOVE_BETWEEN_DEVICES = ("all_gather", "all_to_all", "collective_broadcast", "collective_permute")
_START = ("constant", "infeed", "iota", "recv", "rng", "rng_bit_generator", "create_token", "after_all")
_NEITHER = ("ceil", "clamp", "complex", "floor", "imag", "maximum", "minimum", "negate", "real", "sign")
_ROUND = ("round_nearest_afz", "round_nearest_even")
NEVER = frozenset(f"stablehlo.{name}" for name in (*_MOVE, *_MOVE_BETWEEN_DEVICES, *_START, *_NEITHER, *_ROUND))
"""Operations whose results hold no NaN and no infinity but those of their operands."""
_BOUNDED = frozenset(
    ["stablehlo.abs", "stablehlo.logistic", "stablehlo.tanh", "stablehlo.cbrt", "chlo.erf", "chlo.erfc"]
)
_NO_NAN = frozenset(["stablehlo.exponential", "stablehlo.exponential_minus_one", "stablehlo.reduce_precision"])
POLES = frozenset(
    [
        *("stablehlo.log", "stablehlo.log_plus_one", "stablehlo.rsqrt", "chlo.atanh", "chlo.erf_inv", "chlo.digamma"),
        *("chlo.lgamma", "chlo.polygamma", "chlo.zeta"),
    ]
)
"""Functions whose infinities are poles, not overflow."""
_SHIFTS = frozenset(f"stablehlo.shift_{name}" for name in ("left", "right_arithmetic", "right_logical"))
_INDEXED = frozenset(f"stablehlo.{name}" for name in ("dynamic_slice", "dynamic_update_slice", "gather", "scatter"))
_DIVIDE = frozenset(["stablehlo.divide", "stablehlo.remainder"])
_RANGE = {"f16": 5, "bf16": 8, "f32": 8, "f64": 11}  # bits of the exponent


def element_of(value: Any) -> ElementType | None:
    """Return the element type of an array; None of tokens and of types that are none of XLA's."""
    try:
        return tensor_type(value.type).element
    except UnsupportedError:
        return None


def maker_of(value: Any) -> Any:
    """Return the operation that a value is a result of; None of a block's argument."""
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def is_number(value: Any) -> bool:
    """Return whether a value is an array of floats or complex numbers."""
    element = element_of(value)
    return element is not None and (element.is_float or element.is_complex)


def has_nan(element: ElementType) -> bool:
    """Return whether a type has a NaN."""
    return element.bits > 6


def has_inf(element: ElementType) -> bool:
    """Return whether a type has infinities."""
    return element.bits > 8 or element.name in ("f8e5m2", "f8e4m3", "f8e3m4")


def name_of(op: Any) -> str:
    """Return an operation's name; of a composite, which is lowered whole, the composite's."""
    if op.name == "stablehlo.composite":
        return str(ir.StringAttr(op.attributes["name"]).value)
    return str(op.name)


def is_elementwise(op: Any) -> bool:
    """Return whether an element of the result depends on the operands' elements at its index alone."""
    traits = TRAITS.get(name_of(op))
    if traits is None or not traits.is_elementwise or len(op.results) != 1:
        return False
    shape = list(op.results[0].type.shape)
    return all(list(value.type.shape) == shape for value in op.operands)


def kinds_at(op: Any, kinds: Sequence[str]) -> tuple[str, ...]:
    """Return those of the kinds that an operation may show."""
    return tuple(kind for kind in kinds if (_makes(op, kind) if kind in ERRORS else _misused(op, kind)))


def _misused(op: Any, kind: str) -> bool:
    if kind == INDICES:
        return op.name in _INDEXED
    names = {DIVISION: _DIVIDE, SHIFTS: _SHIFTS}[kind]
    element = element_of(op.results[0]) if op.name in names else None
    return element is not None and element.is_integer


def _makes(op: Any, kind: str) -> bool:
    if op.name in NEVER or op.name in CONTROL or not any(is_number(value) for value in op.results):
        return False
    is_real = not any(element is not None and element.is_complex for element in map(element_of, op.operands))
    if is_real and name_of(op) in _BOUNDED:
        return False
    if op.name == "stablehlo.convert":
        return _loses_range(op, kind)
    if is_real and _is_harmless(op, kind):
        return False
    if kind == NAN:
        return not (is_real and op.name in _NO_NAN) and any(has_nan(e) for e in map(element_of, op.results) if e)
    return kind == INF or name_of(op) not in POLES


def _is_harmless(op: Any, kind: str) -> bool:
    """Return whether an operand makes it impossible: x * x is no NaN but of one, x / 768 no infinity but of one."""
    element = element_of(op.results[0])
    if op.name not in _ARITHMETIC or element is None or not has_inf(element):
        return False
    lhs, rhs = op.operands
    if op.name == "stablehlo.multiply" and lhs == rhs:
        return kind == NAN
    number = splat_of(rhs)
    if number is None and op.name in ("stablehlo.add", "stablehlo.multiply"):
        number = splat_of(lhs)
    if number is None or not isfinite(number) or 0 < abs(number) < _SURELY_NORMAL or element.bits <= 8:
        return False
    if op.name in ("stablehlo.add", "stablehlo.subtract"):
        return kind == NAN or abs(number) <= 1  # less than half the distance between the largest numbers of any type
    if kind == NAN:
        return number != 0
    return 0 < abs(number) <= 1 if op.name == "stablehlo.multiply" else abs(number) >= 1


_SURELY_NORMAL = 1e-4  # smaller numbers may be flushed to zero
_ARITHMETIC = frozenset(f"stablehlo.{name}" for name in ("add", "subtract", "multiply", "divide"))


def splat_of(value: Any) -> float | None:
    """Return the float that is each element of a constant of the program's text, or of an array of one."""
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name == "stablehlo.broadcast_in_dim":
        value = value.owner.operation.operands[0]
    element = element_of(value)  # the bindings read no complex constants
    if isinstance(value.owner, ir.Block) or element is None or not element.is_float:
        return None
    maker = value.owner.operation
    held = ir.DenseElementsAttr(maker.attributes["value"]) if maker.name == "stablehlo.constant" else None
    return None if held is None or not held.is_splat else float(ir.FloatAttr(held.get_splat_value()).value)


def _loses_range(op: Any, kind: str) -> bool:
    """Return whether a conversion may make a NaN or an infinity of a finite number."""
    source, made = element_of(op.operands[0]), element_of(op.results[0])
    if source is None or made is None:
        return False
    source, made = source.part, made.part
    if not has_inf(made):
        return has_nan(made) and source.name != made.name
    if kind == NAN:
        return False
    if not source.is_float:
        return made.name == "f16" or made.bits == 8
    wider = _RANGE.get(made.name, 0) > _RANGE.get(source.name, 5 if source.bits < 16 else 99)
    return not wider and source.name != made.name


@dataclass(frozen=True)
class Checked:
    """An operation that is checked.

    Attributes:
        number: from 1, in program order.
        op: the operation.
        kinds: those that it may show.
        loops: the loops around it, outermost first.
        path: the regions around it, outermost first: the operation, and which of its regions.
        is_alone: whether a NaN in a result, or what is not finite, is enough, whatever the operands are.
    """

    number: int
    op: Any
    kinds: tuple[str, ...]
    path: tuple[tuple[Any, int], ...] = ()
    is_alone: bool = False

    @property
    def loops(self) -> tuple[Any, ...]:
        """The loops around it, outermost first."""
        return tuple(op for op, _ in self.path if op.name == "stablehlo.while")


def checked_operations(main: Any, kinds: Sequence[str]) -> list[Checked]:
    """Return the operations of a function that may show a kind, in program order, those in loops and branches too."""
    found: list[Checked] = []
    for op, path in operations_with_paths(main.regions[0].blocks[0], ()):
        own = kinds_at(op, kinds)
        if own:
            found.append(Checked(len(found) + 1, op, own, path))
    return found


def operations_with_paths(
    block: Any, path: tuple[tuple[Any, int], ...]
) -> Iterator[tuple[Any, tuple[tuple[Any, int], ...]]]:
    """Yield the operations of a block, those in loops and branches too, each with the regions around it."""
    for view in block.operations:
        op = view.operation
        yield op, path
        if op.name in CONTROL:
            for number, region in enumerate(op.regions):
                yield from operations_with_paths(region.blocks[0], (*path, (op, number)))


def path_of(op: Any) -> tuple[tuple[Any, int], ...]:
    """Return the regions around an operation, as in `Checked.path`."""
    path: list[tuple[Any, int]] = []
    outer = op.block.owner.operation
    while outer.name in CONTROL:
        path.insert(0, (outer, next(i for i, r in enumerate(outer.regions) if r.blocks[0] == op.block)))
        op, outer = outer, outer.block.owner.operation
    return tuple(path)


def terminator(block: Any) -> Any:
    """Return a block's last operation."""
    return list(block.operations)[-1].operation


def counts(condition: Any) -> bool:
    """Return whether a loop's condition compares integers, none of which an operation of the condition makes."""
    made = terminator(condition).operands[0].owner
    if isinstance(made, ir.Block) or made.operation.name != "stablehlo.compare":
        return False
    compared = made.operation
    if not isinstance(compared.operands[0].type.element_type, ir.IntegerType):
        return False
    makers = [value.owner for value in compared.operands]
    return all(isinstance(m, ir.Block) or m.operation.name == "stablehlo.constant" for m in makers)
