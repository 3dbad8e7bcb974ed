"""Evaluate the nodes of a loop nest at one iteration, as scalars or vectorized along one loop.

A `LoopScope` is such an iteration: it loads, runs linalg bodies on vectors, caches values, and finds loop-invariant
values in the scopes around it. Which loops are emitted is the emitters' business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import mlir.ir as ir
from mlir.dialects import arith, vector

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import terminator_of
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import KernelArguments
from stablexla.targets.codegen.loop_nest import Load, LoopNest, Map, Node, Reduction, Ref, Scalar, Store
from stablexla.targets.codegen.machine import CpuTarget

# --- cost model of bodies ---------------------------------------------------------------------------------

_WEIGHTS = {
    "arith.constant": 0,
    "linalg.index": 0,
    "linalg.yield": 0,
    "arith.divf": 4,
    "arith.divsi": 30,
    "arith.divui": 30,
    "arith.extf": 2,
    "arith.maximumf": 4,
    "arith.minimumf": 4,
    "arith.remf": 60,
    "arith.remsi": 30,
    "arith.remui": 30,
    "arith.truncf": 4,
    "math.absf": 1,
    "math.ceil": 1,
    "math.copysign": 2,
    "math.floor": 1,
    "math.fma": 1,
    "math.roundeven": 1,
    "math.sqrt": 5,
    "math.trunc": 1,
}


# The rounds of random generators are dependency chains, so two registers at a time take little longer than one: bodies
# that compute so many words and load no arrays. Their other values, such as the counter in 64 bits, take as many
# registers as they need (jax.random.bits of 16M words: 31 to 15 ms; the mean of 16M normal numbers: 120 to 52 ms).
ROUNDS = 64


def body_cost(block: ir.Block) -> int:
    """Estimate how many vector instructions a body takes."""
    names = [op.operation.name for op in block.operations]
    return sum(_WEIGHTS.get(name, 20 if name.startswith("math.") else 1) for name in names)


def lanes_for(nest: LoopNest, target: CpuTarget) -> int:
    """Return the vector width: a register of the widest type computed with; 0 (scalars) for a loop of trip count 1.

    The rounds of a random generator have two registers of words. A short innermost loop has no more lanes than it
    needs.
    """
    extent = nest.extents[-1]
    if extent == 1:
        return 0
    lanes = 2 * target.vector_bits // 32 if _is_rounds(nest) else widest_lanes(nest, target)
    while lanes > 2 and lanes // 2 >= extent:
        lanes //= 2
    return lanes


def widest_lanes(nest: LoopNest, target: CpuTarget) -> int:
    """Return the lanes of a register of the widest type computed with."""
    bits = [cg.lane_bits(node.element) for node in nest.loads] + [cg.lane_bits(place.element) for place in nest.stores]
    bits += [cg.lane_bits(t) for node in nest.maps for t in _computed_types(node.block)]
    return max(2, target.vector_bits // max(bits))


def _is_rounds(nest: LoopNest) -> bool:
    """Return whether elements depend on their indices only, by long dependency chains on 32-bit words."""
    if any(node.strides[-1] for node in nest.loads):
        return False
    types = (t for node in nest.maps for t in _computed_types(node.block))
    return sum(not cg.is_float(t) and cg.bits_of(t) == 32 for t in types) >= ROUNDS


def _computed_types(block: ir.Block) -> Iterable[ir.Type]:
    for view in block.operations:
        operation = view.operation
        if operation.name not in ("arith.index_cast", "linalg.index", "arith.constant"):
            yield from (v.type for v in operation.results if not isinstance(v.type, ir.IndexType))


# --- bodies ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Counter:
    """An induction variable in 32 bits, widened only at uses that need it: x86 converts 64 bits to floats slowly."""

    value: Value


def _unsupported(_: int) -> Value:
    raise ValueError("a body uses an index, or a value of the tensor function that is no constant")


class VectorBody:
    """Inline a linalg body, or parts of it, on vectors of `lanes` (0: scalars). `cg.can_clone` tells which bodies.

    Args:
        block: the body.
        lanes: number of lanes; scalars among the operands are splat.
        position: returns the value of `linalg.index d`, an `i32` or `index` of the right lanes.
        argument: returns the kernel's scalar argument of a number.
    """

    def __init__(
        self,
        block: ir.Block,
        lanes: int,
        position: Callable[[int], Value] = _unsupported,
        argument: Callable[[int], Value] = _unsupported,
    ) -> None:
        self._block, self.lanes = block, lanes
        self._position, self._argument = position, argument
        self._values: dict[ir.Value, Value | _Counter] = {}

    def on(self, arguments: Sequence[Value]) -> list[Value]:
        """Compute the values yielded, with `arguments` for the block's first ones; the body uses no others."""
        return self.run(dict(zip(self._block.arguments, arguments, strict=False)))

    def run(self, given: Mapping[ir.Value, Value], wanted: Sequence[ir.Value] | None = None) -> list[Value]:
        """Compute the values `wanted` (default: those yielded), with `given` for arguments and, maybe, inner values."""
        if wanted is None:
            wanted = list(terminator_of(self._block).operands)
        for value, known_value in given.items():
            self._values[value] = cg.splat(known_value, self.lanes)
        needed = self._needed(wanted)
        for view in self._block.operations:
            if view.operation in needed:
                self._replay(view.operation)
        return [self._get(v) for v in wanted]

    def _needed(self, wanted: Sequence[ir.Value]) -> set[ir.Operation]:
        found: set[ir.Operation] = set()
        waiting = [v for v in wanted if v not in self._values]
        while waiting:
            value = waiting.pop()
            owner = value.owner
            if isinstance(owner, ir.Block) or owner.operation.block != self._block or owner.operation in found:
                continue
            found.add(owner.operation)
            waiting += [v for v in _read_by(owner.operation) if v not in self._values]
        return found

    def _replay(self, operation: ir.Operation) -> None:
        results = operation.results
        if len(results) == 1 and results[0] in self._values:
            return
        if operation.name == "linalg.index":
            self._values[results[0]] = self._index(ir.IntegerAttr(operation.attributes["dim"]).value)
            return
        if operation.name == "arith.constant":
            self._values[results[0]] = self._constant(operation)
            return
        if operation.name == "scf.if":
            made = self._branch(operation)
            self._values.update(zip(results, made, strict=True))
            return
        narrow = self._values.get(operation.operands[0]) if len(operation.operands) else None
        if isinstance(narrow, _Counter) and self._convert(operation, narrow):
            return
        made = cg.replay(operation, [self._get(v) for v in operation.operands], self.lanes)
        self._values.update(zip(results, made, strict=True))

    def _branch(self, operation: ir.Operation) -> list[Value]:
        """Emit a branch that is entered if the condition holds in any lane; each lane has its own side's values."""
        condition = self._get(operation.operands[0])
        types = [cg.vector_of(self.lanes, result.type) for result in operation.results]
        some = cg.reduce(condition, vector.CombiningKind.OR) if self.lanes else condition
        branch, before = cg.branch(some, types), dict(self._values)

        def side(number: int) -> list[Value]:
            block = operation.regions[number].blocks[0]
            for view in list(block.operations)[:-1]:
                self._replay(view.operation)
            return [self._get(v) for v in terminator_of(block).operands]

        with branch.then:
            made = side(0)
            if self.lanes:
                made = [cg.select(condition, a, b) for a, b in zip(made, side(1), strict=True)]
            branch.yields(*made)
        self._values = dict(before)  # what was emitted on one side is not known outside
        with branch.otherwise:
            branch.yields(*side(1))
        self._values = before
        return branch.results

    def _index(self, dimension: int) -> Value | _Counter:
        position = cg.splat(self._position(dimension), self.lanes)
        return _Counter(position) if isinstance(position.element, ir.IntegerType) else position

    def _convert(self, operation: ir.Operation, counter: _Counter) -> bool:
        """Emit a conversion of a counter; return False if the operation is none."""
        result = operation.results[0]
        if operation.name == "arith.index_cast":
            width = cg.bits_of(result.type)
            self._values[result] = counter if width > 32 else _resized(counter.value, result.type)
            return True
        if operation.name in ("arith.sitofp", "arith.uitofp"):
            made = arith.sitofp(cg.vector_of(self.lanes, result.type), counter.value.ssa)
            self._values[result] = Value(made)
            return True
        return False

    def _get(self, value: ir.Value) -> Value:
        found = self._values.get(value)
        if isinstance(found, _Counter):
            wide = value.type if cg.bits_of(value.type) == 64 else ir.IntegerType.get_signless(64)
            if isinstance(wide, ir.IndexType):
                return cg.cast_index(found.value, cg.vector_of(self.lanes, wide))
            return _resized(found.value, wide)
        if found is None:
            found = self._values[value] = cg.splat(self._outside(value), self.lanes)
        return found

    def _outside(self, value: ir.Value) -> Value:
        if isinstance(value.owner, ir.Block):
            return self._argument(value.arg_number)
        return cg.outside_constant(value)

    def _constant(self, operation: ir.Operation) -> Value:
        return cg.splat(cg.constant_of(operation.attributes["value"], operation.results[0].type), self.lanes)


