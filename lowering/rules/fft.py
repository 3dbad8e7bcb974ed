"""Lowering of fft: a kernel whose body emits the plan of the transform as loops over whole arrays.

Complex elements stay complex numbers; the plan's twiddle tables are operands, each a plane of real parts and one of
imaginary parts.
"""

from __future__ import annotations

import mlir.ir as ir
import numpy as np
from mlir.dialects import arith

from stablexla.dialects.attributes.attributes import integers, word
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.fft.body import transform
from stablexla.lowering.kernels.fft.plan import plan_transform
from stablexla.lowering.kernels.fft.tables import Table
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import empty
from stablexla.lowering.support.kernels import kernel
from stablexla.lowering.support.registry import lowers


@dataclass(frozen=True)
class FftConfig:
    """A Fourier transform: its kind, the extents of its larger side, and those of the transformed dimensions."""

    fft_type: str
    shape: tuple[int, ...]
    fft_length: tuple[int, ...]


@lowers("stablehlo.fft")
def fft(ctx: LoweringContext, x: ir.Value) -> ir.Value:
    """The transform over the last dimensions; empty where the result is."""
    kind, lengths = word(ctx.attributes["fft_type"]), integers(ctx.attributes["fft_length"])
    source, result = ctx.operand_types[0], ctx.result
    if not result.size:
        return empty(result)
    whole = result if kind == "RFFT" else source
    if kind in ("FFT", "IFFT"):
        lengths = source.shape[source.rank - len(lengths) :]  # the specification ignores fft_length
    plan = plan_transform(kind, whole.shape, lengths)
    tables = [_constant(table) for table in plan.tables]
    (made,) = kernel(
        ctx,
        "fft",
        [x, *tables],
        lambda given, *roots: transform(plan, given, source, result, dict(zip(plan.tables, roots, strict=True))),
        config=FftConfig(kind, tuple(whole.shape), tuple(lengths)),
    )
    return made


def _constant(table: Table) -> ir.Value:
    """Return a table as an array [2, size] of f64, each number rounded once."""
    values = table.values()
    planes = np.stack([values.real, values.imag]).astype(np.float64)
    type_ = ir.RankedTensorType.get(planes.shape, ir.F64Type.get())
    return arith.ConstantOp(type_, ir.DenseElementsAttr.get(planes, type=type_)).result
