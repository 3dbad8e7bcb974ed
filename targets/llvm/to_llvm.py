"""The passes from buffers to LLVM's dialect, for every program on this machine."""

from __future__ import annotations

LLVM = frozenset({"llvm"})

# One conversion replaces many small ones, each with a walk of its own; vectors and functions need their own options.
TO_LLVM = (
    "stablexla-note-sizes",
    "stablexla-expand-math",
    "stablexla-expand-small-floats",
    "func.func(convert-vector-to-scf{full-unroll=true},lower-affine,convert-scf-to-cf)",
    "expand-strided-metadata",
    "lower-affine",
    "convert-vector-to-llvm{enable-x86vector=true}",
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1}",
    "convert-to-llvm",
    "reconcile-unrealized-casts",
    "stablexla-keep-rolled",
    "stablexla-bf16-as-bits",
    "stablexla-run-in-parallel",
    "stablexla-hide-kernels",
)
