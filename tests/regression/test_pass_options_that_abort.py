"""Values of options, and places of passes, for which MLIR ends the process: refused before a pass sees them.

Each was found by running every pass with odd values of every option in a process of its own.
"""

from __future__ import annotations

import pytest

import stablexla as sx
from stablexla.targets.pipeline.driver import check_pipeline
from stablexla.targets.pipeline.passes import Side

UPSTREAM = [
    ("affine-loop-tile{tile-sizes=0}", "numbers from 1 on"),
    ("func.func(affine-loop-tile{tile-sizes=4,0})", "numbers from 1 on"),
    ("affine-loop-unroll-jam{unroll-jam-factor=0}", "a number from 1 on"),
    ("convert-arith-to-llvm{index-bitwidth=4294967295}", "a number of bits up to 64"),
    ("convert-func-to-llvm{index-bitwidth=4294967295}", "a number of bits up to 64"),
    ("finalize-memref-to-llvm{index-bitwidth=4294967295}", "a number of bits up to 64"),
    ("gpu-module-to-binary{format=nonsense}", "one of offload, llvm"),
    ("gpu-module-to-binary{toolkit=x format=}", "one of offload, llvm"),
    ("one-shot-bufferize{analysis-heuristic=nonsense}", "one of bottom-up, top-down"),
    ("nvvm-attach-target{O=4294967295}", "a number from 0 to 3"),
    ("rocdl-attach-target{O=9}", "a number from 0 to 3"),
    ("xevm-attach-target{chip=}", "the name of a chip"),
    ("nvvm-attach-target{triple=''}", "a target triple"),
    ("rocdl-attach-target{abi=nonsense}", "one of 400, 500, 600"),
    ("func.func(convert-to-llvm)", "runs on whole modules, not on func.func"),
    ("any(func.func(convert-to-emitc{filter-dialects=arith}))", "runs on whole modules, not on func.func"),
    ("func.func(strip-func-quant-types)", "runs on whole modules, not on func.func"),
    ("func.func(convert-func-to-spirv)", "runs on whole modules, not on func.func"),
    ("func.func(convert-scf-to-spirv)", "runs on whole modules, not on func.func"),
    ("func.func(convert-tensor-to-spirv)", "runs on whole modules, not on func.func"),
]
STABLEHLO = [
    ("composite-fixed-point-pass{max-iterations=-1}", "a number from 1 on"),
    ("stablehlo-refine-arguments{types=tensor<8xf32>,}", "a type for each parameter"),
    ("func.func(sdy-import-pipeline)", "runs on whole modules, not on func.func"),
    ("func.func(sdy-export-pipeline)", "runs on whole modules, not on func.func"),
    ("func.func(sdy-propagation-pipeline)", "runs on whole modules, not on func.func"),
]
GOOD = (
    "func.func(affine-loop-tile{tile-sizes=4,4}),convert-arith-to-llvm{index-bitwidth=32}",
    "nvvm-attach-target{O=3 chip=sm_90},rocdl-attach-target{abi=600}",
    "one-shot-bufferize{analysis-heuristic=top-down},gpu-module-to-binary{format=isa},convert-to-llvm",
)


@pytest.mark.parametrize(
    ("side", "passes", "message"),
    [*(("upstream", *row) for row in UPSTREAM), *(("stablehlo", *row) for row in STABLEHLO)],
)
def test_is_refused(side: Side, passes: str, message: str) -> None:
    with pytest.raises(sx.CompileError, match=message):
        check_pipeline(sx.Pipeline("p", [sx.Step("s", passes)]), side)


@pytest.mark.parametrize("passes", GOOD)
def test_good_values_are_taken(passes: str) -> None:
    check_pipeline(sx.Pipeline("p", [sx.Step("s", f"cse,func.func(cse),{passes}")]), "upstream")
