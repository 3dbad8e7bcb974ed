"""Parts of `stablexla-opt`: options, input, expected diagnostics, IR printing."""
