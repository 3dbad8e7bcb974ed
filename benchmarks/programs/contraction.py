"""Products of matrices: square ones of several sizes, one whose sizes no tile divides, and one of few rows."""

import stablexla as sx
from benchmarks.programs.registry import add

for rows, inner, columns in (
    (128, 128, 128),
    (256, 256, 256),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (1000, 1001, 999),
    (8, 4096, 4096),
):
    square = rows == inner == columns
    add(
        f"matmul-{rows}" if square else f"matmul-{rows}x{inner}x{columns}",
        f"({rows},{inner}) by ({inner},{columns})",
        [sx.f32[rows, inner], sx.f32[inner, columns]],
        lambda x, y: x @ y,
        numpy=lambda x, y: x @ y,
        operations=2.0 * rows * inner * columns,
    )
