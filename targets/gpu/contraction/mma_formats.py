"""MMA formats: types that tensor cores multiply, by which instruction, and its fragment layout in a warp's registers.

For every type an instruction takes 32 bytes along k of 16 rows and of 8 columns, so that one tiling serves all.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.dot_algorithm import IN_TF32
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.match.contraction import Contraction, ContractionOperand
from stablexla.targets.gpu.ptx.inline_ptx import i32, inline_ptx

INSTRUCTION_DEPTH_BYTES = 32
"""Bytes along k of one MMA instruction."""
CHUNK_BYTES = 16
ROW_BYTES = 128
"""Bytes of a row in shared memory, and of both factors along k in one pipeline stage."""


@dataclass(frozen=True)
class MmaFormat:
    """An MMA format: types, instruction and fragments of one kind of product.

    Attributes:
        name: PTX's name of the factors' type.
        bytes: of an element.
        sums: the accumulators' type in MLIR.
        shape: of the instruction in PTX; "" where threads multiply by scalar FMA.
        oldest: the first generation of chips that has it.
    """

    name: str
    bytes: int
    sums: str
    shape: str
    oldest: int = 80

    @property
    def chunk(self) -> int:
        """Elements of 16 bytes."""
        return CHUNK_BYTES // self.bytes

    @property
    def depth(self) -> int:
        """Elements along k of one pipeline stage."""
        return ROW_BYTES // self.bytes

    @property
    def sum_type(self) -> ir.Type:
        return ir.Type.parse(self.sums)

    @property
    def sum_bytes(self) -> int:
        return 8 if self.sums == "f64" else 4

    @property
    def has_matrices(self) -> bool:
        """Whether `ldmatrix` loads the fragments of factors contiguous along k."""
        return self.bytes < 8

    @property
    def is_turned(self) -> bool:
        """Whether transposing `ldmatrix` loads the fragments of factors contiguous along m or n."""
        return self.bytes == 2

    def multiply(self, a: list[Value], b: list[Value], sums: list[Value], chip: int) -> list[Value]:
        """Emit one MMA: 16 x 8 accumulators plus a product of fragments."""
        if self.bytes < 8 or chip >= 90:
            return self._one(self.shape, a, b, sums)
        return [v for i in range(2) for v in self._one("m8n8k4", [a[i]], b, sums[2 * i : 2 * i + 2])]

    def _one(self, shape: str, a: list[Value], b: list[Value], sums: list[Value]) -> list[Value]:
        n = len(sums)
        parts, first = [], 0
        for size in (n, n, len(a), len(b)):
            parts.append("{" + ", ".join(f"${first + i}" for i in range(size)) + "}")
            first += size
        made, before, left, right = parts
        kinds = f"{self.sums if self.sums != 'i32' else 's32'}.{self.name}.{self.name}"
        last = kinds.split(".")[0]
        text = f"mma.sync.aligned.{shape}.row.col.{kinds}.{last} {made}, {left}, {right}, {before};"
        types = [self.sum_type] * n
        return inline_ptx(text, types, [*sums, *a, *b], tied=n, pure=True)

    def register_type(self) -> ir.Type:
        """The type of a factor's fragment registers."""
        return ir.F64Type.get() if self.bytes == 8 else i32()


FORMATS = {
    f.name: f
    for f in (
        MmaFormat("bf16", 2, "f32", "m16n8k16"),
        MmaFormat("f16", 2, "f32", "m16n8k16"),
        MmaFormat("tf32", 4, "f32", "m16n8k8"),
        MmaFormat("s8", 1, "i32", "m16n8k32"),
        MmaFormat("u8", 1, "i32", "m16n8k32"),
        MmaFormat("f64", 8, "f64", "m16n8k4"),
        MmaFormat("f32", 4, "f32", ""),
    )
}
_WIDENED = {
    ("bf16", "arith.extf"): "bf16",
    ("f16", "arith.extf"): "f16",
    ("i8", "arith.extsi"): "s8",
    ("i8", "arith.extui"): "u8",
    ("f64", ""): "f64",
    ("f32", ""): "f32",
}


def mma_format_of(c: Contraction) -> MmaFormat | None:
    """Return the format for a product's factor and accumulator types, if there is one."""
    names = {_name(operand) for operand in (c.a, c.b)}
    if len(names) != 1:
        return None
    (name,) = names
    if name == "f32" and IN_TF32 in c.dot.owner.attributes:
        name = "tf32"
    found = FORMATS.get(name)
    return found if found is not None and str(c.sum_type) == found.sums else None


def _name(operand: ContractionOperand) -> str:
    return _WIDENED.get((str(operand.element), ".".join(op.name for op in operand.conversion)), "")
