"""Parts of stablexla-run: inputs, devices, comparison, reports and launchers."""
