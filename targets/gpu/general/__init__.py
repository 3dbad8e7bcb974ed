"""The general path of kernels on GPUs: bufferization, loop interchange and fission into launches."""
