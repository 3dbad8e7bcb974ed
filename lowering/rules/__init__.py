"""Lowering rules, one module per family of operations; `load_rules` of the registry imports them all."""
