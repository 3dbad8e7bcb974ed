"""A program on sharded arrays, for four devices of a mesh of two by two."""

from __future__ import annotations

import numpy as np

X = np.arange(32, dtype=np.float32).reshape(8, 4)

HEAD = """
module @sharded attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @grid = <["x"=2, "y"=2]>
"""
PRODUCT = (
    HEAD
    + """
  func.func public @main(%x: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@grid, [{"x"}, {"y"}]>})
      -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@grid, [{"x"}, {}]>}) {
    %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
    %p = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0]
        : (tensor<8x4xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    return %p : tensor<8x8xf32>
  }
}
"""
)