def _read_by(operation: ir.Operation) -> Iterable[ir.Value]:
    """Yield the operands of an operation, and those of the operations in it."""
    yield from operation.operands
    for region in operation.regions:
        for view in region.blocks[0].operations:
            yield from _read_by(view.operation)


def _resized(value: Value, element: ir.Type) -> Value:
    """Resize a signed integer."""
    have, want = cg.bits_of(value.type), cg.bits_of(element)
    type_ = cg.vector_of(value.lanes, element)
    if have == want:
        return value
    return Value(arith.extsi(type_, value.ssa) if want > have else arith.trunci(type_, value.ssa))


# --- scopes ----------------------------------------------------------------------------------------------------


class LoopScope:
    """One iteration of the loops, and the values available there.

    `at` holds the induction variables that this scope adds to the one around it. Along loop `lane` the values are
    vectors of `lanes`, of which only the first `count` are active when that is given.
    """

    def __init__(
        self,
        arguments: KernelArguments,
        at: Mapping[int, Index] | None = None,
        parent: LoopScope | None = None,
        *,
        lane: int | None = None,
        lanes: int = 0,
        count: int | None = None,
    ) -> None:
        self.arguments, self._parent = arguments, parent
        self._at = dict(at or {})
        inherits = parent is not None and lane is None
        self.lane: int | None = parent.lane if inherits and parent is not None else lane
        self.lanes: int = parent.lanes if inherits and parent is not None else lanes
        self.count: int | None = parent.count if inherits and parent is not None else count
        self._made: dict[Node, list[Value]] = {}
        self._splats: dict[tuple[Node, int, int], Value] = {}
        self._addresses: dict[Load | Store, Value] = {}

    def inside(
        self, at: Mapping[int, Index], *, lane: int | None = None, lanes: int = 0, count: int | None = None
    ) -> LoopScope:
        """Return a nested scope."""
        return LoopScope(self.arguments, at, self, lane=lane if lanes else None, lanes=lanes, count=count)

    def at(self, dim: int) -> Index:
        """Return the induction variable of a loop; along the lanes, that of the first one."""
        if dim in self._at:
            return self._at[dim]
        assert self._parent is not None, f"loop {dim} stands nowhere"
        return self._parent.at(dim)

    def put(self, node: Node, values: Sequence[Value]) -> None:
        """Define a node's values that `value` does not compute."""
        self._made[node] = list(values)

    def value(self, ref: Ref) -> Value:
        """Return the value in this iteration: a vector if it varies along the lanes, else a scalar."""
        node, number = ref
        scope: LoopScope | None = self
        while scope is not None:
            if node in scope._made:
                return scope._made[node][number]
            scope = scope._parent
        self._made[node] = self._make(node)
        return self._made[node][number]

    def prepare(self, refs: Iterable[Ref], varying: frozenset[int], lanes: int = 0) -> None:
        """Hoist here the values and addresses that `refs` need and that are invariant in the loops `varying`.

        In nested scopes, values will be used as vectors of `lanes`.
        """
        seen: set[Ref] = set()
        waiting = list(refs)
        while waiting:
            ref = waiting.pop()
            node, number = ref
            if ref in seen:
                continue
            seen.add(ref)
            if isinstance(node, Reduction) and not self._knows(node):
                continue
            if not node.deps & varying:
                value = self.value(ref)
                if lanes and not value.lanes:
                    self._splats[node, number, lanes] = cg.splat(value, lanes)
            elif isinstance(node, Load):
                self.address(node)
            elif isinstance(node, Map) and not isinstance(node, Reduction) and not self._knows(node):
                waiting += node.operands

    def _knows(self, node: Node) -> bool:
        return node in self._made or (self._parent is not None and self._parent._knows(node))

    def _spread(self, ref: Ref, lanes: int) -> Value:
        """Return the value, splat if `prepare` hoisted its splat to `lanes`."""
        scope: LoopScope | None = self
        while scope is not None and lanes:
            found = scope._splats.get((*ref, lanes))
            if found is not None:
                return found
            scope = scope._parent
        return self.value(ref)

    # --- memory ---------------------------------------------------------------------------------------------

    def address(self, place: Load | Store) -> Value:
        """Return the element's index in its buffer; along the lanes, that of the first one."""
        found = self._addresses.get(place)
        if found is None:
            found = self._addresses[place] = self._address(place)
        return found

    def stands_at(self, place: Load | Store, address: Value) -> None:
        """Override the address of an array's element in this scope, where its strides do not lead to it."""
        self._addresses[place] = address

    def _address(self, place: Load | Store) -> Value:
        total, inner, scope = self._first(place), [], self._parent
        inner = list(self._at.items())
        while scope is not None:
            if place in scope._addresses:
                total = scope._addresses[place]
                break
            inner += scope._at.items()
            scope = scope._parent
        for dim, position in reversed(inner):
            stride = place.strides[dim] if dim < len(place.strides) else 0
            if stride:
                total = total + cg.index(position) * stride
        return total

    def _first(self, place: Load | Store) -> Value:
        """Return the index of the element in the first iteration of all loops."""
        if isinstance(place, Store):
            return cg.index(0)
        total = cg.index(place.offset)
        for number, stride in place.moves:
            total = total + self.argument(number) * stride
        return total

    def store(self, place: Store, value: Value, nontemporal: bool = False) -> None:
        """Store a result's element, or those of all lanes."""
        buffer, at = self.arguments.results[place.result], self.address(place)
        if self.lane is None or not self.lanes or self.lane not in place.domain:
            cg.store(value, buffer, at)
            return
        assert place.strides[self.lane] == 1, "results are written along their last dimension"
        value = cg.splat(value, self.lanes)
        if self.count is not None:
            cg.store_lanes(value, buffer, at, self.count)
        else:
            cg.store(value, buffer, at, nontemporal)

    def _load(self, node: Load) -> Value:
        buffer, at = self.arguments.inputs[node.buffer], self.address(node)
        stride = node.strides[self.lane] if self.lane is not None and self.lanes else 0
        if not stride:
            return cg.load(buffer, at)
        count = self.lanes if self.count is None else self.count
        if stride == 1:
            return cg.load_lanes(buffer, at, self.lanes, count, _filler(node.element))
        if stride == -1:
            return _load_backwards(buffer, at, self.lanes, count)
        if stride == 2 and count == self.lanes:
            return _load_every_second(buffer, at, self.lanes)
        return _gather(buffer, at, stride, self.lanes, count)

    # --- bodies -----------------------------------------------------------------------------------------------

    def _make(self, node: Node) -> list[Value]:
        if isinstance(node, Scalar):
            if node.argument is not None:
                return [self.argument(node.argument)]
            assert node.attribute is not None
            return [cg.constant_of(node.attribute, node.type)]
        if isinstance(node, Load):
            return [self._load(node)]
        assert not isinstance(node, Reduction), "a reduction is made by a loop"
        body = self.body(node)
        return body.run(self.given(node, body.lanes))

    def given(self, node: Map, lanes: int) -> dict[ir.Value, Value]:
        """Return the operands of a body by the arguments of its block."""
        return {a: self._spread(ref, lanes) for a, ref in zip(node.block.arguments, node.operands, strict=False)}

    def body(self, node: Map, lanes: int | None = None) -> VectorBody:
        """Return a node's body, to be inlined here; on vectors if it varies along the lanes."""
        if lanes is None:
            lanes = self.lanes if self.lane in node.deps else 0
        return VectorBody(
            node.block,
            lanes,
            lambda dimension: self._position(node.indices[dimension], lanes),
            self.argument,
        )

    def argument(self, number: int) -> Value:
        """Return a scalar argument of the kernel."""
        return self.arguments.inputs[number]

    def _position(self, dim: int | None, lanes: int) -> Value:
        i32 = ir.IntegerType.get_signless(32)
        if dim is None:
            return cg.constant(0, i32)
        position = cg.index(self.at(dim))
        number = cg.known(position)
        first = cg.constant(number, i32) if number is not None else cg.cast_index(position, i32)
        if not lanes or dim != self.lane:
            return first
        return counted_from(first, lanes)


