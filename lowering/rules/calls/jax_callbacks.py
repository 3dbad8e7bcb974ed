"""Rejects unbound Python callbacks of JAX: the program holds only the number of the function.

Programs that JAX traced in this process have their callbacks bound before lowering (`stablexla.interop.jax`).
"""

from __future__ import annotations

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir

from stablexla.dialects.errors import UnsupportedError
from stablexla.lowering.rules.calls.custom_call import operation_call
from stablexla.lowering.support.context import LoweringContext, place_of

ON_BUFFERS = "xla_buffer_python_cpu_callback"
"""The target of `buffer_callback`, whose functions write their results into arrays that they are given."""

CALLBACKS = (
    ON_BUFFERS,
    *("xla_ffi_partitioned_python_cpu_callback", "xla_ffi_python_cpu_callback", "xla_python_cpu_callback"),
)
"""Targets of JAX's custom calls of Python functions."""


def unbound(ctx: LoweringContext, *operands: ir.Value) -> ir.Value:
    """Raise UnsupportedError."""
    name = str(hlo_ir.StringAttr(ctx.attributes["call_target_name"]).value)
    raise UnsupportedError(
        f"{name!r} calls a Python function, and which one only the process knows that traced the program in JAX"
        + place_of(ctx.op.location),
        operation="custom_call",
        hint="stablexla.interop.jax.jit(f), or from_lowered(jax.jit(f).lower(...)), in that process",
    )


for _name in CALLBACKS:
    operation_call(_name)(unbound)
