"""Why no emitter took a kernel, in words for the author of the program, and what to try.

Read off the kernel's function on tensors, which holds all that emitters see: they answer no more than no. What a
family of emitters takes is a sentence here (`FAMILIES`), beside what stands in the way of all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.kernels import KIND
from stablexla.lowering.support.operations import walk
from stablexla.targets.grouping.loops import is_generic


@dataclass(frozen=True)
class Refusal:
    """Why a kernel is on the general path.

    Attributes:
        why: what the emitters do not take.
        hint: what to try.
    """

    why: str
    hint: str


_NESTS = Refusal(
    "its operations do not share one loop nest over contiguous or evenly spaced elements",
    "split the expression, or give its arrays the same shape and order of dimensions",
)
FAMILIES = {
    "attention": Refusal(
        "a block of queries and keys does not fit in the caches of a core", "shorter heads, or narrower elements"
    ),
    "cholesky": Refusal(
        "one small matrix is less work than a call of LAPACK", "a batch: several matrices in one operation"
    ),
    "contraction": Refusal(
        "emitters take a sum of products of two arrays, begun at zero, with element-wise operations behind it",
        "write other operations on the operands as an operation of their own",
    ),
    "convolution": Refusal(
        "its windows need more memory than an emitter packs, or its elements are smaller than a byte",
        "fewer input features in a group, or elements of 8 bits or more",
    ),
    "fft": Refusal("emitters take floats of 32 and 64 bits", "f32 or f64"),
    "gather": Refusal(
        "its slices are single elements, or shorter than half a cache line (32 bytes)",
        "gather whole rows: the indexed dimensions first, 32 bytes or more in the last one",
    ),
    "general": _NESTS,
    "loop": _NESTS,
    "pool": Refusal(
        "emitters take windows over one array by one operation, whose last dimension is not part of the window",
        "features in the last dimension (NHWC), and a reduction by add, max or min",
    ),
    "random_bits": Refusal("emitters take the algorithms THREE_FRY and PHILOX", "one of these algorithms"),
    "reduce": _NESTS,
    "row": _NESTS,
    "scan": Refusal(
        "emitters take combiners of real numbers, without branches or loops",
        "a combiner of plain arithmetic, such as add, multiply or maximum",
    ),
    "scatter": Refusal(
        "emitters take one array of results, and updates that move along one dimension of indices",
        "one scatter for each array, with the indices flattened to one dimension",
    ),
    "select_and_scatter": Refusal(
        "emitters take one comparison and one operation, in windows that do not reach over the array's edges",
        "no padding, and features in the last dimension (NHWC)",
    ),
    "sort_keys": Refusal("emitters take keys of 32 and 64 bits", "keys of such a type"),
    "transpose": Refusal("emitters take one array whose dimensions are permuted", "the permutation alone"),
    "triangular_solve": Refusal(
        "one small system is less work than a call of LAPACK, and is not solved in vector lanes",
        "a batch: several systems in one operation, or more right-hand sides",
    ),
}
"""By kind of kernel, the programs that its emitters accept."""

_WITHOUT = {
    "merge": "emitters sort one array by its values; this sort moves several",
    "sort": "emitters sort one array by its values; this sort moves several, or compares in its own way",
    "sort_rows": "emitters sort one array by its values; this sort moves several",
    "top_k": "emitters have no selection of the largest",
}
_WITHOUT_HINTS = {
    "sort": "values alone where their places are not needed, or fewer elements",
    "top_k": "a smaller k, or a maximum for k = 1",
}
_SMALL = "it works element by element: keep it out of loops, and its arrays small"


def refusal_of(function: Any, kinds: Collection[str], options: Mapping[str, str]) -> Refusal:
    """Return why no emitter took a kernel.

    Args:
        function: the kernel's function on tensors.
        kinds: those for which the target has emitters; empty where that is not known.
        options: those of the pass that asks the emitters, which may send kernels to the general path.
    """
    kind = ir.StringAttr(function.attributes[KIND]).value
    found = _by_option(symbol_of(function), options)
    if found is None and kinds and kind not in kinds:
        found = Refusal(_WITHOUT.get(kind, f"no emitter takes {kind!r}"), _WITHOUT_HINTS.get(kind, _SMALL))
    return found or _by_contents(function) or FAMILIES.get(kind, Refusal("no emitter took its form", _SMALL))


def _by_option(name: str, options: Mapping[str, str]) -> Refusal | None:
    if options.get("general-only") == "true":
        return Refusal("the pipeline's option general-only sends every kernel there", "the pipeline without it")
    if name in options.get("general", "").split(","):
        return Refusal("the pipeline's option general names it", "the pipeline without it")
    return None


def _by_contents(function: Any) -> Refusal | None:
    """Return what stands in the way of every emitter, of which the first that is found is named."""
    operations = walk(function)
    if any(_is_complex(v.type) for op in operations for v in op.results):
        return Refusal(
            "it holds complex arithmetic, and vectors hold real numbers",
            "compute on real and imaginary parts as two arrays",
        )
    for generic in filter(is_generic, operations):
        inside = [op.name for op in walk(generic)]
        if any(name.startswith("scf.") for name in inside):
            return Refusal(
                "each element needs a loop or a branch of its own",
                "fewer such elements; select in place of a branch, a fixed number of steps in place of a while",
            )
        if "tensor.extract" in inside:
            return Refusal(
                "it reads elements at indices that are computed for each of them", "gather whole rows, or slice"
            )
    if any(op.name == "tensor.insert_slice" for op in operations):
        return Refusal(
            "it inserts a block at a computed index, along with other operations",
            "a block of whole rows, or the update as an operation of its own",
        )
    return None


def _is_complex(type_: ir.Type) -> bool:
    return isinstance(type_.element_type if isinstance(type_, ir.RankedTensorType) else type_, ir.ComplexType)
