"""PTX generation: checks of GPU modules for LLVM, inline PTX, cubins by ptxas."""
