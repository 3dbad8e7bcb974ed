"""A process of several that runs a program on sharded arrays, and says whether it got the whole result."""

from __future__ import annotations

import numpy as np

import stablexla as sx
from stablexla import distributed

X = np.arange(32, dtype=np.float32).reshape(8, 4)
PRODUCT = """
module @sharded attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @grid = <["x"=2, "y"=2]>
  func.func public @main(%x: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@grid, [{"x"}, {"y"}]>})
      -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@grid, [{"x"}, {}]>}) {
    %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
    %p = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0]
        : (tensor<8x4xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    return %p : tensor<8x8xf32>
  }
}
"""

if __name__ == "__main__":
    distributed.initialize()
    executable = sx.compile(PRODUCT)
    np.testing.assert_array_equal(executable(X), X @ X.T)
    print(f"devices {executable.local_devices}\n", end="", flush=True)
