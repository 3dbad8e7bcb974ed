"""An embedded language for loop nests and explicit vectors: typed SSA values with operators, loops, loads, shuffles.

Emitters decide what a kernel computes and in which order. Everything here works inside `emitting(...)`, which sets the
function that is being emitted; arithmetic on known numbers is folded in Python, and each constant is emitted once per
function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

import mlir.ir as ir
from mlir.dialects import arith, func, memref, scf, vector

from stablexla.lowering.support.types import parsed_type
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.sums.compensated import MAX_TRIP_COUNT, compensate_sums

Number = int | float
# Bytes to which buffers are aligned.
MOST_ALIGNED = 64


class _Function:
    """The function being emitted: its target and the constants it already has."""

    def __init__(self, entry: ir.Block, target: CpuTarget) -> None:
        self.entry = entry
        self.target = target
        self.index = ir.IndexType.get()
        self.constants: dict[tuple[ir.Type, str], ir.Value] = {}


_current: ContextVar[_Function] = ContextVar("stablexla_emission")


@contextmanager
def emitting(function: func.FuncOp, target: CpuTarget, *, in_blocks: bool = True) -> Iterator[None]:
    """Emit at the end of `function`'s entry block; `func.return` is put last.

    With `in_blocks`, loop-carried sums become blocked (cascaded) sums then, see `blocked_sums`.
    """
    entry = function.regions[0].blocks[0]
    with function.context, ir.Location.unknown(), ir.InsertionPoint(entry):
        token = _current.set(_Function(entry, target))
        try:
            yield
            func.ReturnOp([])
            if in_blocks:
                compensate_sums(function.operation)
        finally:
            _current.reset(token)


# --- values -------------------------------------------------------------------------------------------------


class Value:
    """An SSA value, scalar or vector, with Python's operators; `known` is the number of a constant.

    `+`, `-` and `*` ignore the sign of integers and `index`; `//` and `%` are unsigned (addresses are not negative),
    `>>` is arithmetic; comparisons are methods, signed for integers and ordered for floats.
    """

    __slots__ = ("_ssa", "known", "type")

    def __init__(self, value: ir.Value | None, type_: ir.Type | None = None, known: Number | None = None) -> None:
        if value is None and (type_ is None or known is None):
            raise ValueError("a value without SSA value needs a type and a number")
        self._ssa = value
        self.type: ir.Type = type_ if type_ is not None else value.type  # type: ignore[union-attr]
        self.known = known

    @property
    def ssa(self) -> ir.Value:
        """The SSA value; a known constant is emitted at the top of the function on first use."""
        if self._ssa is None:
            assert self.known is not None
            self._ssa = _materialise(self.type, self.known)
        return self._ssa

    @property
    def element(self) -> ir.Type:
        """The element type of a vector, or the type itself."""
        return element_of(self.type)

    @property
    def lanes(self) -> int:
        """Number of lanes of a vector, 0 for a scalar."""
        return int(ir.VectorType(self.type).shape[0]) if isinstance(self.type, ir.VectorType) else 0

    def __bool__(self) -> bool:
        raise TypeError("a value of the emitted program has no truth value while it is emitted")

    def _other(self, other: Value | Number) -> Value:
        return other if isinstance(other, Value) else constant(other, self.type)

    def _binary(
        self, other: Value | Number, fold: Callable[[Any, Any], Number], on_float: str, on_integer: str
    ) -> Value:
        rhs = self._other(other)
        if self.known is not None and rhs.known is not None:
            return constant(fold(self.known, rhs.known), self.type)
        return _made(on_float if is_float(self.type) else on_integer, self.type, self.ssa, rhs.ssa)

    def __add__(self, other: Value | Number) -> Value:
        rhs = self._other(other)
        if rhs.known == 0 and not is_float(self.type):
            return self
        if self.known == 0 and not is_float(self.type):
            return rhs
        return self._binary(rhs, lambda a, b: a + b, "arith.addf", "arith.addi")

    def __radd__(self, other: Number) -> Value:
        return self + other

    def __sub__(self, other: Value | Number) -> Value:
        rhs = self._other(other)
        if rhs.known == 0 and not is_float(self.type):
            return self
        return self._binary(rhs, lambda a, b: a - b, "arith.subf", "arith.subi")

    def __rsub__(self, other: Number) -> Value:
        return constant(other, self.type) - self

    def __mul__(self, other: Value | Number) -> Value:
        rhs = self._other(other)
        if rhs.known == 1 or (self.known == 0 and not is_float(self.type)):
            return self
        if self.known == 1 or (rhs.known == 0 and not is_float(self.type)):
            return rhs
        return self._binary(rhs, lambda a, b: a * b, "arith.mulf", "arith.muli")

    def __rmul__(self, other: Number) -> Value:
        return self * other

    def __truediv__(self, other: Value | Number) -> Value:
        return _made("arith.divf", self.type, self.ssa, self._other(other).ssa)

    def __floordiv__(self, other: Value | Number) -> Value:
        rhs = self._other(other)
        return self if rhs.known == 1 else self._binary(rhs, lambda a, b: a // b, "arith.divf", "arith.divui")

    def __mod__(self, other: Value | Number) -> Value:
        rhs = self._other(other)
        if rhs.known == 1:
            return constant(0, self.type)
        return self._binary(rhs, lambda a, b: a % b, "arith.remf", "arith.remui")

    def __and__(self, other: Value | Number) -> Value:
        return _made("arith.andi", self.type, self.ssa, self._other(other).ssa)

    def __or__(self, other: Value | Number) -> Value:
        return _made("arith.ori", self.type, self.ssa, self._other(other).ssa)

    def __xor__(self, other: Value | Number) -> Value:
        return _made("arith.xori", self.type, self.ssa, self._other(other).ssa)

    def __lshift__(self, other: Value | Number) -> Value:
        return _made("arith.shli", self.type, self.ssa, self._other(other).ssa)

    def __rshift__(self, other: Value | Number) -> Value:
        return _made("arith.shrsi", self.type, self.ssa, self._other(other).ssa)

    def __neg__(self) -> Value:
        return _made("arith.negf", self.type, self.ssa) if is_float(self.type) else constant(0, self.type) - self

    def _compare(self, name: str, other: Value | Number) -> Value:
        rhs, is_of_floats = self._other(other), is_float(self.type)
        if is_of_floats:
            kind: int = getattr(arith.CmpFPredicate, "UNE" if name == "ne" else "O" + name.upper())
        else:
            kind = getattr(arith.CmpIPredicate, name if name in ("eq", "ne") else "s" + name)
        type_ = vector_of(self.lanes, ir.IntegerType.get_signless(1))
        predicate = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), kind)
        return _made("arith.cmpf" if is_of_floats else "arith.cmpi", type_, self.ssa, rhs.ssa, predicate=predicate)

    def lt(self, other: Value | Number) -> Value:
        """self < other."""
        return self._compare("lt", other)

    def le(self, other: Value | Number) -> Value:
        """self <= other."""
        return self._compare("le", other)

    def gt(self, other: Value | Number) -> Value:
        """self > other."""
        return self._compare("gt", other)

    def ge(self, other: Value | Number) -> Value:
        """self >= other."""
        return self._compare("ge", other)

    def eq(self, other: Value | Number) -> Value:
        """self == other."""
        return self._compare("eq", other)

    def ne(self, other: Value | Number) -> Value:
        """self != other; true for NaN."""
        return self._compare("ne", other)


class ComplexVector(Value):
    """Complex numbers in lanes: a vector of their real parts and one of their imaginary parts.

    MLIR has no vectors of complex numbers: `type` is that of one number, and there is no single SSA value. A scalar
    complex number is a `Value` as any other.
    """

    __slots__ = ("im", "pairs", "re")

    def __init__(self, re: Value, im: Value, pairs: Value | None = None) -> None:
        self._ssa, self.known = None, None
        self.type = ir.ComplexType.get(re.element)
        self.re, self.im = re, im
        self.pairs = pairs  # the parts in turn, as memory had them

    @property
    def ssa(self) -> ir.Value:
        """There is none."""
        raise TypeError("complex numbers in lanes are two values")

    @property
    def lanes(self) -> int:
        """Number of complex numbers."""
        return self.re.lanes


Index = Value | int


def _made(name: str, type_: ir.Type, *operands: ir.Value, **attributes: ir.Attribute) -> Value:
    """Create an operation: the bindings' builder functions take three times as long, and kernels have thousands."""
    return Value(ir.Operation.create(name, [type_], operands, attributes).result, type_)


