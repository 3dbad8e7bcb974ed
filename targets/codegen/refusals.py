"""Why no emitter took a kernel, in words for the author of the program: noted by the emitters where they refuse."""

from __future__ import annotations

from threading import local

from stablexla.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Refusal:
    """Why a kernel is on the general path.

    Attributes:
        why: what the emitters do not take.
        hint: what to try.
    """

    why: str
    hint: str


class _Noted(local):
    first: Refusal | None = None


_NOTED = _Noted()


def refuse(refusal: Refusal) -> None:
    """Note why an emitter is about to return None. The first note of a kernel's emitters is kept with the kernel."""
    _NOTED.first = _NOTED.first or refusal


def take_refusal() -> Refusal | None:
    """Return the first note since the last call."""
    first, _NOTED.first = _NOTED.first, None
    return first


BLOCKS = Refusal(
    "it inserts a block into an array that it also reads, or elements more than four apart",
    "a copy of what is read, by an operation of its own",
)
BRANCHES = Refusal(
    "each element needs a loop or a branch of its own",
    "fewer such elements; select in place of a branch, a fixed number of steps in place of a while",
)
COMBINER = Refusal(
    "emitters take combiners of real numbers, without branches or loops",
    "a combiner of plain arithmetic, such as add, multiply or maximum",
)
COMPLEX = Refusal(
    "it holds arithmetic on complex numbers that this emitter does not have in lanes",
    "compute on real and imaginary parts as two arrays",
)
CONTRACTED = Refusal(
    "emitters take a sum of products of two arrays, begun at zero, with element-wise operations behind it",
    "write other operations on the operands as an operation of their own",
)
CONVOLVED = Refusal(
    "emitters take windows of two arrays, begun at zero, with element-wise operations behind them, and few dilations",
    "less dilation of lhs; other operations on the operands as an operation of their own",
)
EMPTY = Refusal("an array has no elements", "no change: there is no work")
INDICES = Refusal("it reads elements at indices that are computed for each of them", "gather whole rows, or slice")
NESTS = Refusal(
    "its operations do not share one loop nest over contiguous or evenly spaced elements",
    "split the expression, or give its arrays the same shape and order of dimensions",
)
POOLED = Refusal(
    "emitters take windows by one operation, of integers, f32 and f64, and by max and min also of shorter floats",
    "a reduction by add, max or min, of f32",
)
_SMALL = "it works element by element: keep it out of loops, and its arrays small"
_WITHOUT = {
    "merge": Refusal("emitters sort one array by its values; this sort moves several", _SMALL),
    "sort": Refusal(
        "emitters sort one array by its values; this sort moves several, or compares in its own way",
        "values alone where their places are not needed, or fewer elements",
    ),
    "sort_rows": Refusal("emitters sort one array by its values; this sort moves several", _SMALL),
    "top_k": Refusal("emitters have no selection of the largest", "a smaller k, or a maximum for k = 1"),
}


def without_emitters(kind: str) -> Refusal:
    """Return why kernels of a kind go to the general path on a target that has no emitter for the kind."""
    return _WITHOUT.get(kind, Refusal(f"no emitter takes {kind!r}", _SMALL))
