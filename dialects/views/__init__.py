"""Modules that MLIR's bindings import for the classes of operations, before those of `mlir.dialects`.

Iterating over a block makes each operation an instance of its class, and for that imports the dialect's module. Those
of linalg and LLVM take 80 ms: they define hundreds of classes, and linalg's brings its language for operations, and
YAML. Passes here read operations by operands and attributes, as `ir.OpView` has them, and need no classes.
"""

from __future__ import annotations

from mlir._mlir_libs import _mlir

_HERE = __name__


def prefer_views() -> None:
    """Have the bindings look here first; modules that somebody imports by their own names are as they were."""
    others = [name for name in _mlir.globals.dialect_search_modules if name != _HERE]
    _mlir.globals.dialect_search_modules = [_HERE, *others]


def import_classes() -> None:
    """Import all classes, for passes that users wrote."""
    from mlir.dialects import _linalg_ops_gen, _llvm_ops_gen  # noqa: F401
