"""The rules of PyTorch's operators, a file per family."""
