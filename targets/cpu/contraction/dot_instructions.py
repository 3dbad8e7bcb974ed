"""Dot-product instructions (pmaddwd, vpdpbusd, vdpbf16ps, sdot, smmla, AMX tiles): which of them a contraction can use.

Their operands are units: `group` adjacent ones along k fill one 32-bit lane, or 64 bits of those that multiply two rows
by two columns. Each instruction has a second form in plain vector arithmetic, of the same layout, for tests on
processors that lack it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import mlir.ir as ir
from mlir.dialects import arith, vector

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.conversion import Conversion, convert
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction, ContractionOperand
from stablexla.targets.codegen.match.epilogue import accumulator_type

# Converts a value of the operand's type to units, vector or scalar: a value that shared functions are made from.
Widen = Callable[[Value], Value]
# Emits an instruction: operands, sums, whether it is emulated -> sums.
Emitter = Callable[[Value, Value, Value, bool], Value]
LANE_BITS = 32


@dataclass(frozen=True)
class DotInstruction:
    """A multiply-add instruction on units.

    Attributes:
        name: of the instructions, "pairs", "bytes", "bf16"; "tiles_" and what of; on AArch64 "dot_" and the signs of
            bytes or "bf16", or "matrix_" for a 2x2 tile of sums; "plain" for one product a lane.
        unit: MLIR's spelling of the type in packed panels.
        emulated: whether vector arithmetic stands for the instruction.
    """

    name: str
    unit: str
    emulated: bool

    @property
    def group(self) -> int:
        """Units along k that are multiplied together."""
        return 1 if self.is_plain else self.rows * LANE_BITS // cg.bits_of(self.unit_type)

    @property
    def rows(self) -> int:
        """Rows of lhs in an operand's vector, and columns of rhs for each: 2 by 2 sums fill 128 bits, else 1."""
        return 2 if self.name.startswith("matrix") else 1

    @property
    def label(self) -> str:
        """The part of shared functions' names that tells the instruction."""
        return f"{'emulated_' * self.emulated}{self.name}"

    @property
    def is_plain(self) -> bool:
        """Whether it is the multiply-add of one element type."""
        return self.name == "plain"

    @property
    def is_tiles(self) -> bool:
        """Whether it multiplies AMX tiles (see `tiles_amx`)."""
        return self.name.startswith("tiles")

    @property
    def rounds_to_odd(self) -> bool:
        """Whether it rounds sums of floats to odd, which errs twice as much: running sums are to be cut into blocks."""
        return self.name in ("dot_bf16", "matrix_bf16")

    @property
    def unit_type(self) -> ir.Type:
        """The type of a unit."""
        return ir.Type.parse(self.unit)

    def multiply_add(self, a: Value, b: Value, sums: Value) -> Value:
        """Accumulate: return sums + the products of units, `group` of them in each lane of the sums."""
        return _MULTIPLY_ADD[self.name](a, b, sums, self.emulated)

    def by_rows(self, sums: Sequence[Value], vectors: int) -> list[Value]:
        """Return the sums of a tile in the order of its rows, of `vectors` each; 2 by 2 ones come column by column."""
        if self.rows == 1:
            return list(sums)
        tops, bottoms = ((0, 2, 4, 6), (1, 3, 5, 7)) if self.name in _RHS_FIRST else ((0, 1, 4, 5), (2, 3, 6, 7))
        pairs = len(sums) // (2 * vectors)
        columns = [sums[first : first + pairs] for first in range(0, len(sums), pairs)]
        return [
            cg.shuffle(columns[v][pair], columns[v + 1][pair], list(lanes))
            for pair in range(pairs)
            for lanes in (tops, bottoms)
            for v in range(0, 2 * vectors, 2)
        ]


@dataclass(frozen=True)
class MultiplyAdd(DotInstruction):
    """An instruction for the operands of a contraction.

    Attributes:
        a, b: convert the operands' elements to units.
        offset: added to every unit of lhs; the sums have so many times rhs's column sums too much.
    """

    a: Widen
    b: Widen
    offset: int = 0

    @property
    def instruction(self) -> DotInstruction:
        """The instruction alone."""
        return DotInstruction(self.name, self.unit, self.emulated)

    def swapped(self) -> MultiplyAdd:
        """Return the same product with the two operands exchanged."""
        return replace(self, a=self.b, b=self.a)


