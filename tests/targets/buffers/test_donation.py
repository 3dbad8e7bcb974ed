"""Which results may be written over a donated parameter: the pairs that the assignment finds, and that all is right
when caller's results lie there and when they do not."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx

MATRIX = np.arange(1.0, 17, dtype=np.float32).reshape(4, 4)


def executable(body: str, *, donated: str = "tf.aliasing_output = 0 : i32", results: int = 1) -> sx.Executable:
    """A program of %x (donated) and %y, matrices of 4 by 4, whose results are such matrices too."""
    m = "tensor<4x4xf32>"
    types = m if results == 1 else f"({', '.join([m] * results)})"
    return sx.compile(f"func.func @main(%x: {m} {{{donated}}}, %y: {m}) -> {types} {{\n{body.replace('M', m)}\n}}")


ADD = "%0 = stablehlo.add %x, %y : M\n return %0 : M"
SLICE = """%u = stablehlo.slice %y [0:1, 0:4] : (M) -> tensor<1x4xf32>
 %i = stablehlo.constant dense<2> : tensor<i32>
 %z = stablehlo.constant dense<0> : tensor<i32>
 %0 = stablehlo.dynamic_update_slice %x, %u, %i, %z : (M, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> M
 return %0 : M"""
LOOP = """%z = stablehlo.constant dense<0> : tensor<i32>
 %n = stablehlo.constant dense<100> : tensor<i32>
 %one = stablehlo.constant dense<1> : tensor<i32>
 %r:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, M
 cond { %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1> stablehlo.return %c : tensor<i1> }
 do { %j = stablehlo.add %i, %one : tensor<i32> %w = stablehlo.add %v, KEPT : M
      stablehlo.return %j, %w : tensor<i32>, M }
 return %r#1 : M"""
PRODUCT = """%0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (M, M) -> M
 return %0 : M"""
TWICE = "%0 = stablehlo.add %x, %y : M\n %1 = stablehlo.multiply %x, %y : M\n return %0, %1 : M, M"
LATER = """%0 = stablehlo.add %x, %y : M
 %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0] : (M, M) -> M
 return %0, %1 : M, M"""
SWAP = "return %y, %x : M, M"
TRANSPOSE = "%0 = stablehlo.transpose %x, dims = [1, 0] : (M) -> M\n return %0 : M"
BOTH = "%t = stablehlo.transpose %x, dims = [1, 0] : (M) -> M\n %0 = stablehlo.add %x, %t : M\n return %0 : M"


def choice(then: str, otherwise: str, after: str = "return %0#0 : M", results: int = 1) -> str:
    """A conditional that takes the first branch, as %y[0, 0] is 2; `UPDATE` changes a row of what it is given."""
    types = ", ".join(["M"] * results)
    body = f"""%s = stablehlo.slice %y [0:1, 0:1] : (M) -> tensor<1x1xf32>
     %r = stablehlo.reshape %s : (tensor<1x1xf32>) -> tensor<f32>
     %one = stablehlo.constant dense<1.0> : tensor<f32>
     %p = stablehlo.compare GT, %r, %one : (tensor<f32>, tensor<f32>) -> tensor<i1>
     %u = stablehlo.slice %y [0:1, 0:4] : (M) -> tensor<1x4xf32>
     %i = stablehlo.constant dense<2> : tensor<i32>
     %z = stablehlo.constant dense<0> : tensor<i32>
     %0:{results} = "stablehlo.if"(%p) ({{ {then} }}, {{ {otherwise} }}) : (tensor<i1>) -> ({types})
     {after}"""
    for name in ("%x", "%a"):
        update = (
            f"stablehlo.dynamic_update_slice {name}, %u, %i, %z : (M, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> M"
        )
        body = body.replace(f"UPDATE {name}", update)
    return body


CHANGED = np.concatenate([MATRIX[:2], 2 * MATRIX[:1], MATRIX[3:]])
UPDATED = "%a = UPDATE %x\n stablehlo.return %a : M"
KEPT = "stablehlo.return %x : M"
SUM = "%a = stablehlo.add %x, %y : M\n stablehlo.return %a : M"
INNER = f'%b = "stablehlo.if"(%p) ({{ {UPDATED} }}, {{ {KEPT} }}) : (tensor<i1>) -> M\n stablehlo.return %b : M'
READ_AFTER = "%a = UPDATE %x\n %b = stablehlo.transpose %x, dims = [1, 0] : (M) -> M\n %c = stablehlo.add %a, %b : M"
READ_WITH = "%a = UPDATE %x\n %b = stablehlo.add %a, %x : M\n stablehlo.return %b : M"
TWO = "%a = UPDATE %x\n %b = stablehlo.add %y, %y : M\n stablehlo.return %a, %b : M, M"
MOVED, BOTH_RESULTS = "stablehlo.return %y, %x : M, M", "return %0#0, %0#1 : M, M"

CASES = {
    "updated or kept": (choice(UPDATED, KEPT), 1, {0: 0}, [CHANGED]),
    "kept or updated": (choice(KEPT, UPDATED), 1, {0: 0}, [MATRIX]),
    "updated, or added to": (choice(UPDATED, SUM), 1, {0: 0}, [CHANGED]),
    "updated under two conditions": (choice(INNER, KEPT), 1, {0: 0}, [CHANGED]),
    "updated, or another is taken": (choice(UPDATED, "stablehlo.return %y : M"), 1, {0: 0}, [CHANGED]),
    "updated, or read by a product": (
        choice(UPDATED, PRODUCT.replace("return %0", "stablehlo.return %0")),
        1,
        {},
        [CHANGED],
    ),
    "read after the update": (choice(f"{READ_AFTER}\n stablehlo.return %c : M", KEPT), 1, {0: 0}, [CHANGED + MATRIX.T]),
    "read with the updated one": (choice(READ_WITH, KEPT), 1, {}, [CHANGED + MATRIX]),
    "read after the conditional": (
        choice(UPDATED, KEPT, "%1 = stablehlo.add %0, %x : M\n return %0, %1 : M, M"),
        2,
        {1: 0},
        [CHANGED, CHANGED + MATRIX],
    ),
    "updated, or in another place": (choice(TWO, MOVED, BOTH_RESULTS, 2), 2, {1: 0}, [CHANGED, 4 * MATRIX]),
    "in another place, or updated": (choice(MOVED, TWO, BOTH_RESULTS, 2), 2, {1: 0}, [2 * MATRIX, MATRIX]),
    "elementwise": (ADD, 1, {0: 0}, [MATRIX + 2 * MATRIX]),
    "update of a slice": (SLICE, 1, {0: 0}, [np.concatenate([MATRIX[:2], 2 * MATRIX[:1], MATRIX[3:]])]),
    "carried by a loop": (LOOP.replace("KEPT", "%y"), 1, {0: 0}, [MATRIX + 200 * MATRIX]),
    "carried and kept by a loop": (LOOP.replace("KEPT", "%x"), 1, {}, [101 * MATRIX]),
    "returned as it is": ("return %x : M", 1, {0: 0}, [MATRIX]),
    "never used": ("return %y : M", 1, {0: 0}, [2 * MATRIX]),
    "operand of a product": (PRODUCT, 1, {}, [MATRIX @ (2 * MATRIX)]),
    "read by a later product": (LATER, 2, {}, [3 * MATRIX, MATRIX @ (3 * MATRIX)]),
    "transposed": (TRANSPOSE, 1, {}, [MATRIX.T]),
    "added to its transpose": (BOTH, 1, {}, [MATRIX + MATRIX.T]),
    "returned in another place": (SWAP, 2, {1: 0}, [2 * MATRIX, MATRIX]),
}


@pytest.mark.parametrize("name", CASES)
def test_pairs_and_values(name):
    body, results, pairs, expected = CASES[name]
    program = executable(body, results=results)
    assert program.aliases == pairs
    given = executable(ADD).execute([MATRIX, np.zeros_like(MATRIX)])[0]  # at a multiple of 64 bytes
    for result, wanted in zip(program.execute([given, 2 * MATRIX]), expected, strict=True):
        np.testing.assert_array_equal(result, wanted)
    np.testing.assert_array_equal(given, MATRIX)
    made = program.execute([given, 2 * MATRIX], donate=True)
    for number, (result, wanted) in enumerate(zip(made, expected, strict=True)):
        np.testing.assert_array_equal(result, wanted)
        assert (result.ctypes.data == given.ctypes.data) == (number in pairs)


def test_two_results_of_one_kernel_take_it_once():
    program = executable(TWICE, results=2)
    assert len(program.aliases) == 1
    given = executable(ADD).execute([MATRIX, np.zeros_like(MATRIX)])[0]
    total, product = program.execute([given, 2 * MATRIX], donate=True)
    np.testing.assert_array_equal(total, 3 * MATRIX)
    np.testing.assert_array_equal(product, 2 * MATRIX * MATRIX)


def test_a_donor_without_a_result_gives_to_any_that_fits():
    assert executable(LATER, donated="jax.buffer_donor = true", results=2).aliases == {}
    assert executable(ADD, donated="jax.buffer_donor = true").aliases == {0: 0}
    assert executable(ADD, donated="jax.buffer_donor = false").aliases == {}


def test_both_swap():
    """Each wants the other's place, where the other still lies at the end: each stays where it is."""
    text = """func.func @main(%x: tensor<16xf32> {tf.aliasing_output = 1 : i32},
                              %y: tensor<16xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<16xf32>, tensor<16xf32>) {
      return %x, %y : tensor<16xf32>, tensor<16xf32>
    }"""
    program = sx.compile(text)
    assert program.aliases == {0: 0, 1: 1}
    x, y = (np.full(16, n, np.float32) for n in (1, 2))
    x, y = program.execute([x, y])
    for result, wanted in zip(program.execute([x, y], donate=True), (1, 2), strict=True):
        np.testing.assert_array_equal(result, np.full(16, wanted))


def test_only_arrays_of_the_same_size():
    text = """func.func @main(%x: tensor<4xf32> {jax.buffer_donor = true}) -> tensor<2xf32> {
      %0 = stablehlo.slice %x [0:2] : (tensor<4xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }"""
    assert sx.compile(text).aliases == {}
