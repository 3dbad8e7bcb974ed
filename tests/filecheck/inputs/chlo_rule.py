"""Rules of a user's for an operation of CHLO and one of StableHLO, for `passes/keep-ruled.mlir`."""

from typing import Any

from mlir.dialects import arith

import stablexla as sx


@sx.lowers("chlo.digamma", "stablehlo.tanh")
def negate(ctx: Any, x: Any) -> Any:
    return ctx.elementwise(lambda v: arith.negf(v), x)
