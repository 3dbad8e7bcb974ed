"""A process of several that runs a program on sharded arrays, and says whether it got the whole result."""

from __future__ import annotations

import numpy as np

import stablexla as sx
from tests.interop.sharded_product import PRODUCT, X

if __name__ == "__main__":
    sx.distributed.initialize()
    executable = sx.compile(PRODUCT)
    np.testing.assert_array_equal(executable(X), X @ X.T)
    print(f"devices {executable.local_devices}\n", end="", flush=True)
