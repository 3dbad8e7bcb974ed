"""The builder's operations, one file for each family; `stablexla` itself exports them under XLA's names."""
