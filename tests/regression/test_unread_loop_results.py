"""A loop one of whose results nobody reads could not be compiled when its condition looked at what that result carries.

The canonicaliser takes the result away; what the loop carries, what its body gets and what it gives then differ.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.programs import check, general_only

LOOP = """
func.func public @main(%p: tensor<4xi32>, %q: tensor<4xi32>) -> ({types}) {{
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %c50 = stablehlo.constant dense<50> : tensor<i32>
  %r:4 = stablehlo.while(%i = %c0, %x = %p, %y = %q, %k = %c1)
      : tensor<i32>, tensor<4xi32>, tensor<4xi32>, tensor<i32>
  cond {{
    %s = stablehlo.reduce(%x init: %k) applies stablehlo.add across dimensions = [0]
      : (tensor<4xi32>, tensor<i32>) -> tensor<i32>
    %g = stablehlo.compare LT, %s, %c50 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  }} do {{
    %n = stablehlo.add %i, %c1 : tensor<i32>
    %b = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %w = stablehlo.multiply %b, %b : tensor<4xi32>
    %z = stablehlo.add %y, %w : tensor<4xi32>
    stablehlo.return %n, %w, %z, %n : tensor<i32>, tensor<4xi32>, tensor<4xi32>, tensor<i32>
  }}
  return {results} : {types}
}}
"""


@pytest.mark.parametrize("path", ["emitters", "general"])
@pytest.mark.parametrize(
    ("results", "types"),
    [
        ("%r#0", "tensor<i32>"),
        ("%r#2", "tensor<4xi32>"),
        ("%r#3, %r#2", "tensor<i32>, tensor<4xi32>"),
        ("%r#1", "tensor<4xi32>"),
    ],
)
def test_what_the_condition_needs_is_carried_on(results: str, types: str, path: str) -> None:
    """The oracle is the reference interpreter."""
    args = [np.arange(4, dtype=np.int32), np.ones(4, np.int32)]
    options = general_only() if path == "general" else None
    check(LOOP.format(results=results, types=types), args, against=["interpreter"], options=options)
