"""Lowering of associative scans: the composite that stands for a tree of slices and combiner calls.

Its kernel is that of prefix sums, with any combiner and any number of arrays. A target may reassociate the
combinations, but never commute the elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.composites import composite_kernel
from stablexla.dialects.element_types import ElementType
from stablexla.lowering.kernels.scan.line_scan import LineScan, ScanConfig
from stablexla.lowering.kernels.window.parts import known_operation
from stablexla.lowering.kernels.window.scan import Axis
from stablexla.lowering.rules.shape import reshaped
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.kernels import Combiner, kernel
from stablexla.lowering.support.loops import Values, add, count, empty_like, get, mul, number, put, sub
from stablexla.lowering.support.storage import constant, from_storage, narrow, to_storage, widen
from stablexla.lowering.support.types import storage_type

NAME = "stablexla.associative_scan"


@composite_kernel(NAME, accepts=lambda element: not element.is_complex, versions=(0,))
def associative_scan(ctx: LoweringContext, *operands: ir.Value) -> list[ir.Value]:
    """The inclusive scan along one dimension, from either end, by any associative combiner."""
    scan = _Scan(ctx)
    arrays, uniforms = operands[: scan.arrays], operands[scan.arrays :]
    types = ctx.operand_types[: scan.arrays]
    flat = [reshaped(array, t, t.with_shape((t.size,))) for array, t in zip(arrays, types, strict=True)]
    shape, d = types[0].shape, scan.axis.dimension
    extents = (prod(shape[:d]), shape[d], prod(shape[d + 1 :]))
    config = ScanConfig(
        *extents,
        backwards=scan.axis.backwards,
        computation=scan.known,
        unsigned=types[0].element.is_unsigned,
        whole_bytes=all(t.element.bits >= 8 for t in types),
        start=False,
        associative=True,
        returned=scan.returned,
        positive_zeros=True,
    )
    made = kernel(
        ctx,
        "scan",
        flat,
        lambda *inside: _write(scan, uniforms, inside, extents),
        config=config,
        combiner=Combiner(
            [storage_type(e) for e in scan.elements * 2],
            lambda both: scan.combined(both[: scan.arrays], both[scan.arrays :], uniforms),
        ),
        result_types=[t.with_shape((t.size,)) for t in ctx.result_types],
        independent=extents[0] > 1,
    )
    return [reshaped(x, t.with_shape((t.size,)), t) for x, t in zip(made, ctx.result_types, strict=True)]


class _Scan:
    """The composite's attributes, decoded."""

    def __init__(self, ctx: LoweringContext) -> None:
        attributes = hlo_ir.DictAttr(ctx.attributes["composite_attributes"])
        self.ctx = ctx
        self.arrays = int(hlo_ir.IntegerAttr(attributes["arrays"]).value)
        self.returned = tuple(hlo_ir.DenseI64ArrayAttr(attributes["returned"]))
        dimension = int(hlo_ir.IntegerAttr(attributes["dimension"]).value)
        self.axis = Axis(dimension, bool(hlo_ir.BoolAttr(attributes["backwards"]).value))
        self.function = str(hlo_ir.FlatSymbolRefAttr(attributes["combination"]).value)
        self.elements = [t.element for t in ctx.operand_types[: self.arrays]]

    @cached_property
    def known(self) -> str:
        """Return the combiner's name if one array is scanned by a known, freely ordered operation, else ""."""
        return "" if self.arrays > 1 else known_operation(self.ctx.function(self.function).regions[0])

    def combined(self, before: Values, values: Values, uniforms: Values) -> list[ir.Value]:
        """Inline the combiner on the accumulators and the next elements, all in storage form."""
        pairs = zip([*before, *values], self.elements * 2, strict=True)
        made = self.ctx.inline_function(self.function, [*(from_storage(v, e) for v, e in pairs), *uniforms])
        return [to_storage(v, e) for v, e in zip(made, self.elements, strict=True)]


def _write(scan: _Scan, uniforms: Values, arrays: Values, extents: tuple[int, int, int]) -> list[ir.Value]:
    """Emit the loop nest: each line is scanned by itself, its accumulators carried in storage form."""
    outer, extent, inner = extents
    made = empty_like([arrays[i] for i in scan.returned], outer * extent * inner)

    def stored(totals: Values) -> list[ir.Value]:
        """Add zero to the accumulators, as the tree does with all results: no negative zero remains."""
        return [_plus_zero(totals[i], scan.elements[i]) for i in scan.returned]

    def line(o: ir.Value, column: ir.Value, *out: ir.Value) -> Sequence[ir.Value]:
        def place(row: ir.Value) -> ir.Value:
            row = sub(number(extent - 1), row) if scan.axis.backwards else row
            return add(mul(add(mul(o, extent), row), inner), column)

        line = LineScan(
            extent,
            lambda before, values: scan.combined(before, values, uniforms),
            lambda row: get(arrays, place(row)),
            lambda totals, out, row: put(stored(totals), out, place(row)),
        )
        return line.run(out)

    return count(0, outer, made, lambda o, *out: count(0, inner, out, lambda c, *rest: line(o, c, *rest)))


def _plus_zero(stored: ir.Value, element: ElementType) -> ir.Value:
    if not element.is_float:
        return stored
    value = widen(from_storage(stored, element), element)
    return to_storage(narrow(arith.addf(value, constant(value.type, 0.0)), element), element)
