"""Keep LLVM from unrolling the loops of emitted functions.

Their emitters unroll where it pays. LLVM would unroll the remaining loops too, which for a product of matrices doubles
the code and the time to compile it, and makes it no faster.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.lowering.support.operations import terminator_of
from stablexla.targets.codegen.kernel import ROLLED
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-keep-rolled", "tells LLVM not to unroll the loops of functions that ask for it")
def keep_loops_rolled(module: ir.Module) -> None:
    """Annotate the back edges of marked functions' loops."""
    marked = [view.operation for view in module.body.operations if ROLLED in view.operation.attributes]
    if not marked:
        return
    with module.context:
        annotation = ir.Attribute.parse("#llvm.loop_annotation<unroll = <disable = true>>")
    for function in marked:
        del function.attributes[ROLLED]
        seen: set[ir.Block] = set()
        for block in function.regions[0].blocks:
            seen.add(block)
            last = terminator_of(block)
            if last.name in ("llvm.br", "llvm.cond_br") and any(s in seen for s in last.successors):
                last.attributes["loop_annotation"] = annotation
