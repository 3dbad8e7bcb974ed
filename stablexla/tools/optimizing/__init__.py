"""Parts of stablexla-opt: input, options, passes on show, diagnostics, and the watcher of a run."""
