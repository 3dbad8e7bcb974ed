"""Functions of four bits of a byte as lookups: what is computed from them becomes a table of 16 numbers in a register.

A table of f32 is looked up by one permutation of AVX-512, or two and a blend of AVX2 (vpermps), or each of the numbers'
four bytes by one of AArch64 (tbl), for any chain of mask, shift, zero point, conversion and selection. Its entries are
computed by the same operations, so that they are the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import arith, vector

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import body_of, constant_attribute, constant_of
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.bodies import VectorBody
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.scope import counted_from
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.cpu.contraction.dot_instructions import LANE_BITS, interleave_lanes, intrinsic

ENTRIES = 16
# By the feature that looks up in a register of f32 of so many lanes: a lookup costs as much as so many operations. A
# table fills two registers of AVX2; tbl looks up 16 bytes, and the four bytes of 16 numbers are interleaved.
LOOKUP_OPERATIONS = {ENTRIES: ("avx512f", 0), ENTRIES // 2: ("avx2", 6), ENTRIES // 4: ("asimd", 3)}


@dataclass(frozen=True)
class Nibbles:
    """A function of four bits of each byte.

    Attributes:
        bytes: the bytes.
        shift: the number of the lowest of the bits, 0 or 4.
        table: the function's values.
        steps: the operations that make the table; functions of equal ones are equal.
        operations: how many there are in all steps.
        computed: emits the values without a table.
    """

    bytes: Value
    shift: int
    table: Value
    steps: tuple[str, ...]
    operations: int
    computed: Callable[[], Value]

    def value(self) -> Value:
        """Emit the values: by lookups if they are f32, and that is quicker."""
        register = cg.lanes_of(ir.F32Type.get())
        feature, cost = LOOKUP_OPERATIONS[register]
        if not isinstance(self.table.element, ir.F32Type) or self.operations <= cost:
            return self.computed()
        if feature == "asimd":
            return self._by_bytes()
        lanes, i32 = self.bytes.lanes, ir.IntegerType.get_signless(LANE_BITS)
        wide = Value(arith.extui(cg.vector_of(lanes, i32), self.bytes.ssa))
        if self.shift:
            wide = Value(arith.shrui(wide.ssa, cg.constant(self.shift, wide.type).ssa))
        made = cg.constant(0, cg.vector_of(lanes, self.table.element))
        for first in range(0, lanes, register):
            made = cg.replace_lanes(made, self._entries(cg.cut(wide, first, register)), first)
        return made

    def _by_bytes(self) -> Value:
        """Emit the lookups of 16 numbers at a time, of each of their bytes in turn."""
        lanes, f32, size = self.bytes.lanes, ir.F32Type.get(), LANE_BITS // 8
        whole, four = rounded_up(lanes, ENTRIES), cg.constant(4, self.bytes.type)
        low = self.bytes & (ENTRIES - 1)
        places = Value(arith.shrui(self.bytes.ssa, four.ssa)) if self.shift else low
        places = cg.shuffle(places, places, [lane % lanes for lane in range(whole)])
        stored = Value(vector.bitcast(cg.vector_of(ENTRIES * size, places.element), self.table.ssa))
        tables = [cg.shuffle(stored, stored, list(range(byte, stored.lanes, size))) for byte in range(size)]
        made = cg.constant(0, cg.vector_of(whole, f32))
        for first in range(0, whole, ENTRIES):
            at = cg.cut(places, first, ENTRIES)
            found = interleave_lanes([_looked_up(table, at) for table in tables])
            numbers = Value(vector.bitcast(cg.vector_of(ENTRIES, f32), found.ssa))
            made = cg.replace_lanes(made, numbers, first)
        return cg.cut(made, 0, lanes)

    def _entries(self, at: Value) -> Value:
        """Emit the lookups of a register of places, whose upper bits are anything."""
        if at.lanes == ENTRIES:
            return intrinsic("llvm.x86.avx512.permvar.sf.512", self.table.type, self.table, at)
        halves = [cg.cut(self.table, first, at.lanes) for first in (0, at.lanes)]
        low, high = (intrinsic("llvm.x86.avx2.permps", half.type, half, at) for half in halves)
        top = arith.shli(at.ssa, cg.constant(LANE_BITS - 4, at.type).ssa)
        is_high = arith.cmpi(arith.CmpIPredicate.slt, top, cg.constant(0, at.type).ssa)
        return Value(arith.select(is_high, high.ssa, low.ssa))


def _looked_up(table: Value, at: Value) -> Value:
    """Emit `tbl`, of bytes below 16 in a table of 16 bytes; what stands for it in tests compares them one by one."""
    if not cg.has_feature("emulated"):
        return intrinsic("llvm.aarch64.neon.tbl1", table.type, table, at)
    found = cg.constant(0, table.type)
    for entry in range(ENTRIES):
        found = cg.select(at.eq(entry), cg.splat(cg.extract(table, entry), ENTRIES), found)
    return found


Part = Value | Nibbles


def applied(op: ir.Operation, operands: Sequence[Part]) -> Nibbles | None:
    """Return the result of an operation on bytes, or on such a function, and on scalars; None if it is no function."""
    varying = [number for number, o in enumerate(operands) if isinstance(o, Nibbles) or o.lanes]
    if len(varying) != 1 or len(op.results) != 1 or any(o.name == "linalg.index" for o in body_of(op)):
        return None
    x = operands[varying[0]]
    if isinstance(x, Value):
        shift = _selected(op, varying[0])
        i8 = ir.IntegerType.get_signless(8)
        if shift is None or x.element != i8 or x.lanes % cg.lanes_of(ir.F32Type.get()):
            return None
        values = x
        x = Nibbles(x, shift, counted_from(cg.constant(0, i8), ENTRIES) << shift, (), 0, lambda: values)
    return _applied(op, x, operands, varying[0])


def _applied(op: ir.Operation, x: Nibbles, operands: Sequence[Part], number: int) -> Nibbles:
    def on(values: Value) -> Value:
        given = [*operands[:number], values, *operands[number + 1 :]]
        return VectorBody(op.regions[0].blocks[0], values.lanes).on([o for o in given if isinstance(o, Value)])[0]

    steps, operations = (*x.steps, _spelled(op, operands, number)), x.operations + len(body_of(op)) - 1
    return Nibbles(x.bytes, x.shift, on(x.table), steps, operations, lambda: on(x.computed()))


def interleaved(parts: Sequence[Part]) -> Nibbles | None:
    """Return the same function of bytes interleaved; None where the functions differ."""
    functions = [part for part in parts if isinstance(part, Nibbles)]
    if len(functions) < len(parts) or any(f.steps != functions[0].steps for f in functions):
        return None
    low = [f.bytes for f in functions]
    for number, f in enumerate(functions):
        if f.shift:
            low[number] = Value(arith.shrui(f.bytes.ssa, cg.constant(f.shift, f.bytes.type).ssa))

    def computed() -> Value:
        return interleave_lanes([f.computed() for f in functions])

    first = functions[0]
    return Nibbles(interleave_lanes(low), 0, first.table, first.steps, first.operations, computed)


def _selected(op: ir.Operation, number: int) -> int | None:
    """Return the lowest of the four bits that a body takes of a byte, its argument `number`: by a mask or shifts."""
    (first, *others), x = body_of(op), op.regions[0].blocks[0].arguments[number]
    if len(first.operands) != 2 or first.operands[0] != x or len(list(x.uses)) != 1:
        return None
    amount = _constant(op, first.operands[1])
    if first.name == "arith.andi" and amount is not None and 0 <= amount < ENTRIES:
        return 0
    if first.name in ("arith.shrui", "arith.shrsi") and amount == 4:
        return 4
    back = others and others[0].name in ("arith.shrui", "arith.shrsi") and others[0].operands[0] == first.results[0]
    only = len(list(first.results[0].uses)) == 1
    if first.name == "arith.shli" and amount == 4 and back and only and _constant(op, others[0].operands[1]) == 4:
        return 0
    return None


def _constant(op: ir.Operation, value: ir.Value) -> int | None:
    """Return the constant that an operand of a body is, itself or by an operand of the operation."""
    if isinstance(value.owner, ir.Block) and value.owner == op.regions[0].blocks[0]:
        value = op.operands[value.arg_number]
    return constant_of(value)


def _spelled(op: ir.Operation, operands: Sequence[Part], number: int) -> str:
    """Spell a body, equal ones alike: those that take all of the low or of the high bits and compute no more, too."""
    body, block = body_of(op), op.regions[0].blocks[0]
    amount = _constant(op, body[0].operands[1]) if len(body[0].operands) == 2 else None
    if len(body) == 2 and (body[0].name, amount) in (("arith.andi", ENTRIES - 1), ("arith.shrui", 4)):
        return "bits"
    names: dict[ir.Value, str] = {block.arguments[number]: "x"}
    for place, o in enumerate(operands):
        if isinstance(o, Value) and place != number:
            names[block.arguments[place]] = str(id(o)) if o.known is None else str(o.known)
    lines: list[str] = []
    for inner in body:
        used = [names.get(v) or str(constant_attribute(v)) for v in inner.operands]
        attributes = sorted(f"{name}={attribute}" for name, attribute in inner.attributes.items())
        names.update({r: f"%{len(lines)}.{r.result_number}" for r in inner.results})
        types = [str(r.type) for r in inner.results]
        lines.append(f"{inner.name}{used}{attributes}{types}")
    return ";".join(lines)
