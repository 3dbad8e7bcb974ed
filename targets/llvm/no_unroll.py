"""Keep LLVM from unrolling the loops of emitted functions.

Their emitters unroll where it pays. LLVM would unroll the remaining loops too, which for a product of matrices doubles
the code and the time to compile it, and makes it no faster. Nor does it pay for a long body, such as that of a sine,
whose copies take a second to compile.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.lowering.support.operations import terminator_of
from stablexla.targets.codegen.kernel import ROLLED
from stablexla.targets.pipeline.passes import module_pass

LONG_BODY = Gate("no-unroll.long-body", 200, eager=1)
"""Operations in LLVM's dialect from which on a loop stays as it is."""


@module_pass("stablexla-keep-rolled", "tells LLVM not to unroll long loops, and those of functions that ask for it")
def keep_loops_rolled(module: ir.Module) -> None:
    """Annotate the back edges of long loops, and of all loops of marked functions."""
    with module.context:
        annotation = ir.Attribute.parse("#llvm.loop_annotation<unroll = <disable = true>>")
    for view in module.body.operations:
        function = view.operation
        is_marked = ROLLED in function.attributes
        if is_marked:
            del function.attributes[ROLLED]
        if function.name == "llvm.func":
            for last, size in _back_edges(function):
                if is_marked or size > LONG_BODY():
                    last.attributes["loop_annotation"] = annotation


def _back_edges(function: ir.Operation) -> Iterator[tuple[ir.Operation, int]]:
    """Yield the branches back to a block before, each with the number of operations in between."""
    counted = 0
    starts: dict[ir.Block, int] = {}
    for block in function.regions[0].blocks:
        starts[block] = counted
        counted += len(block.operations)
        last = terminator_of(block)
        if last.name in ("llvm.br", "llvm.cond_br"):
            heads = [starts[s] for s in last.successors if s in starts]
            if heads:
                yield last, counted - min(heads)
