"""Target NVIDIA GPUs. `sx.gpu.target(chip="sm_90")` is a target's name for `sx.compile`."""

from stablexla.targets.kinds import Kind

KIND = Kind(
    "gpu:sm_90 or gpu:sm_90,ptx80: NVIDIA's GPUs; gpu alone is the one that is there. --list-chips has the chips",
    composites="rules",
    files="kernels",
)
