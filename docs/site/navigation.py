"""The site's navigation: captions with the pages under each, and the pages that have others below them.

A page that stands nowhere here is an error of the build and of the test suite; `*` stands for all that match. Pages
below another one are named from its folder, or from the root with `/` before them.
"""

from __future__ import annotations

NAVIGATION: dict[str, list[str]] = {
    "Begin": [
        "docs/start",
        "docs/tutorials/README",
        "docs/builder",
        "docs/arrays",
        "Examples <examples/README>",
    ],
    "Programs from elsewhere": [
        "docs/jax",
        "docs/jax_tests",
        "docs/pytorch",
        "docs/pytorch_operators",
        "docs/pytorch_models",
        "docs/pytorch_models_bf16",
        "docs/pytorch_models_frozen",
        "docs/interop_formats",
        "docs/shapes",
        "docs/interop",
        "docs/hlo_opcodes",
    ],
    "In a program": [
        "docs/dynamic_sizes",
        "docs/quantized",
        "docs/custom_calls",
        "docs/numerics",
        "docs/differences",
    ],
    "Looking inside": [
        "docs/explain",
        "docs/compare",
        "docs/check",
        "docs/pipelines",
    ],
    "Running": [
        "docs/ahead_of_time",
        "docs/distributed",
        "docs/gpu",
        "docs/gpu_from_c",
        "docs/reliability",
        "docs/security",
        "SECURITY",
        "docs/performance",
        "docs/compile_time",
    ],
    "Reference": [
        "docs/reference/README",
        "docs/ops",
        "docs/names",
    ],
    "The compiler": [
        "docs/architecture",
        "docs/glossary",
        "CONTRIBUTING",
        "docs/decisions/README",
        "docs/versions",
        "CHANGELOG",
        "docs/releases/*",
    ],
}

BELOW: dict[str, list[str]] = {
    "docs/tutorials/README": [
        "compiler_engineer",
        "jax_user",
        "pytorch",
        "c_library",
        "ptx",
        "slow_kernel",
        "schedules",
    ],
    "docs/reference/README": [
        "builder",
        "types",
        "elementwise",
        "conversion",
        "shape",
        "indexing",
        "contraction",
        "convolution",
        "linear_algebra",
        "reduction",
        "order",
        "random",
        "normalization",
        "control",
        "effects",
        "custom_calls",
        "collectives",
        "compiling",
        "jax",
        "pytorch",
        "inspection",
        "pipelines",
        "extending",
        "distributed",
        "gpu",
        "errors",
    ],
    "docs/decisions/README": ["0*"],
    "docs/architecture": [
        "/stablexla/**README",
        "/targets/**README",
        "/lowering/**README",
        "/dialects/**README",
        "/tests/**README",
        "/benchmarks/README",
        "/third_party/README",
        "/releasing/README",
    ],
}
