"""The target of CPUs: its pipeline, and its kernel emitters by family."""
