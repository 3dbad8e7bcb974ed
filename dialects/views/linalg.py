"""No classes for the operations of linalg; those that MLIR generates are in `mlir.dialects.linalg`."""
