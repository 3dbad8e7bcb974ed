"""JAX's functions, run by stablexla: traced and lowered by JAX, compiled and run here.

`jit` takes any function that JAX can trace; `from_lowered` and `from_exported` take what JAX has lowered already.
"""

from stablexla.interop.jax.ffi import use_ffi_targets
from stablexla.interop.jax.jit import JitFunction, jit
from stablexla.interop.jax.program import JaxProgram, from_exported, from_lowered

__all__ = ["JaxProgram", "JitFunction", "from_exported", "from_lowered", "jit", "use_ffi_targets"]
