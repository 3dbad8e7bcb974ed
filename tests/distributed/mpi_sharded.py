"""A process of several that runs a program on sharded arrays, and says whether it got the whole result."""

from __future__ import annotations

import numpy as np

import stablexla as sx
from tests.distributed.mpi_launch import join
from tests.interop.sharded_product import PRODUCT, X

if __name__ == "__main__":
    join()
    executable = sx.compile(PRODUCT)
    np.testing.assert_array_equal(executable(X), X @ X.T)
    print(f"devices {executable.local_devices}\n", end="", flush=True)
