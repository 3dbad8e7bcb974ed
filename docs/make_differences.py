"""Writes docs/differences.md: where results differ from those of XLA:CPU and of the reference interpreter, and why.

The rows are kept here by hand, each with the test that shows stablexla's side; the test suite sees that the tests are
there and that the page is up to date. Run as `python docs/make_differences.py`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/differences.md"
OPS = "tests/ops/"
DEVICES = "tests/distributed/"


@dataclass(frozen=True)
class Difference:
    """What an operation does here, what the other does, why, and which test holds it."""

    operation: str
    here: str
    there: str
    reason: str
    test: str


FROM_XLA = [
    Difference(
        "all floats",
        "denormals are kept, but in products of bf16 by AMX tiles, `vdpbf16ps`, `bfmmla` and `bfdot`",
        "flushed to zero, also in comparators and as keys of a sort",
        "StableHLO's floats are IEEE-754's; `CompileOptions(flush_denormals=True)` flushes",
        "tests/numerics/test_special_values.py",
    ),
    Difference(
        "convert s64 to bf16",
        "rounded once",
        "by way of f32, rounded twice",
        "StableHLO rounds to the nearest",
        OPS + "test_conversion.py",
    ),
    Difference(
        "convert to f4e2m1fn, f6e2m3fn, f6e3m2fn beyond the largest number",
        "the largest number of that sign",
        "0",
        "ml_dtypes; the interpreter agrees, but for infinities, which become 0",
        OPS + "test_conversion.py",
    ),
    Difference(
        "gather, slices of the size 0 in a dimension that is left out",
        "the element at the start index",
        "0",
        "StableHLO: the size has no part in the result's index",
        OPS + "test_indexing_edges.py",
    ),
    Difference(
        "elementary functions",
        "a bound on the error for all arguments (docs/numerics.md)",
        "larger errors for some arguments",
        "nearer to the exact value",
        "tests/numerics/test_accuracy.py",
    ),
    Difference(
        "complex functions at branch cuts",
        "the sign of zero tells the side",
        "lost for some functions",
        "C99, Annex G",
        OPS + "test_complex.py",
    ),
    Difference(
        "power of integers, exponents above 63",
        "the power, modulo the type's range",
        "by the exponent's six lowest bits",
        "StableHLO; the interpreter agrees",
        OPS + "test_elementwise.py",
    ),
    Difference(
        "power of 1 by a signalling NaN",
        "1, as by any NaN",
        "NaN",
        "StableHLO does not tell the kinds of NaN apart; the interpreter agrees",
        OPS + "test_elementwise.py",
    ),
    Difference(
        "popcnt, count_leading_zeros of s2, s4, u2, u4",
        "bits of the element",
        "bits of the byte that holds it",
        "StableHLO",
        OPS + "test_elementwise.py",
    ),
    Difference(
        "reduce_window with padding and an initial value that changes something",
        "padding holds the initial value",
        "padding is left out",
        "StableHLO: the windows are those of the padded array",
        OPS + "test_window.py",
    ),
    Difference(
        "reduce, reduce_window over one element",
        "the initial value is combined",
        "an initial value that changes something is forgotten",
        "StableHLO",
        OPS + "test_window.py",
    ),
    Difference(
        "select_and_scatter, equal elements of a window in two dimensions",
        "compared row by row",
        "column by column",
        "StableHLO: in the order of the index",
        OPS + "test_window.py",
    ),
    Difference(
        "JAX's associative_scan of 16 elements and more",
        "combined one after the other in blocks of fixed size",
        "combined as the tree that JAX writes",
        "the computation is associative by contract; decision 0022",
        "tests/interop/test_associative_scan.py",
    ),
    Difference(
        "dot_general with an algorithm, such as BF16_BF16_F32",
        "operands are rounded to its types, or split into several numbers of them",
        "computed in the operands' own types",
        "StableHLO: operands are converted before the products",
        OPS + "test_contraction.py",
    ),
    Difference(
        "batch_norm_training",
        "the variance from differences to the mean",
        "as mean of squares less square of mean, up to ten times less exact",
        "the formulas of the operation semantics",
        OPS + "test_normalization.py",
    ),
    Difference(
        "scatter of a window partly outside",
        "elements inside are combined",
        "the whole window is dropped",
        "StableHLO and the operation semantics speak of each element",
        OPS + "test_indexing_edges.py",
    ),
    Difference(
        "scatter with index vectors of no numbers",
        "all updates are combined",
        "one of them",
        "StableHLO",
        OPS + "test_indexing.py",
    ),
    Difference(
        "sort of s2, u2",
        "as any integers",
        "wrong, or the end of the process",
        "StableHLO",
        OPS + "test_order.py",
    ),
    Difference(
        "rng_bit_generator of a float type",
        "floats of those bits",
        "unsigned integers",
        "StableHLO gives the type that was asked for",
        OPS + "test_random.py",
    ),
    Difference(
        "rng_uniform, rng_normal",
        "numbers of the same distribution, from a generator of the executable's own",
        "other numbers",
        "the distribution is all that is specified",
        OPS + "test_random.py",
    ),
    Difference(
        "reduce over a dynamic dimension with an initial value that changes something",
        "the value is combined once",
        "once for each element of the padding too",
        "operation semantics: reductions ignore the padding",
        OPS + "test_dynamic_size.py",
    ),
    Difference(
        "dynamic_slice of a dynamic dimension",
        "the start is held so that the slice ends before the size",
        "held by the bound, so that padding may be read",
        "operation semantics: what lies behind the size is not seen",
        OPS + "test_dynamic_size_places.py",
    ),
    Difference(
        "set_dimension_size with a size outside of 0 to the bound",
        "held in that range",
        "undefined",
        "as start indices are held",
        OPS + "test_dynamic_size_build.py",
    ),
    Difference(
        "optimization_barrier of a dynamic dimension",
        "taken",
        "refused",
        "nothing forbids it",
        OPS + "test_dynamic_size.py",
    ),
    Difference(
        "collective_broadcast, collective_reduce; all_reduce with any computation; all_to_all of several operands",
        "taken",
        "refused",
        "StableHLO",
        DEVICES + "test_element_types.py",
    ),
    Difference(
        "all_gather, reduce_scatter over replicas and partitions: a channel, numbers that are not global",
        "the replicas of partition 0 come first in a group",
        "the partitions of the first replica",
        "StableHLO, cross_replica_and_partition; the interpreter agrees",
        DEVICES + "test_specification.py",
    ),
    Difference(
        "all_reduce, reduce_scatter, the largest or the smallest where there is a NaN",
        "NaN",
        "NaN is left out",
        "StableHLO: `maximum` and `minimum` of IEEE-754",
        DEVICES + "test_element_types.py",
    ),
]

FROM_THE_INTERPRETER = [
    Difference(
        "broadcast_in_dim with dimensions that are not in ascending order",
        "the builder refuses them; a program's text may have them",
        "taken",
        "the broadcasting page and XLA's builder ask for strictly increasing dimensions, StableHLO does not",
        OPS + "test_shape_build.py",
    ),
    Difference(
        "next_after of types without a negative zero (f8...fnuz) or without a sign (f8e8m0fnu)",
        "the neighbour among the type's numbers",
        "NaN next to zero; another number (MLIR writes CHLO's operation out as for IEEE-754's types)",
        "the types' own numbers; ml_dtypes agrees",
        OPS + "test_elementwise_small_floats.py",
    ),
    Difference(
        "compare, TOTALORDER",
        "-NaN < -inf < ... < -0 < +0 < ... < inf < NaN",
        "as FLOAT",
        "StableHLO; XLA:CPU agrees",
        OPS + "test_elementwise.py",
    ),
    Difference(
        "reduce_precision to no bits of fraction",
        "NaN stays NaN",
        "becomes infinite",
        "StableHLO; XLA:CPU agrees",
        OPS + "test_conversion.py",
    ),
    Difference(
        "fft, IRFFT of an odd length",
        "the transform",
        "reads past the operand",
        "StableHLO; XLA:CPU and numpy agree",
        OPS + "test_fft.py",
    ),
    Difference(
        "convolution, holes of dilation beside what is not finite",
        "left out by kernels; multiplied as zeros without them",
        "multiplied as zeros: NaN",
        "operation semantics: zeros, as a value that does nothing; XLA:CPU leaves them out",
        OPS + "test_convolution.py",
    ),
    Difference(
        "unsigned indices above the largest signed number",
        "large",
        "negative",
        "StableHLO",
        OPS + "test_indexing_edges.py",
    ),
    Difference(
        "select_and_scatter, initial value",
        "combined once where something is selected",
        "twice",
        "StableHLO",
        OPS + "test_window.py",
    ),
    Difference(
        "scatter",
        "its operand is left as it was",
        "overwritten, where the program reads it again",
        "operations have no effect on their operands",
        OPS + "test_indexing.py",
    ),
    Difference(
        "dot_general of quantised arrays",
        "the scaled sum is rounded, and held by the bounds of its type",
        "cut off toward zero; it wraps; by axis, the first scale counts for all",
        "StableHLO: `dequantize_op_quantize`",
        "tests/interop/test_quantized.py",
    ),
    Difference(
        "add of quantised arrays of several scales",
        "rounded once",
        "both operands are rounded to the scale of the result first",
        "StableHLO: `dequantize_op_quantize`",
        "tests/interop/test_quantized.py",
    ),
    Difference(
        "quantised arrays of unsigned storage",
        "unsigned",
        "their integers are read as signed",
        "StableHLO",
        "tests/interop/test_quantized.py",
    ),
    Difference(
        "all_reduce, reduce_scatter with a computation that is not commutative",
        "folded from the left in the order of the group",
        "in the order of the devices' numbers, whatever the group says",
        "StableHLO: the tree's leaves are in the order of the group",
        DEVICES + "test_element_types.py",
    ),
    Difference(
        "while of which nothing is read, or whose values do not change",
        "removed, also where it would never end",
        "goes on for ever",
        "as XLA:CPU; a loop has no effect beside its results",
        "tests/targets/runtime/test_stopping.py",
    ),
    Difference(
        "collectives with empty `replica_groups`; collective_permute of a device to itself",
        "one group of all; its own operand",
        "end the process",
        "the operation semantics; StableHLO",
        DEVICES + "test_specification.py",
    ),
    Difference(
        "collectives of one device, batch_norm, complex results, contractions over nothing",
        "run",
        "end the process",
        "StableHLO",
        OPS + "test_collectives.py",
    ),
]


def page() -> str:
    """The text of docs/differences.md."""
    return "\n\n".join(
        [
            "# Where results differ",
            "Made by `python docs/make_differences.py`; don't edit.",
            "Every operation is compared with XLA:CPU and StableHLO's reference interpreter, in tests of its own and "
            "in random programs (`python -m tests.fuzz`).\nThis is all that is known to differ, beside the last digits "
            "of floating-point sums, whose order is left open.\nThe operation semantics decide, then StableHLO's "
            "specification, then what XLA:CPU does.",
            "## From XLA:CPU",
            _table(FROM_XLA, "XLA:CPU"),
            "## From the reference interpreter",
            _table(FROM_THE_INTERPRETER, "the interpreter"),
        ]
    ) + "\n"


def _table(rows: list[Difference], other: str) -> str:
    lines = [f"| operation | stablexla | {other} | reason | test |", "|---|---|---|---|---|"]
    for row in rows:
        link = f"[{Path(row.test).stem.removeprefix('test_')}](../{row.test})"
        lines.append(f"| {row.operation} | {row.here} | {row.there} | {row.reason} | {link} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when the page is out of date")
    if not parser.parse_args().check:
        PAGE.write_text(page())
        return 0
    return int(PAGE.read_text() != page())


if __name__ == "__main__":
    sys.exit(main())
