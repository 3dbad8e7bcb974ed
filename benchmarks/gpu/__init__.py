"""Programs for GPUs, side by side with XLA, PyTorch and Triton: `python -m benchmarks.gpu`."""
