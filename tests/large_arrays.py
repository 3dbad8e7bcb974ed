"""Programs on arrays of more than 2^31 elements, in most families: positions that 32 bits cannot count.

`python -m tests.large_arrays` runs them all, one by one, each in a process of its own; with words behind it those whose
names have one. An argument is zeros that were never written, but for a few elements, and takes no memory; results do,
2 GiB each. The suite runs those that are cheap (`tests/ops/test_large_arrays.py`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

import stablexla as sx

Array = npt.NDArray[Any]
N = 2**31 + 67
"""Elements of an array: beyond 32 bits, and no multiple of anything."""
LATE = 2**31 + 5
"""A position that a signed integer of 32 bits does not hold."""
MOST_MEMORY = 5 << 30
ROWS, COLUMNS = 46_349, 46_339
"""A matrix of more than 2^31 elements."""


@dataclass(frozen=True)
class Case:
    """One program.

    Attributes:
        text: the program.
        arguments: makes its arguments.
        expected: for each result its shape, its elements at some positions, and how many are not 0 (None: not counted).
    """

    text: str
    arguments: Callable[[], Sequence[Array]]
    expected: Callable[[Sequence[Array]], Any]
    is_cheap: bool = False
    replicas: int = 1
    donate: bool = False


def sparse(shape: int | tuple[int, ...] = N, dtype: str = "int8", **at: int) -> Array:
    """Return zeros, with other elements at some positions: `p5=3` is 3 at position 5, `p_1=3` at the last one."""
    made = np.zeros(shape, dtype)
    for place, value in at.items():
        made.reshape(-1)[int(place[1:].replace("_", "-"))] = value
    return made


def function(signature: str, *lines: str) -> str:
    """Return a module with `main`; %0 is the first line's result, and so on, and the last one's is returned."""
    body = "\n".join(f"  %{i} = {line}" for i, line in enumerate(lines))
    result = signature.split("->")[1].strip()
    return f"func.func @main{signature} {{\n{body}\n  return %{len(lines) - 1} : {result}\n}}\n"


def single(op: str, result: str, *operands: str) -> str:
    """Return a module of one operation on the operands %0x, %1x ..., which are of these types."""
    given = ", ".join(f"%x{i}: {type_}" for i, type_ in enumerate(operands))
    return function(f"({given}) -> {result}", f"{op} : ({', '.join(operands)}) -> {result}")


def same(result: Array, at: dict[Any, int], nonzero: int | None = None) -> None:
    """Check some elements, and the number of those that are not 0."""
    flat = result.reshape(-1)
    found = {place: int(flat[place]) for place in at}
    assert found == at, f"{found}, not {at}"
    if nonzero is not None:
        count = sum(int(np.count_nonzero(flat[i : i + 2**28])) for i in range(0, flat.size, 2**28))
        assert count == nonzero, f"{count} elements are not 0, and {nonzero} should"


S8, S64 = f"tensor<{N}xi8>", f"tensor<{N}xi64>"
MATRIX = f"tensor<{ROWS}x{COLUMNS}xi8>"
BYTE = "tensor<i8>"
ZERO = f"stablehlo.constant dense<0> : {BYTE}"
CASES: dict[str, Case] = {}


def case(name: str, text: str, arguments: Callable[[], Sequence[Array]], expected: Any, **more: Any) -> None:
    CASES[name] = Case(text, arguments, expected, **more)


def reduced(name: str, element: str, op: str, init: str, result: int, is_cheap: bool = False, **at: int) -> None:
    """Add a reduction over all elements, which are converted to `element`."""
    wide, scalar = f"tensor<{N}x{element}>", f"tensor<{element}>"
    case(
        f"reduce_{name}",
        function(
            f"(%x: {S8}) -> {scalar}",
            f"stablehlo.constant dense<{init}> : {scalar}",
            f"stablehlo.convert %x : ({S8}) -> {wide}",
            f"stablehlo.reduce(%1 init: %0) applies stablehlo.{op} across dimensions = [0] : "
            f"({wide}, {scalar}) -> {scalar}",
        ),
        lambda: [sparse(**at)],
        lambda made: same(made[0], {0: result}),
        is_cheap=is_cheap,
    )


# ---- element-wise ----------------------------------------------------------------------------------------------------
case(
    "elementwise",
    function(
        f"(%x: {S8}) -> {S8}",
        f"stablehlo.negate %x : {S8}",
        f"stablehlo.abs %x : {S8}",
        f"stablehlo.compare LT, %0, %1 : ({S8}, {S8}) -> tensor<{N}xi1>",
        f"stablehlo.select %2, %0, %x : tensor<{N}xi1>, {S8}",
    ),
    lambda: [sparse(p0=3, p2147483653=5, p_1=7)],
    lambda made: same(made[0], {0: -3, 1: 0, LATE: -5, -1: -7}, 3),
)
case(
    "iota",
    function(f"() -> {S8}", f"stablehlo.iota dim = 0 : {S64}", f"stablehlo.convert %0 : ({S64}) -> {S8}"),
    list,
    lambda made: same(made[0], {0: 0, 5: 5, LATE: 5, N - 1: 66}),
)
case(
    "broadcast",
    single("stablehlo.broadcast_in_dim %x0, dims = [0]", MATRIX, f"tensor<{ROWS}xi8>"),
    lambda: [sparse(ROWS, p_1=3)],
    lambda made: same(made[0], {-1: 3, -COLUMNS: 3, -COLUMNS - 1: 0}, COLUMNS),
)
# ---- reductions ------------------------------------------------------------------------------------------------------
reduced("sum", "i64", "add", "0", 15, is_cheap=True, p0=3, p2147483653=5, p_1=7)
reduced("sum_of_f32", "f32", "add", "0.0", 15, p0=3, p2147483653=5, p_1=7)
reduced("max", "i8", "maximum", "-128", 7, p_1=7)
for name, dimension, length in (("rows", 1, ROWS), ("columns", 0, COLUMNS)):
    case(
        f"reduce_{name}",
        function(
            f"(%x: {MATRIX}) -> tensor<{length}xi8>",
            ZERO,
            f"stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [{dimension}] : "
            f"({MATRIX}, {BYTE}) -> tensor<{length}xi8>",
        ),
        lambda: [sparse((ROWS, COLUMNS), p2147483653=5, p_1=7)],
        lambda made: same(made[0], {-1: 7}, 2),
    )
case(
    "arg_max",
    f"""func.func @main(%x: {S8}) -> (tensor<i8>, tensor<i64>) {{
  %i = stablehlo.iota dim = 0 : {S64}
  %low = stablehlo.constant dense<-128> : tensor<i8>
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %r:2 = stablehlo.reduce(%x init: %low), (%i init: %zero) across dimensions = [0]
      : ({S8}, {S64}, tensor<i8>, tensor<i64>) -> (tensor<i8>, tensor<i64>)
    reducer(%a: tensor<i8>, %b: tensor<i8>) (%j: tensor<i64>, %k: tensor<i64>) {{
      %more = stablehlo.compare GT, %a, %b : (tensor<i8>, tensor<i8>) -> tensor<i1>
      %same = stablehlo.compare EQ, %a, %b : (tensor<i8>, tensor<i8>) -> tensor<i1>
      %less = stablehlo.compare LT, %j, %k : (tensor<i64>, tensor<i64>) -> tensor<i1>
      %tie = stablehlo.and %same, %less : tensor<i1>
      %first = stablehlo.or %more, %tie : tensor<i1>
      %v = stablehlo.select %first, %a, %b : tensor<i1>, tensor<i8>
      %n = stablehlo.select %first, %j, %k : tensor<i1>, tensor<i64>
      stablehlo.return %v, %n : tensor<i8>, tensor<i64>
    }}
  return %r#0, %r#1 : tensor<i8>, tensor<i64>
}}
""",
    lambda: [sparse(p7=3, p2147483653=5, p_1=5)],
    lambda made: (same(made[0], {0: 5}), same(made[1], {0: LATE})),
)
# ---- movement --------------------------------------------------------------------------------------------------------
case(
    "slice",
    function(f"(%x: {S8}) -> tensor<5xi8>", f"stablehlo.slice %x [{N - 9}:{N}:2] : ({S8}) -> tensor<5xi8>"),
    lambda: [sparse(p_1=7, p_3=5)],
    lambda made: same(made[0], {3: 5, 4: 7}, 2),
    is_cheap=True,
)
case(
    "dynamic_slice",
    single("stablehlo.dynamic_slice %x0, %x1, sizes = [5]", "tensor<5xi8>", S8, "tensor<i64>"),
    lambda: [sparse(p2147483653=5, p_1=7), np.int64(LATE - 1)],
    lambda made: same(made[0], {1: 5}, 1),
    is_cheap=True,
)
case(
    "dynamic_slice_clamped",
    single("stablehlo.dynamic_slice %x0, %x1, sizes = [5]", "tensor<5xi8>", S8, "tensor<ui32>"),
    lambda: [sparse(p2147483653=5, p_1=7), np.uint32(2**32 - 1)],
    lambda made: same(made[0], {4: 7}, 1),
    is_cheap=True,
)
case(
    "dynamic_update_slice",
    f"""func.func @main(%x: {S8} {{tf.aliasing_output = 0 : i32}}, %v: tensor<3xi8>, %i: tensor<i64>) -> {S8} {{
  %0 = stablehlo.dynamic_update_slice %x, %v, %i : ({S8}, tensor<3xi8>, tensor<i64>) -> {S8}
  return %0 : {S8}
}}
""",
    lambda: [aligned(p_1=7), np.array([1, 2, 3], np.int8), np.int64(LATE)],
    lambda made: same(made[0], {LATE: 1, LATE + 2: 3, -1: 7}),
    is_cheap=True,
    donate=True,
)
SHORT = f"tensor<{N - 70}xi8>"
case(
    "pad",
    function(
        f"(%x: {SHORT}) -> {S8}",
        ZERO,
        f"stablehlo.pad %x, %0, low = [60], high = [10], interior = [0] : ({SHORT}, {BYTE}) -> {S8}",
    ),
    lambda: [sparse(N - 70, p_1=7)],
    lambda made: same(made[0], {-11: 7}, 1),
)
case(
    "concatenate",
    single("stablehlo.concatenate %x0, %x1, dim = 0", S8, f"tensor<{2**30}xi8>", f"tensor<{N - 2**30}xi8>"),
    lambda: [sparse(2**30, p_1=3), sparse(N - 2**30, p0=5, p_1=7)],
    lambda made: same(made[0], {2**30 - 1: 3, 2**30: 5, -1: 7}, 3),
)
case(
    "reverse",
    function(f"(%x: {S8}) -> {S8}", f"stablehlo.reverse %x, dims = [0] : {S8}"),
    lambda: [sparse(p1=3, p2147483653=5)],
    lambda made: same(made[0], {-2: 3, N - 1 - LATE: 5}, 2),
)
case(
    "transpose",
    single("stablehlo.transpose %x0, dims = [1, 0]", f"tensor<{COLUMNS}x{ROWS}xi8>", MATRIX),
    lambda: [sparse((ROWS, COLUMNS), p2147483653=5, p_2=7)],
    lambda made: same(made[0], {LATE % COLUMNS * ROWS + LATE // COLUMNS: 5, -1 - ROWS: 7}, 2),
)
# ---- indexing --------------------------------------------------------------------------------------------------------
GATHERED = "offset_dims = [1], collapsed_slice_dims = [], start_index_map = [0], index_vector_dim = 1"
GATHER = (
    f'"stablehlo.gather"(%x0, %x1) {{dimension_numbers = #stablehlo.gather<{GATHERED}>, slice_sizes = array<i64: 1>}}'
)
case(
    "gather",
    single(GATHER, "tensor<4x1xi8>", S8, "tensor<4x1xi64>"),
    lambda: [sparse(p0=3, p2147483653=5, p_1=7), np.array([[-4], [LATE], [N], [LATE + 1]], np.int64)],
    lambda made: same(made[0], {0: 3, 1: 5, 2: 7, 3: 0}),
    is_cheap=True,
)
case(
    "gather_of_many",
    single(GATHER, f"tensor<{N}x1xi8>", "tensor<9xi8>", f"tensor<{N}x1xi8>"),
    lambda: [np.arange(9, dtype=np.int8), sparse((N, 1), p2147483653=5, p_1=7)],
    lambda made: same(made[0], {LATE: 5, -1: 7}, 2),
)
SCATTERED = (
    "#stablehlo.scatter<update_window_dims = [], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
    "index_vector_dim = 1>"
)


def scatter(size: int, count: int, index: str, aliasing: str = "") -> str:
    x, i, u = f"tensor<{size}xi8>", f"tensor<{count}x1x{index}>", f"tensor<{count}xi8>"
    return f"""func.func @main(%x: {x} {aliasing}, %i: {i}, %u: {u}) -> {x} {{
  %0 = "stablehlo.scatter"(%x, %i, %u) ({{
    ^bb0(%a: tensor<i8>, %b: tensor<i8>):
      %s = stablehlo.add %a, %b : tensor<i8>
      stablehlo.return %s : tensor<i8>
    }}) {{scatter_dimension_numbers = {SCATTERED}}} : ({x}, {i}, {u}) -> {x}
  return %0 : {x}
}}
"""


case(
    "scatter",
    scatter(N, 4, "i64", "{tf.aliasing_output = 0 : i32}"),
    lambda: [aligned(p_1=7), np.array([[0], [LATE], [N], [-1]], np.int64), np.array([1, 2, 3, 4], np.int8)],
    lambda made: same(made[0], {0: 1, LATE: 2, -1: 7}),
    is_cheap=True,
    donate=True,
)
case(
    "scatter_of_many",
    scatter(9, N, "i8"),
    lambda: [np.zeros(9, np.int8), sparse((N, 1), p2147483653=5, p_1=7), sparse(p3=1, p2147483653=2, p_1=3)],
    lambda made: same(made[0], {0: 1, 5: 2, 7: 3}, 3),
)
# ---- contractions ----------------------------------------------------------------------------------------------------
case(
    "dot",
    single("stablehlo.dot_general %x0, %x1, contracting_dims = [0] x [0]", "tensor<i32>", S8, S8),
    lambda: [sparse(p0=3, p2147483653=5, p_1=7), sparse(p1=3, p2147483653=2, p_1=7)],
    lambda made: same(made[0], {0: 59}),
)
PRODUCT = "stablehlo.dot_general %x0, %x1, contracting_dims = [1] x [0]"
case(
    "dot_of_matrix",
    single(PRODUCT, f"tensor<{ROWS}x2xi32>", MATRIX, f"tensor<{COLUMNS}x2xi8>"),
    lambda: [sparse((ROWS, COLUMNS), p_1=7), sparse((COLUMNS, 2), p_1=2, p_2=3)],
    lambda made: same(made[0], {-1: 14, -2: 21}, 2),
)
case(
    "outer_product",
    single(PRODUCT, MATRIX, f"tensor<{ROWS}x1xi8>", f"tensor<1x{COLUMNS}xi8>"),
    lambda: [sparse((ROWS, 1), p_1=7), sparse((1, COLUMNS), p_1=3, p0=2)],
    lambda made: same(made[0], {-1: 21, -COLUMNS: 14}, 2),
)


def convolution(image: str, kernel: str, result: str, padding: str) -> str:
    """Return a convolution of images with their one feature last."""
    spatial = ", ".join(str(d) for d in range(image.count("x") - 1))
    numbers = f"[b, {spatial}, f]x[{spatial}, i, o]->[b, {spatial}, f]"
    groups = "batch_group_count = 1 : i64, feature_group_count = 1 : i64"
    return single(
        f"stablehlo.convolution(%x0, %x1) dim_numbers = {numbers}, window = {{pad = {padding}}} {{{groups}}}",
        f"tensor<{result}xi8>",
        f"tensor<{image}xi8>",
        f"tensor<{kernel}xi8>",
    )


case(
    "convolution",
    convolution(f"1x{N}x1", "3x1x1", f"1x{N}x1", "[[1, 1]]"),
    lambda: [sparse((1, N, 1), p2147483653=5, p_1=7), np.array([1, 2, 3], np.int8).reshape(3, 1, 1)],
    lambda made: same(made[0], {LATE - 1: 15, LATE: 10, LATE + 1: 5, -1: 14, -2: 21}, 5),
)
case(
    "convolution_of_long_lines",
    convolution(f"1x3x{2**30 + 9}x1", "3x1x1x1", f"1x1x{2**30 + 9}x1", "[[0, 0], [0, 0]]"),
    lambda: [sparse((1, 3, 2**30 + 9, 1), p8=1, p_1=7), np.array([1, 2, 3], np.int8).reshape(3, 1, 1, 1)],
    lambda made: same(made[0], {8: 1, -1: 21}, 2),
)
# ---- windows and scans -----------------------------------------------------------------------------------------------


def window(x: str, init: str, op: str, size: int, result: str, attributes: str) -> str:
    return f"""func.func @main(%x: {x}) -> {result} {{
  %c = stablehlo.constant dense<{init}> : tensor<i8>
  %0 = "stablehlo.reduce_window"(%x, %c) ({{
    ^bb0(%a: tensor<i8>, %b: tensor<i8>):
      %s = stablehlo.{op} %a, %b : tensor<i8>
      stablehlo.return %s : tensor<i8>
    }}) {{window_dimensions = array<i64: {size}>, {attributes}}} : ({x}, tensor<i8>) -> {result}
  return %0 : {result}
}}
"""


case(
    "reduce_window",
    window(S8, "-128", "maximum", 3, S8, "padding = dense<[[1, 1]]> : tensor<1x2xi64>"),
    lambda: [sparse(p2147483653=5, p_1=7)],
    lambda made: same(made[0], {LATE - 1: 5, LATE + 1: 5, -2: 7, -1: 7}, 5),
)
case(
    "running_sum",
    window(S8, "0", "add", N, S8, f"padding = dense<[[{N - 1}, 0]]> : tensor<1x2xi64>"),
    lambda: [sparse(p2147483653=5, p_1=7)],
    lambda made: same(made[0], {LATE - 1: 0, LATE: 5, -2: 5, -1: 12}, N - LATE),
)
case(
    "select_and_scatter",
    f"""func.func @main(%x: {S8}, %s: tensor<{N // 2}xi8>) -> {S8} {{
  %c = stablehlo.constant dense<0> : tensor<i8>
  %0 = "stablehlo.select_and_scatter"(%x, %s, %c) ({{
    ^bb0(%a: tensor<i8>, %b: tensor<i8>):
      %p = stablehlo.compare GE, %a, %b : (tensor<i8>, tensor<i8>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }}, {{
    ^bb0(%a: tensor<i8>, %b: tensor<i8>):
      %t = stablehlo.add %a, %b : tensor<i8>
      stablehlo.return %t : tensor<i8>
    }}) {{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}}
    : ({S8}, tensor<{N // 2}xi8>, tensor<i8>) -> {S8}
  return %0 : {S8}
}}
""",
    lambda: [sparse(p2147483653=5), sparse(N // 2, p1073741826=3, p_1=2)],
    lambda made: same(made[0], {LATE: 3, N - 3: 2}, 2),
)
# ---- control flow, random numbers, hosts, devices --------------------------------------------------------------------
case(
    "while",
    f"""func.func @main(%x: {S8} {{tf.aliasing_output = 0 : i32}}) -> {S8} {{
  %first = stablehlo.constant dense<{LATE}> : tensor<i64>
  %last = stablehlo.constant dense<{N}> : tensor<i64>
  %one = stablehlo.constant dense<1> : tensor<i64>
  %v = stablehlo.constant dense<3> : tensor<1xi8>
  %r:2 = stablehlo.while(%i = %first, %a = %x) : tensor<i64>, {S8}
    cond {{
      %p = stablehlo.compare LT, %i, %last : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }} do {{
      %b = stablehlo.dynamic_update_slice %a, %v, %i : ({S8}, tensor<1xi8>, tensor<i64>) -> {S8}
      %j = stablehlo.add %i, %one : tensor<i64>
      stablehlo.return %j, %b : tensor<i64>, {S8}
    }}
  return %r#1 : {S8}
}}
""",
    lambda: [aligned(p_1=7)],
    lambda made: same(made[0], {LATE - 1: 0, LATE: 3, -1: 3}),
    is_cheap=True,
    donate=True,
)
case(
    "random",
    f"""func.func @main(%s: tensor<2xui64>) -> tensor<{N}xui8> {{
  %0, %1 = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<{N}xui8>)
  return %1 : tensor<{N}xui8>
}}
""",
    lambda: [np.array([1, 2], np.uint64)],
    lambda made: _looks_random(made[0]),
)
case(
    "reduce_scatter",
    f"""func.func @main(%x: tensor<{2 * (N // 2)}xi8>) -> tensor<{N // 2}xi8> {{
  %0 = "stablehlo.reduce_scatter"(%x) ({{
    ^bb0(%a: tensor<i8>, %b: tensor<i8>):
      %s = stablehlo.add %a, %b : tensor<i8>
      stablehlo.return %s : tensor<i8>
    }}) {{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}}
    : (tensor<{2 * (N // 2)}xi8>) -> tensor<{N // 2}xi8>
  return %0 : tensor<{N // 2}xi8>
}}
""",
    lambda: [sparse(2 * (N // 2), p1=3, p_1=7)],
    lambda made: (same(made[0], {1: 6}, 1), same(made[1], {-1: 14}, 1)),
    replicas=2,
)


def aligned(**at: int) -> Array:
    """Return zeros that can be donated: aligned to 64 bytes."""
    made = np.zeros(N + 64, np.int8)
    start = -made.ctypes.data % 64
    made = made[start : start + N]
    for place, value in at.items():
        made[int(place[1:].replace("_", "-"))] = value
    return made


def _looks_random(made: Array) -> None:
    for first in (0, 2**30, 2**31, N - 1000):
        part = made[first : first + 1000]
        assert len(np.unique(part)) > min(200, len(part) // 2)
    assert not np.array_equal(made[:67], made[2**31 : 2**31 + 67])


def run(name: str) -> None:
    """Run a case in this process."""
    chosen = CASES[name]
    executable = sx.compile(chosen.text, num_replicas=chosen.replicas)
    arguments = chosen.arguments()
    if chosen.replicas > 1:
        made = [row[0] for row in executable.execute_replicated([arguments] * chosen.replicas)]
    else:
        made = executable.execute(arguments, donate=chosen.donate)
    chosen.expected(made)


def main(names: Sequence[str]) -> int:
    """Run the cases of these names, or all, each in a child."""
    failed = 0
    for name in CASES:
        if names and not any(word in name for word in names):
            continue
        start = perf_counter()
        script = f"from tests.large_arrays import *; sx.set_memory_limit(MOST_MEMORY); run({name!r})"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=1800)
        failed += done.returncode != 0
        last = done.stderr.strip().splitlines()[-1] if done.returncode else "right"
        print(f"{name:<28} {perf_counter() - start:6.1f} s  {last}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
