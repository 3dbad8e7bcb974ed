"""Shape refinement: static extents for programs with dynamic dimensions."""
