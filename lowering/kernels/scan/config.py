"""The configuration of kernels of prefix scans."""

from __future__ import annotations

from stablexla.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class ScanConfig:
    """An inclusive scan of `outer` times `extent` rows of `inner` elements.

    Attributes:
        backwards: from the last row to the first.
        computation: name of the combiner, or "" where it is none that has a name.
        unsigned: the elements are integers without sign.
        whole_bytes: all elements are of 8 bits or more.
        start: there are initial values, inputs behind the arrays.
        associative: parts of a line may be scanned independently.
        returned: numbers of the arrays whose scans are results, of scans with any combiner.
        positive_zeros: zeros are added to the results.
    """

    outer: int
    extent: int
    inner: int
    backwards: bool
    computation: str
    unsigned: bool
    whole_bytes: bool
    start: bool
    associative: bool
    returned: tuple[int, ...] | None = None
    positive_zeros: bool = False