def constant(number: Number, type_: ir.Type) -> Value:
    """Return the constant `number` of `type_`, a splat for a vector type; emitted once per function, on first use."""
    return Value(None, type_, number)


def truth(value: bool) -> Value:
    """Return the constant of type i1."""
    return constant(int(value), ir.IntegerType.get_signless(1))


def total(terms: Iterable[Index]) -> Value:
    """Emit the sum of indices."""
    found = index(0)
    for term in terms:
        found = found + term
    return found


def index(number: Index) -> Value:
    """Return `number` as a value of type index."""
    return number if isinstance(number, Value) else Value(None, _current.get().index, number)


def known(number: Index) -> int | None:
    """Return the number behind an index if it is known while emitting, else None."""
    if isinstance(number, int):
        return number
    return None if number.known is None else int(number.known)


def _materialise(type_: ir.Type, number: Number) -> ir.Value:
    function = _current.get()
    # Keyed by the spelling too: 0 and -0.0 compare equal.
    key = (type_, repr(number))
    made = function.constants.get(key)
    if made is None:
        with ir.InsertionPoint.at_block_begin(function.entry):
            value = {"value": _attribute(type_, number)}
            made = ir.Operation.create("arith.constant", results=[type_], attributes=value).result
            function.constants[key] = made
    return made


