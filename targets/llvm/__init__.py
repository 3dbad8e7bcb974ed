"""Machine code by LLVM: passes to its dialect, the calling convention of `main`, the JIT, ahead-of-time compilation."""