def counted_from(first: Value, lanes: int) -> Value:
    """Return the vector first, first + 1, ..."""
    type_ = cg.vector_of(lanes, first.type)
    numbers = ir.DenseElementsAttr.get([ir.IntegerAttr.get(first.type, i) for i in range(lanes)], type_)
    return cg.splat(first, lanes) + Value(arith.ConstantOp(type_, numbers).result)


def _filler(element: ir.Type) -> int:
    """Return the value of masked-off lanes: a number that divides everything."""
    return 1 if isinstance(element, ir.IntegerType) else 0


def _load_backwards(buffer: Value, at: Value, lanes: int, count: int) -> Value:
    """Load with stride -1: lane i is the element i places before `at`."""
    forward = cg.load_lanes(buffer, at - (count - 1), lanes, count)
    return cg.shuffle(forward, forward, [max(0, count - 1 - i) for i in range(lanes)])


def _load_every_second(buffer: Value, at: Value, lanes: int) -> Value:
    """Load with stride 2: two loads that together end at the last element wanted, shuffled to their even places."""
    low, high = cg.load(buffer, at, lanes), cg.load(buffer, at + (lanes - 1), lanes)
    return cg.shuffle(low, high, [2 * i if 2 * i < lanes else 2 * i + 1 for i in range(lanes)])


def _gather(buffer: Value, at: Value, stride: int, lanes: int, count: int) -> Value:
    """Gather with any stride, by one load for each lane; lanes past `count` repeat the first."""
    if isinstance(buffer.element, ir.ComplexType):
        halves = cg.as_parts(buffer)
        re, im = (_gather(halves, at * 2 + part, stride * 2, lanes, count) for part in (0, 1))
        return cg.ComplexVector(re, im)
    parts = [cg.load(buffer, at + i * stride) for i in range(count)]
    parts += parts[:1] * (lanes - count)
    return Value(vector.from_elements(cg.vector_of(lanes, buffer.element), [p.ssa for p in parts]))
