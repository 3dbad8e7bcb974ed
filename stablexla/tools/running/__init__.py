"""Parts of `stablexla-run`: inputs, devices, comparison, explanation, launching."""
