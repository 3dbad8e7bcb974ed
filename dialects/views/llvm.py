"""No classes for the operations of LLVM's dialect; those that MLIR generates are in `mlir.dialects.llvm`."""