@dataclass(frozen=True)
class AsStored:
    """Conversion of elements that are units as they are stored, floats as the integers of their bits.

    Attributes:
        flipped: bits that change.
    """

    flipped: int = 0

    def __call__(self, value: Value) -> Value:
        """Emit the conversion of a scalar or a vector."""
        return as_bits(value) ^ self.flipped if self.flipped else as_bits(value)


@dataclass(frozen=True)
class Converted:
    """Conversion to the type of the sums."""

    conversion: Conversion
    compute: ir.Type

    def __call__(self, value: Value) -> Value:
        """Emit the conversion of a scalar or a vector."""
        return convert(value, self.conversion, self.compute)


def choose_multiply_add(c: Contraction, target: CpuTarget) -> MultiplyAdd | None:
    """Select the fastest instruction that computes `c` exactly (floats: sums of exact products), or None."""
    total = str(c.sum_type)
    if c.a.element == c.b.element and _is_only_widened(c.a) and _is_only_widened(c.b) and total == "f32":
        return _choose_floats(str(c.a.element), target)
    if cg.is_float(c.sum_type) or cg.bits_of(c.sum_type) > LANE_BITS:
        return None
    a, b = (_range_of(x, c.sum_type) for x in (c.a, c.b))
    if a is None or b is None:
        return None
    return _choose_bytes(a, b, target) or _choose_pairs(a, b, target)


def without_tiles(target: CpuTarget) -> CpuTarget:
    """Return the target without AMX."""
    return replace(target, features=tuple(f for f in target.features if not f.startswith("amx")))


def with_pairs_alone(target: CpuTarget) -> CpuTarget:
    """Return the target with no dot-product instruction but that on pairs of integers."""
    return replace(target, features=tuple(f for f in target.features if f == "sse2"))


def vector_multiply_add(product: MultiplyAdd, c: Contraction, target: CpuTarget) -> MultiplyAdd:
    """Replace tiles, bytes that need lhs changed, and what rounds to odd, by a product on vectors alone."""
    if product.is_tiles or product.offset or product.rounds_to_odd:
        return choose_multiply_add(c, with_pairs_alone(target)) or f32_multiply_add(c) or product
    return product


def in_matrices(product: MultiplyAdd, c: Contraction, target: CpuTarget) -> MultiplyAdd:
    """Replace an instruction on one row by that on two rows and columns, where the processor has it and k fills it."""
    feature = "bf16" if product.name == "dot_bf16" else "i8mm"
    if not product.name.startswith("dot") or feature not in target.features or c.k.extent <= product.group:
        return product
    return replace(product, name=product.name.replace("dot", "matrix"))


def load_group(product: DotInstruction, buffer: Value, at: Index) -> Value:
    """Load a lane's units, or those of two rows; a scalar where a lane holds one."""
    return cg.load(buffer, at, product.rows * product.group if product.group > 1 else 0)


# --- floats -------------------------------------------------------------------------------------------------


def _is_only_widened(operand: ContractionOperand) -> bool:
    return [op.name for op in operand.conversion] == ["arith.extf"]


def _choose_floats(element: str, target: CpuTarget) -> MultiplyAdd | None:
    features = target.features
    tiles = {"bf16": "amx_bf16", "f16": "amx_fp16"}.get(element)
    if tiles in features and "amx_tile" in features:
        return MultiplyAdd(f"tiles_{element}", "i16", target.emulated, AsStored(), AsStored())
    if element == "bf16" and "avx512_bf16" in features and target.vector_bits == 512:
        return MultiplyAdd("bf16", "i16", target.emulated, AsStored(), AsStored())
    if element == "bf16" and {"asimd", "bf16"} <= set(features) and target.vector_bits == 128:
        return MultiplyAdd("dot_bf16", "i16", target.emulated, AsStored(), AsStored())
    return None


