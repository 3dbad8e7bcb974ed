"""The target of CPUs: its pipeline, and its kernel emitters by family."""

from stablexla.targets.kinds import Kind

KIND = Kind("cpu: this machine's processor", composites="functions", files="library", is_known_by_options=True)
