"""Evaluate the nodes of a loop nest at one iteration, as scalars or vectorized along one loop.

A `LoopScope` is such an iteration: it loads, runs linalg bodies on vectors, caches values, and finds loop-invariant
values in the scopes around it. Which loops are emitted is the emitters' business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import mlir.ir as ir
from mlir.dialects import vector

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.bodies import VectorBody, constant_of
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.halves import are_on_halves
from stablexla.targets.codegen.kernel import KernelArguments
from stablexla.targets.codegen.loop_nest import Load, LoopNest, Map, Node, Reduction, Ref, Scalar, Store
from stablexla.targets.codegen.machine import CpuTarget

# The rounds of random generators are dependency chains, so two registers at a time take little longer than one: bodies
# that compute so many words and load no arrays. Their other values, such as the counter in 64 bits, take as many
# registers as they need (jax.random.bits of 16M words: 31 to 15 ms; the mean of 16M normal numbers: 120 to 52 ms).
ROUNDS = 64


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
    bits += [16 if are_on_halves(node.operations, target) else node.widest for node in nest.maps]
    return max(2, target.vector_bits // max(bits))


def _is_rounds(nest: LoopNest) -> bool:
    """Return whether elements depend on their indices only, by long dependency chains on 32-bit words."""
    if any(node.strides[-1] for node in nest.loads):
        return False
    types = (t for node in nest.maps for t in node.computed)
    return sum(not cg.is_float(t) and cg.bits_of(t) == 32 for t in types) >= ROUNDS


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
            return [constant_of(node.attribute, node.type)]
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
            node.operations,
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
    return cg.splat(first, lanes) + cg.lane_numbers(lanes, first.type)


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