def f32_multiply_add(c: Contraction) -> MultiplyAdd | None:
    """Return a product on f32 to which narrower floats are converted once, when packed; None for other contractions."""
    narrow = all(cg.is_float(x.element) and cg.bits_of(x.element) < LANE_BITS for x in (c.a, c.b))
    return plain_multiply_add(c) if narrow and str(c.sum_type) == "f32" else None


def plain_multiply_add(c: Contraction) -> MultiplyAdd:
    """Return a product on the accumulator type, to which operands are converted."""
    compute = accumulator_type(c)
    a, b = (Converted(x.conversion, compute) for x in (c.a, c.b))
    return MultiplyAdd("plain", str(compute), False, a, b)


def as_bits(value: Value) -> Value:
    """Return narrow floats as the integers of their bits; integers as they are."""
    narrow = cg.is_float(value.type) and cg.bits_of(value.type) == 16
    return cg.bitcast(value, ir.IntegerType.get_signless(16)) if narrow else value


# --- integers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Range:
    """The value range of an integer operand: the number of low bits used, signed or not."""

    bits: int
    signed: bool


def _range_of(operand: ContractionOperand, total: ir.Type) -> _Range | None:
    """Find the value range behind a chain of truncations that may end in one extension."""
    if not isinstance(operand.element, ir.IntegerType):
        return None
    bits, signed = cg.bits_of(operand.element), True
    for number, op in enumerate(operand.conversion):
        if op.name == "arith.trunci":
            bits = min(bits, cg.bits_of(op.type))
        elif op.name in ("arith.extsi", "arith.extui") and number == len(operand.conversion) - 1:
            signed = op.name == "arith.extsi"
        else:
            return None
    # Sums no wider than the operands keep low bits only, which the sign does not change.
    return _Range(bits, signed or cg.bits_of(total) <= bits)


def _choose_pairs(a: _Range, b: _Range, target: CpuTarget) -> MultiplyAdd | None:
    fits = all(r.bits + (not r.signed) <= 16 for r in (a, b))
    if not fits or "sse2" not in target.features:
        return None
    return MultiplyAdd("pairs", "i16", target.emulated, ToPairs(a), ToPairs(b))


@dataclass(frozen=True)
class ToPairs:
    """Conversion to 16 bits by sign or zero extension, of fewer than the stored bits too."""

    range: _Range

    def __call__(self, value: Value) -> Value:
        """Emit the conversion of a scalar or a vector."""
        bits, signed = self.range.bits, self.range.signed
        i16 = ir.IntegerType.get_signless(16)
        stored = cg.bits_of(value.type)
        if bits in (8, 16) and stored == bits:
            if bits == 16:
                return value
            return Value((arith.extsi if signed else arith.extui)(cg.vector_of(value.lanes, i16), value.ssa))
        wide = value if stored == 16 else Value(arith.extui(cg.vector_of(value.lanes, i16), value.ssa))
        if not signed:
            return wide & ((1 << bits) - 1)
        return (wide << (16 - bits)) >> (16 - bits)


def pairs_of(operand: ContractionOperand, total: ir.Type) -> ToPairs | None:
    """Return the conversion of an operand's elements to 16 bits; None if they are no integers."""
    found = _range_of(operand, total)
    return None if found is None else ToPairs(found)


def _choose_bytes(a: _Range, b: _Range, target: CpuTarget) -> MultiplyAdd | None:
    """Choose an instruction on bytes as stored; x86's vectors multiply unsigned by signed ones only, others any."""
    features = target.features
    if (a.bits, b.bits) != (8, 8):
        return None
    if {"amx_tile", "amx_int8"} <= set(features):
        return MultiplyAdd(f"tiles_{'us'[a.signed]}{'us'[b.signed]}", "i8", target.emulated, AsStored(), AsStored())
    if "asimddp" in features and target.vector_bits == 128 and (a.signed == b.signed or "i8mm" in features):
        return MultiplyAdd(f"dot_{'us'[a.signed]}{'us'[b.signed]}", "i8", target.emulated, AsStored(), AsStored())
    wide = "avx512_vnni" if target.vector_bits == 512 else "avx_vnni"
    if not {wide, "avx512_vnni"} & set(features) or target.vector_bits < 256 or not b.signed:
        return None
    if a.signed:
        return MultiplyAdd("bytes", "i8", target.emulated, AsStored(flipped=-128), AsStored(), offset=128)
    return MultiplyAdd("bytes", "i8", target.emulated, AsStored(), AsStored())


