"""A pass with a mistake, for `compare.mlir`: what subtracts in the function is made to add."""

import mlir.ir as ir

from stablexla.targets.pipeline.passes import module_pass


@module_pass("my-mistake", "adds where something is subtracted")
def add_for_subtract(module: ir.Module) -> None:
    """Replaces the operations one by one."""
    found = []

    def note(op):
        if op.name == "arith.subf":
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for op in found:
        with op.context, op.location, ir.InsertionPoint(op):
            made = ir.Operation.create("arith.addf", results=[op.results[0].type], operands=list(op.operands))
        op.results[0].replace_all_uses_with(made.results[0])
        op.erase()
