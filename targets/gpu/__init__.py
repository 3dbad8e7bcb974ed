"""Target NVIDIA GPUs. `sx.gpu.target(chip="sm_90")` is a target's name for `sx.compile`."""
