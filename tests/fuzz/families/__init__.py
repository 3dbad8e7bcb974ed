"""What programs are made of: a short file for each family of operations, named as the family is elsewhere.

A file makes its `family(...)` and registers functions that write a statement with `@family.statement(weight)`. A new
one is imported here.
"""

from tests.fuzz.families import (  # noqa: F401
    contraction,
    control,
    conversion,
    convolution,
    elementwise,
    fft,
    indexing,
    linear_algebra,
    normalization,
    order,
    products,
    random_bits,
    reduction,
    shape,
    window,
)
