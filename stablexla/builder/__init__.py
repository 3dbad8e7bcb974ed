"""The builder of computations: operations, checks of operands, shapes, and constants."""
