"""How LLVM should see the functions of a module: kernels are called, never copied into their callers."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.targets.passes import module_pass


@module_pass("stablexla-keep-kernels-apart", "marks every function but main as local and not to be inlined")
def keep_kernels_apart(module: ir.Module) -> None:
    """The execution engine writes wrappers around every function, and LLVM would compile the body again in each."""
    for view in module.body.operations:
        op = view.operation
        if op.name != "llvm.func" or not op.regions[0].blocks:
            continue
        op.attributes["prefer_vector_width"] = ir.StringAttr.get("512")
        if ir.StringAttr(op.attributes["sym_name"]).value != "main":
            op.attributes["no_inline"] = ir.UnitAttr.get()
            op.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