# --- instructions -------------------------------------------------------------------------------------------


def intrinsic(name: str, result: ir.Type, *operands: Value) -> Value:
    """Emit a call of an LLVM intrinsic."""
    made = ir.Operation.create(
        "llvm.call_intrinsic",
        results=[result],
        operands=[operand.ssa for operand in operands],
        attributes={
            "intrin": ir.StringAttr.get(name),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
        },
    )
    return Value(made.result)


def _pairs(a: Value, b: Value, sums: Value, emulated: bool) -> Value:
    """Emit `pmaddwd` and an addition, which LLVM fuses (vpdpwssd) where the target can."""
    if emulated:
        return _sum_of(_halves(a), _halves(b), sums)
    name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[sums.lanes]
    return intrinsic(f"llvm.x86.{name}", sums.type, a, b) + sums


def _halves(value: Value) -> list[Value]:
    """Return the two signed 16-bit units of each lane."""
    lanes = _as_lanes(value)
    return [(lanes << 16) >> 16, lanes >> 16]


def _bytes(a: Value, b: Value, sums: Value, emulated: bool) -> Value:
    """Emit `vpdpbusd`: unsigned by signed bytes."""
    if emulated:
        return _sum_of(_quarters(a, signed=False), _quarters(b, signed=True), sums)
    return intrinsic(f"llvm.x86.avx512.vpdpbusd.{sums.lanes * LANE_BITS}", sums.type, sums, a, b)


def _quarters(value: Value, signed: bool) -> list[Value]:
    """Return the four bytes of each lane."""
    lanes = _as_lanes(value)
    tops = [lanes << shift if shift else lanes for shift in (24, 16, 8, 0)]
    if signed:
        return [top >> 24 for top in tops]
    by = cg.constant(24, lanes.type)
    return [Value(arith.shrui(top.ssa, by.ssa)) for top in tops]


def _bf16(instruction: str) -> Emitter:
    """Return what emits `vdpbf16ps` or one of AArch64's; "" for the emulation alone, as of `tdpbf16ps`."""

    def multiply_add(a: Value, b: Value, sums: Value, emulated: bool) -> Value:
        if emulated or not instruction:
            for x, y in zip(_bf16_halves(a), _bf16_halves(b), strict=True):
                sums = cg.fma(x, y, sums)
            return sums
        x, y = (cg.bitcast(v, ir.BF16Type.get()) for v in (a, b))
        return intrinsic(instruction.format(sums.lanes * LANE_BITS), sums.type, sums, x, y)

    return multiply_add


def _bf16_halves(value: Value) -> list[Value]:
    lanes, f32 = _as_lanes(value), ir.F32Type.get()
    return [cg.bitcast(lanes << 16, f32), cg.bitcast(lanes & -65536, f32)]


def _as_lanes(value: Value) -> Value:
    count = value.lanes * cg.bits_of(value.type) // LANE_BITS
    return Value(vector.bitcast(cg.vector_of(count, ir.IntegerType.get_signless(LANE_BITS)), value.ssa))


def _sum_of(xs: list[Value], ys: list[Value], sums: Value) -> Value:
    for x, y in zip(xs, ys, strict=True):
        sums = x * y + sums
    return sums


def _any_bytes(a_signed: bool, b_signed: bool, instruction: str = "") -> Emitter:
    """Return what emits an instruction of AArch64 on bytes; without one the emulation alone, as of `tdpbssd`."""

    def multiply_add(a: Value, b: Value, sums: Value, emulated: bool) -> Value:
        if emulated or not instruction:
            return _sum_of(_quarters(a, a_signed), _quarters(b, b_signed), sums)
        if a_signed and not b_signed:  # it takes the unsigned ones first
            a, b = b, a
        return intrinsic(instruction, sums.type, sums, a, b)

    return multiply_add


