"""The shortest way through: upstream's own passes and execution engine, on one thread."""
