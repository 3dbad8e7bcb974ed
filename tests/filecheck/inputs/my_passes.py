"""Passes and rules of a user's, for `--load`."""

from typing import Any

from mlir.dialects import arith

import stablexla as sx


@sx.module_pass("my-rename", "calls the first function otherwise")
def rename(module: Any, *, to: str = "renamed") -> None:
    import mlir.ir as ir

    module.body.operations[0].attributes["sym_name"] = ir.StringAttr.get(to)


@sx.lowers("stablehlo.tanh")
def tanh(ctx: Any, x: Any) -> Any:
    return ctx.elementwise(lambda v: arith.negf(v), x)


def twice(ctx: Any, x: Any) -> Any:
    return ctx.elementwise(lambda v: arith.addf(v, v), x)


def fails(module: Any) -> None:
    raise ValueError("on purpose")