def _matrix(one_row: Emitter, *, swaps: bool = False) -> Emitter:
    """Return what emits an instruction on 2 rows and 2 columns, given its form and what emulates it a lane at a time.

    With `swaps` it takes rhs first, and its sums are columns.
    """

    def multiply_add(a: Value, b: Value, sums: Value, emulated: bool) -> Value:
        if swaps:
            a, b = b, a
        if not emulated:
            return one_row(a, b, sums, False)
        for half in range(2):
            x, y = (_as_lanes(v) for v in (a, b))
            left = cg.shuffle(x, x, [half, half, half + 2, half + 2])
            sums = one_row(left, cg.shuffle(y, y, [half, half + 2] * 2), sums, True)
        return sums

    return multiply_add


def _tile_of_f16(a: Value, b: Value, sums: Value, _: bool) -> Value:
    """Emulate a lane of `tdpfp16ps`."""
    for parity in range(2):
        every = range(parity, a.lanes, 2)
        halves = [cg.bitcast(cg.shuffle(v, v, list(every)), ir.F16Type.get()) for v in (a, b)]
        x, y = (Value(arith.extf(sums.type, half.ssa)) for half in halves)
        sums = cg.fma(x, y, sums)
    return sums


_NEON = "llvm.aarch64.neon."
_MULTIPLY_ADD: dict[str, Emitter] = {
    "plain": lambda a, b, sums, _: cg.fma(a, b, sums),
    "pairs": _pairs,
    "bytes": _bytes,
    "bf16": _bf16("llvm.x86.avx512bf16.dpbf16ps.{}"),
    "tiles_bf16": _bf16(""),
    "tiles_f16": _tile_of_f16,
    "tiles_uu": _any_bytes(False, False),
    "tiles_us": _any_bytes(False, True),
    "tiles_su": _any_bytes(True, False),
    "tiles_ss": _any_bytes(True, True),
    "dot_bf16": _bf16(f"{_NEON}bfdot"),
    "dot_uu": _any_bytes(False, False, f"{_NEON}udot"),
    "dot_us": _any_bytes(False, True, f"{_NEON}usdot"),
    "dot_su": _any_bytes(True, False, f"{_NEON}usdot"),
    "dot_ss": _any_bytes(True, True, f"{_NEON}sdot"),
    "matrix_bf16": _matrix(_bf16(f"{_NEON}bfmmla")),
    "matrix_uu": _matrix(_any_bytes(False, False, f"{_NEON}ummla")),
    "matrix_us": _matrix(_any_bytes(False, True, f"{_NEON}usmmla")),
    "matrix_su": _matrix(_any_bytes(False, True, f"{_NEON}usmmla"), swaps=True),
    "matrix_ss": _matrix(_any_bytes(True, True, f"{_NEON}smmla")),
}
_RHS_FIRST = ("matrix_su",)
"""Instructions on 2 rows and columns that take rhs first: their sums are columns."""


# --- lanes of units -----------------------------------------------------------------------------------------


def interleave_lanes(rows: list[Value]) -> Value:
    """Interleave the rows lane by lane: r0[0] r1[0] ... r0[1] r1[1] ..."""
    if len(rows) == 1:
        return rows[0]
    rows = [as_bits(row) for row in rows]  # LLVM would convert narrow floats in order to shuffle them
    halves = [interleave_lanes(rows[0::2]), interleave_lanes(rows[1::2])]
    count = halves[0].lanes
    return cg.shuffle(halves[0], halves[1], [i for x in range(count) for i in (x, x + count)])


def broadcast_group(units: Value, lanes: int) -> Value:
    """Broadcast a lane's units to every lane; those of two rows fill a vector as they are."""
    if not units.lanes:
        return cg.splat(units, lanes)
    if units.lanes * cg.bits_of(units.type) == lanes * LANE_BITS:
        return units
    if lanes * LANE_BITS == 128 and units.lanes * cg.bits_of(units.type) == LANE_BITS:
        # As one number, which AArch64 loads and broadcasts in one instruction.
        lane = cg.extract(_as_lanes(units), 0)
        whole = cg.vector_of(lanes * units.lanes, cg.element_of(units.type))
        return Value(vector.bitcast(whole, cg.splat(lane, lanes).ssa))
    return cg.shuffle(units, units, list(range(units.lanes)) * lanes)
