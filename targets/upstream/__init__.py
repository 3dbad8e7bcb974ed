"""The shortest way through: upstream's own passes and execution engine, on one thread."""

from stablexla.targets.kinds import Kind

KIND = Kind("upstream: this machine's processor by upstream's own passes, slowly, as a second opinion", ends_runs=False)
