"""The builder: operations of `XlaBuilder` and `XlaOp` are checked by XLA's shape rules and emitted as StableHLO."""
