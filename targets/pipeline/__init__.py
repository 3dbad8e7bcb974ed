"""Pass pipelines as values, the driver that runs them, the registry of Python passes, dumps and knobs."""