def _attribute(type_: ir.Type, number: Number) -> ir.Attribute:
    element = element_of(type_)
    attribute: ir.Attribute
    if isinstance(element, ir.FloatType):
        attribute = ir.FloatAttr.get(element, float(number))
    else:
        attribute = ir.IntegerAttr.get(element, _wrapped(int(number), element))
    return ir.DenseElementsAttr.get_splat(type_, attribute) if isinstance(type_, ir.VectorType) else attribute


def _wrapped(number: int, element: ir.Type) -> int:
    if not isinstance(element, ir.IntegerType):
        return number
    half: int = 1 << (ir.IntegerType(element).width - 1)
    return (number + half) % (2 * half) - half


# --- types --------------------------------------------------------------------------------------------------


def element_of(type_: ir.Type) -> ir.Type:
    """Return the element type of a vector or memref, or the type itself."""
    if isinstance(type_, (ir.VectorType, ir.MemRefType, ir.RankedTensorType)):
        element: ir.Type = type_.element_type
        return element
    return type_


def is_float(type_: ir.Type) -> bool:
    """Return whether a scalar or vector type has floating-point elements."""
    return isinstance(element_of(type_), ir.FloatType)


def bits_of(type_: ir.Type) -> int:
    """Return the width of an element in bits; index counts as 64, a complex number as both parts."""
    element = element_of(type_)
    if isinstance(element, ir.ComplexType):
        return 2 * bits_of(element.element_type)
    return 64 if isinstance(element, ir.IndexType) else int(element.width)


def lanes_of(type_: ir.Type) -> int:
    """Return the lane count of a vector register: how many elements of `type_` it holds on the target."""
    return max(1, _current.get().target.vector_bits // bits_of(type_))


def has_feature(name: str) -> bool:
    """Return whether the target has instructions of that name, of `machine.FEATURES`."""
    return name in _current.get().target.features


def lane_bits(type_: ir.Type) -> int:
    """Return the width of an element's lane in bits: that of a part for complex numbers."""
    element = element_of(type_)
    return bits_of(element.element_type if isinstance(element, ir.ComplexType) else element)


def vector_of(lanes: int, element: ir.Type) -> ir.Type:
    """Return `vector<lanes x element>`, or the element itself when `lanes` is 0."""
    return ir.VectorType.get([lanes], element) if lanes else element


# --- control flow -------------------------------------------------------------------------------------------


class loop:  # noqa: N801 -- reads as a statement
    """`scf.for` from `lo` to `hi`: `with loop(0, n, 8, [zero]) as l: ...; l.yields(...)`, then `l.results`.

    A loop of trip count 1 is emitted without `scf.for`; its `iv` is then known. `most` bounds the trip count where the
    bounds do not tell it; 0 leaves the loop-carried sums as they are.
    """

    def __init__(
        self, lo: Index, hi: Index, step: Index = 1, inits: Sequence[Value] = (), *, most: int | None = None
    ) -> None:
        self._bounds, self._most = (lo, hi, step), most
        self._inits = list(inits)
        self._op: scf.ForOp | None = None
        self._point: ir.InsertionPoint | None = None
        self._yielded: list[Value] | None = None
        self.iv: Value
        self.args: list[Value]

    def _runs_once(self) -> bool:
        lo, hi, step = (known(bound) for bound in self._bounds)
        return lo is not None and hi is not None and step is not None and 0 < hi - lo <= step

    def __enter__(self) -> Self:
        if self._runs_once():
            self.iv, self.args = index(self._bounds[0]), self._inits
            return self
        lo, hi, step = (index(bound).ssa for bound in self._bounds)
        self._op = scf.ForOp(lo, hi, step, [v.ssa for v in self._inits])
        if self._most is not None:
            self._op.attributes[MAX_TRIP_COUNT] = ir.IntegerAttr.get(ir.IndexType.get(), self._most)
        self.iv = Value(self._op.induction_variable)
        self.args = [Value(v) for v in self._op.inner_iter_args]
        self._point = ir.InsertionPoint(self._op.body)
        self._point.__enter__()
        return self

    def yields(self, *values: Value) -> None:
        """Set the loop-carried values (`args`) of the next iteration; the last statement of the body."""
        self._yielded = list(values)
        if self._op is not None:
            _yield(values)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._yielded is None:
            self.yields()
        if self._point is not None:
            self._point.__exit__(kind, error, trace)

    @property
    def results(self) -> list[Value]:
        """The loop-carried values after the last iteration."""
        return (self._yielded or []) if self._op is None else [Value(v) for v in self._op.results]


class branch:  # noqa: N801 -- reads as a statement
    """`scf.if`: `b = branch(c, [t])`, `with b.then: b.yields(x)`, `with b.otherwise: b.yields(y)`."""

    def __init__(self, condition: Value, types: Sequence[ir.Type] = (), otherwise: bool = True) -> None:
        self._op = scf.IfOp(condition.ssa, list(types), has_else=otherwise)
        self.then = _Side(self._op.then_block)
        self.otherwise = _Side(self._op.else_block) if otherwise else self.then
        self._results = [Value(v) for v in self._op.results]

    def yields(self, *values: Value) -> None:
        """Set the results of the branch being emitted; its last statement."""
        _yield(values)

    @property
    def results(self) -> list[Value]:
        """The values yielded by the branch taken."""
        return self._results


def _yield(values: Sequence[Value]) -> None:
    ir.Operation.create("scf.yield", operands=[value.ssa for value in values])


class _Side:
    """One branch of an `scf.if`, entered by `with`; an `scf.yield` is added if it has none."""

    def __init__(self, block: ir.Block) -> None:
        self._block = block
        self._point = ir.InsertionPoint(block)

    def __enter__(self) -> None:
        self._point.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        operations = self._block.operations
        if kind is None and not (len(operations) and operations[len(operations) - 1].name == "scf.yield"):
            _yield([])
        self._point.__exit__(kind, error, trace)


@contextmanager
def when(condition: Value) -> Iterator[None]:
    """Emit the code inside under `scf.if`, so that it runs only if `condition` holds."""
    with branch(condition, otherwise=False).then:
        yield


# --- arithmetic beyond the operators ------------------------------------------------------------------------


def fma(a: Value, b: Value, c: Value) -> Value:
    """Return the fused multiply-add a * b + c of floats where the target has it; integers multiply, then add."""
    if not is_float(a.type):
        return a * b + c
    if _current.get().target.vector_bits < 256:
        # Without FMA hardware a fused operation is a library call; `contract` lets LLVM fuse where there is hardware.
        flags = arith.FastMathFlags.contract
        return Value(arith.addf(arith.mulf(a.ssa, b.ssa, fastmath=flags), c.ssa, fastmath=flags))
    return _made("vector.fma" if a.lanes else "math.fma", a.type, a.ssa, b.ssa, c.ssa)


def select(condition: Value, yes: Value, no: Value) -> Value:
    """Return `yes` where `condition` holds, else `no`."""
    return _made("arith.select", yes.type, condition.ssa, yes.ssa, no.ssa)


def minimum(a: Index, b: Index) -> Value:
    """Return the smaller of two indices."""
    x, y = index(a), index(b)
    if x.known is not None and y.known is not None:
        return index(int(min(x.known, y.known)))
    return _made("arith.minui", x.type, x.ssa, y.ssa)


def maximum(a: Index, b: Index) -> Value:
    """Return the larger of two indices, as signed numbers: `maximum(x - n, 0)` is 0 for x < n."""
    x, y = index(a), index(b)
    if x.known is not None and y.known is not None:
        return index(int(max(x.known, y.known)))
    return _made("arith.maxsi", x.type, x.ssa, y.ssa)


def split_index(number: Index, extents: Sequence[Index]) -> list[Value]:
    """Delinearize: return the coordinates of row-major position `number` in an array of `extents`."""
    rest, out = index(number), []
    for place, extent in reversed(list(enumerate(extents))):
        out.append(rest % extent if place else rest)
        rest = rest // extent if place else rest
    return out[::-1]


def cast_index(value: Value, type_: ir.Type) -> Value:
    """Cast between index and an integer type, scalar or vector."""
    return _made("arith.index_cast", type_, value.ssa)


def to_float(value: Value, element: ir.Type) -> Value:
    """Convert a float, or each of its lanes, to another float type, to nearest even where that is narrower."""
    if value.element == element:
        return value
    name = "arith.extf" if bits_of(element) > bits_of(value.element) else "arith.truncf"
    return _made(name, vector_of(value.lanes, element), value.ssa)


def bitcast(value: Value, element: ir.Type) -> Value:
    """Reinterpret the bit pattern as elements of another type of the same width."""
    return _made("arith.bitcast", vector_of(value.lanes, element), value.ssa)


def opaque(value: Value) -> Value:
    """Hide an integer's value from LLVM's optimizer, by inline assembly without instructions."""
    made = ir.Operation.create(
        "llvm.inline_asm",
        results=[value.type],
        operands=[value.ssa],
        attributes={"asm_string": ir.StringAttr.get(""), "constraints": ir.StringAttr.get("=r,0")},
    )
    return Value(made.result)


# --- vectors ------------------------------------------------------------------------------------------------


def splat(value: Value, lanes: int) -> Value:
    """Broadcast a scalar to every lane; for `lanes` 0 it stays a scalar."""
    if not lanes or value.lanes == lanes:
        return value
    if isinstance(value.type, ir.ComplexType):
        return ComplexVector(*(splat(part, lanes) for part in parts_of(value)))
    type_ = vector_of(lanes, value.type)
    if value.known is not None:
        return constant(value.known, type_)
    return _made("vector.broadcast", type_, value.ssa)


def parts_of(value: Value) -> tuple[Value, Value]:
    """Return the real and the imaginary part of a complex number, or those of all lanes."""
    if isinstance(value, ComplexVector):
        return value.re, value.im
    part = ir.ComplexType(value.type).element_type
    re, im = (ir.Operation.create(f"complex.{p}", results=[part], operands=[value.ssa]).result for p in ("re", "im"))
    return Value(re, part), Value(im, part)


def shuffle(a: Value, b: Value, lanes: Sequence[int]) -> Value:
    """Return a vector whose lane i is lane `lanes[i]` of the concatenation of a and b."""
    if isinstance(a, ComplexVector) and isinstance(b, ComplexVector):
        return ComplexVector(shuffle(a.re, b.re, lanes), shuffle(a.im, b.im, lanes))
    mask = ir.DenseI64ArrayAttr.get(list(lanes))
    return _made("vector.shuffle", vector_of(len(lanes), a.element), a.ssa, b.ssa, mask=mask)


def extract(value: Value, lane: int) -> Value:
    """Return one lane as a scalar."""
    return _made("vector.extract", value.element, value.ssa, static_position=ir.DenseI64ArrayAttr.get([lane]))


def insert(value: Value, into: Value, lane: int) -> Value:
    """Return `into` with one lane replaced."""
    place = ir.DenseI64ArrayAttr.get([lane])
    return _made("vector.insert", into.type, value.ssa, into.ssa, static_position=place)


def iota_vector(lanes: int) -> Value:
    """Return the vector 0, 1, 2, ... of type index."""
    return lane_numbers(lanes, _current.get().index)


def lane_numbers(lanes: int, element: ir.Type) -> Value:
    """Return the vector 0, 1, 2, ... of integers of a type."""
    return integers(range(lanes), vector_of(lanes, element))


def integers(numbers: Sequence[int], type_: ir.Type) -> Value:
    """Return a constant vector of integers."""
    element = element_of(type_)
    attributes = [ir.IntegerAttr.get(element, number) for number in numbers]
    return _made("arith.constant", type_, value=ir.DenseElementsAttr.get(attributes, type_))


def cut(value: Value, first: int, lanes: int) -> Value:
    """Return some adjacent lanes of a vector."""
    return value if lanes == value.lanes else shuffle(value, value, range(first, first + lanes))


def replace_lanes(value: Value, part: Value, first: int) -> Value:
    """Return a vector with a part of its lanes replaced, from lane `first` on."""
    count, lanes = part.lanes, range(value.lanes)
    wide = shuffle(part, part, [lane if lane < count else 0 for lane in lanes])
    return shuffle(wide, value, [i - first if first <= i < first + count else value.lanes + i for i in lanes])


def reduce_add(value: Value) -> Value:
    """Return the horizontal sum of the lanes; floats are added as a reduction tree."""
    kind = vector.CombiningKind.ADD
    flags = arith.FastMathFlags.reassoc if is_float(value.type) else None
    return Value(vector.reduction(value.element, kind, value.ssa, fastmath=flags))


def reduce(value: Value, kind: Any) -> Value:
    """Emit a horizontal reduction by any `vector.CombiningKind`; for floating sums see `reduce_add`."""
    return Value(vector.reduction(value.element, kind, value.ssa))


def transpose_registers(rows: Sequence[Value]) -> list[Value]:
    """Transpose n vectors of n lanes in registers, by two-operand shuffles that are one instruction each on x86.

    Inside 128-bit blocks a step interleaves two rows (the unpack instructions), which rotates the bits of the lane
    number; across blocks a step exchanges halves.
    """
    vectors = list(rows)
    count = len(vectors)
    inner = min(count, max(1, 128 // bits_of(vectors[0].type)))
    bit = inner // 2
    while bit:
        for r in [r for r in range(count) if not r & bit]:
            a, b = vectors[r], vectors[r | bit]
            blocks = range(0, count, inner)
            low = [x for s in blocks for i in range(inner // 2) for x in (s + i, s + i + count)]
            vectors[r], vectors[r | bit] = shuffle(a, b, low), shuffle(a, b, [x + inner // 2 for x in low])
        bit //= 2
    bit = inner
    while bit < count:
        for r in [r for r in range(count) if not r & bit]:
            a, b = vectors[r], vectors[r | bit]
            low = [p if not p & bit else (p ^ bit) + count for p in range(count)]
            high = [p | bit if not p & bit else p + count for p in range(count)]
            vectors[r], vectors[r | bit] = shuffle(a, b, low), shuffle(a, b, high)
        bit *= 2
    return vectors


# --- memory -------------------------------------------------------------------------------------------------


def alloca(elements: Index, element: ir.Type) -> Value:
    """Allocate a buffer on the stack of this call, 64-byte aligned, at the top of the function. Keep it small.

    One whose size is known at run time alone is allocated where it is asked for, which may not be in a loop.
    """
    if known(elements) is None:
        dynamic = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], element)
        return Value(memref.alloca(dynamic, [index(elements).ssa], [], alignment=MOST_ALIGNED))
    with ir.InsertionPoint.at_block_begin(_current.get().entry):
        type_ = ir.MemRefType.get([known(elements)], element)
        return Value(memref.alloca(type_, [], [], alignment=MOST_ALIGNED))


def address(buffer: Value) -> Value:
    """Return the address of a buffer's first element, in bytes."""
    return Value(memref.extract_aligned_pointer_as_index(buffer.ssa))


def as_parts(buffer: Value) -> Value:
    """View a flat buffer of complex numbers as real and imaginary parts in turn; return others unchanged."""
    type_ = ir.MemRefType(buffer.type)
    if not isinstance(type_.element_type, ir.ComplexType):
        return buffer
    return Value(viewed(buffer.ssa, ir.MemRefType.get([2 * type_.shape[0]], type_.element_type.element_type)))


def as_words(buffer: Value) -> Value:
    """View a flat buffer of 64-bit complex numbers as integers; return others unchanged.

    Integers of 128 bits would be assumed to be aligned to 16 bytes.
    """
    type_ = ir.MemRefType(buffer.type)
    if not isinstance(type_.element_type, ir.ComplexType) or bits_of(type_.element_type) > 64:
        return buffer
    word = ir.IntegerType.get_signless(bits_of(type_.element_type))
    return Value(viewed(buffer.ssa, ir.MemRefType.get([type_.shape[0]], word)))


# What MLIR's lowering makes of a flat buffer: its address twice, the offset, the extent and the stride.
_DESCRIPTOR = "!llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>"


def viewed(buffer: ir.Value, type_: ir.Type) -> ir.Value:
    """View a flat buffer as one of another element type, in the same memory."""
    # Both are the same pointer in LLVM's dialect, where both casts fold away.
    for to in (parsed_type(_DESCRIPTOR), type_):
        buffer = ir.Operation.create("builtin.unrealized_conversion_cast", results=[to], operands=[buffer]).result
    return buffer


def buffer_from_address(address: ir.Value, type_: ir.Type) -> ir.Value:
    """Return the flat buffer of a type that begins at an address."""
    i64 = ir.IntegerType.get_signless(64)
    (extent,) = ir.MemRefType(type_).shape
    zero, count, one = (arith.ConstantOp(i64, n).result for n in (0, extent, 1))
    return _described(((address, [0]), (address, [1]), (zero, [2]), (count, [3, 0]), (one, [4, 0])), type_)


def addressed(address: ir.Value, element: ir.Type, extent: int) -> Value:
    """Return the flat buffer that begins at an address, for loads and stores alone.

    These read nothing else of its descriptor.
    """
    return Value(_described(((address, [1]),), ir.MemRefType.get([extent], element)))


def _described(parts: Iterable[tuple[ir.Value, list[int]]], type_: ir.Type) -> ir.Value:
    form = parsed_type(_DESCRIPTOR)
    made = ir.Operation.create("llvm.mlir.undef", results=[form]).result
    for value, place in parts:
        at = {"position": ir.DenseI64ArrayAttr.get(place)}
        made = ir.Operation.create("llvm.insertvalue", results=[form], operands=[made, value], attributes=at).result
    return ir.Operation.create("builtin.unrealized_conversion_cast", results=[type_], operands=[made]).result


def _every_other(pairs: Value) -> ComplexVector:
    """Split real and imaginary parts in turn into complex numbers in lanes."""
    re, im = (shuffle(pairs, pairs, range(first, pairs.lanes, 2)) for first in (0, 1))
    return ComplexVector(re, im, pairs)


def _in_turn(value: ComplexVector) -> Value:
    """Return the parts of complex numbers in turn, as memory has them."""
    lanes = value.lanes
    return (
        value.pairs
        if value.pairs is not None
        else shuffle(value.re, value.im, [lane + part for lane in range(lanes) for part in (0, lanes)])
    )


def load(buffer: Value, at: Index, lanes: int = 0) -> Value:
    """Load `lanes` contiguous elements from `at` on as a vector, or for 0 one scalar; no alignment is assumed."""
    if lanes and isinstance(buffer.element, ir.ComplexType):
        return _every_other(load(as_parts(buffer), index(at) * 2, 2 * lanes))
    name = "vector.load" if lanes else "memref.load"
    return _made(name, vector_of(lanes, buffer.element), buffer.ssa, index(at).ssa)


def part_from(buffer: Value, at: Index, size: int) -> Value:
    """Return `size` elements of a flat buffer from one on, as a buffer."""
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    type_ = ir.MemRefType.get([size], buffer.element, layout=ir.StridedLayoutAttr.get(dynamic, [1]))
    made = memref.reinterpret_cast(
        type_, buffer.ssa, [index(at).ssa], [], [], static_offsets=[dynamic], static_sizes=[size], static_strides=[1]
    )
    return Value(made)


def store(value: Value, buffer: Value, at: Index, nontemporal: bool = False) -> None:
    """Store a scalar or a vector.

    A non-temporal (streaming) store needs an address aligned to the vector, or to `MOST_ALIGNED` bytes.
    """
    if isinstance(value, ComplexVector):
        store(_in_turn(value), as_parts(buffer), index(at) * 2, nontemporal)
        return
    bytes_stored = value.lanes * bits_of(value.type) // 8
    if nontemporal and bytes_stored > MOST_ALIGNED:
        half = value.lanes // 2
        for first in (0, half):
            store(shuffle(value, value, range(first, first + half)), buffer, index(at) + first, nontemporal)
        return
    if nontemporal and value.lanes:
        vector.store(value.ssa, buffer.ssa, [index(at).ssa], nontemporal=True, alignment=bytes_stored)
    else:
        name = "vector.store" if value.lanes else "memref.store"
        ir.Operation.create(name, operands=[value.ssa, buffer.ssa, index(at).ssa])


def mask(lanes: int, count: Index) -> Value:
    """Return a mask that is true in the first `count` lanes."""
    number = known(count)
    if number is not None:
        return integers([lane < number for lane in range(lanes)], vector_of(lanes, ir.IntegerType.get_signless(1)))
    i32 = ir.IntegerType.get_signless(32)
    return splat(cast_index(index(count), i32), lanes).gt(lane_numbers(lanes, i32))


def load_lanes(buffer: Value, at: Index, lanes: int, count: Index, fill: Number = 0) -> Value:
    """Emit a masked `load`: only the first `count` lanes are read; the others hold `fill`."""
    number = known(count)
    if number is not None and number >= lanes:
        return load(buffer, at, lanes)
    if isinstance(buffer.element, ir.ComplexType):
        return _every_other(load_lanes(as_parts(buffer), index(at) * 2, 2 * lanes, index(count) * 2, fill))
    rest = constant(fill, vector_of(lanes, buffer.element))
    if number is None or has_masks(buffer.element):
        return _made("vector.maskedload", rest.type, buffer.ssa, index(at).ssa, mask(lanes, count).ssa, rest.ssa)
    for offset, width in _pieces(number):
        if width == 1:
            rest = insert(load(buffer, index(at) + offset), rest, offset)
        else:
            part = load(buffer, index(at) + offset, width)
            rest = replace_lanes(rest, part, offset)
    return rest


def store_lanes(value: Value, buffer: Value, at: Index, count: Index) -> None:
    """Emit a masked `store`: only the first `count` lanes are written."""
    number = known(count)
    if number is not None and number >= value.lanes:
        store(value, buffer, at)
    elif isinstance(value, ComplexVector):
        store_lanes(_in_turn(value), as_parts(buffer), index(at) * 2, index(count) * 2)
    elif number == 1:
        # LLVM 22 makes of a masked store of one lane, whose value was truncated, a store of the lane before: of 4 bytes
        # where 1 is meant, beyond the end of the array.
        store(extract(value, 0), buffer, at)
    elif number is None or has_masks(buffer.element):
        guard = mask(value.lanes, count)
        ir.Operation.create("vector.maskedstore", operands=[buffer.ssa, index(at).ssa, guard.ssa, value.ssa])
    else:
        for offset, width in _pieces(number):
            if width == 1:  # LLVM 22 fails on a shuffle of selects to a vector of one element
                store(extract(value, offset), buffer, index(at) + offset)
                continue
            store(cut(value, offset, width), buffer, index(at) + offset)


def has_masks(element: ir.Type) -> bool:
    """Return whether the target has masked loads and stores of such elements.

    LLVM makes branches of those that the target lacks, and for narrow floats even calls that convert them.
    """
    bits, width = _current.get().target.vector_bits, bits_of(element)
    return (bits >= 256 and width >= 32) or (bits >= 512 and not is_float(element))


def _pieces(count: int) -> list[tuple[int, int]]:
    """Decompose `count` lanes into powers of two: (offset, width) of each, widest first."""
    out, offset = [], 0
    for bit in reversed(range(count.bit_length())):
        if count >> bit & 1:
            out.append((offset, 1 << bit))
            offset += 1 << bit
    return out


def prefetch(buffer: Value, at: Index, write: bool = False, locality: int = 3) -> None:
    """Prefetch a cache line; harmless past the end. A locality of 2 leaves it in L2."""
    memref.prefetch(buffer.ssa, [index(at).ssa], write, locality, True)
