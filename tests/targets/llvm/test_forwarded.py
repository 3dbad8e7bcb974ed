"""Kernels that forward their calls to a function: how they are read, what the list says in their place, and results."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.dialects.symbols import functions_of
from stablexla.targets.llvm import early_code
from stablexla.targets.llvm.call_list import MOST_ARGUMENTS, RUN_CALLS, list_calls
from stablexla.targets.llvm.forwarded import MOST_NUMBERS, Argument, Forwarded, Function, Table
from stablexla.targets.llvm.library import Library
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import _runtime

# Two buffers and an integer; a table of numbers, and one with addresses.
BODY = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c-7 = arith.constant -7 : index
    %numbers = memref.alloca() : memref<4xindex>
    memref.store %c0, %numbers[%c0] : memref<4xindex>
    %some = arith.constant dense<[-1, 2, -3]> : vector<3xindex>
    vector.store %some, %numbers[%c1] : memref<4xindex>, vector<3xindex>
    %mixed = memref.alloca() : memref<3xindex>
    %address = memref.extract_aligned_pointer_as_index %y : memref<9xf32> -> index
    memref.store %address, %mixed[%c1] : memref<3xindex>
    memref.store %c-7, %mixed[%c0] : memref<3xindex>
    memref.store %c0, %mixed[%c2] : memref<3xindex>
    %function = func.constant @row : (index) -> ()
    %pointer = builtin.unrealized_conversion_cast %function : (index) -> () to !llvm.ptr
    %wide = llvm.ptrtoint %pointer : !llvm.ptr to i64
    %row = arith.index_cast %wide : i64 to index
    %place = memref.extract_aligned_pointer_as_index %mixed : memref<3xindex> -> index
    call @driver(%x, %c-7, %i, %numbers, %row, %place, %low, %high)
      : (memref<4xf32>, index, index, memref<4xindex>, index, index, index, index) -> ()
"""
CALL = BODY[BODY.index("    call") :]
TYPES = "memref<4xf32>, memref<9xf32>, index, index, index"
MODULE = f"""
func.func private @row(index)
func.func private @driver(memref<4xf32>, index, index, memref<4xindex>, index, index, index, index)
func.func private @value() -> index
func.func private @kernel_impl(
    %x: memref<4xf32>, %y: memref<9xf32>, %i: index, %low: index, %high: index) {{
{BODY}
    return
}}"""
MAIN = f"""
func.func @main(%x: memref<64xi8>, %y: memref<64xi8>, %at: memref<1xindex>) {{
    %zero = arith.constant 0 : index
    %n = memref.load %at[%zero] : memref<1xindex>
    %items = arith.constant 5 : index
    %eight = arith.constant 8 : index
    %a = memref.view %x[%eight][] : memref<64xi8> to memref<4xf32>
    %b = memref.view %y[%zero][] : memref<64xi8> to memref<9xf32>
    call @kernel_impl(%a, %b, %n, %zero, %items) : ({TYPES}) -> ()
    return
}}"""


def with_note(text: str) -> ir.Module:
    """Parse a module, and note what its kernel forwards its calls to."""
    module = ir.Module.parse(text)
    function = functions_of(module)["kernel_impl"]
    found = Forwarded.of(function)
    assert found is not None
    found.note(function)
    assert repr(Forwarded.noted(function)) == repr(found)
    return module


def kernel(body: str) -> Forwarded | None:
    with upstream_context():
        module = ir.Module.parse(MODULE.replace(BODY, body))
        assert module.operation.verify()
        return Forwarded.of(functions_of(module)["kernel_impl"])


def test_a_kernel_is_read() -> None:
    found = kernel(BODY)
    assert found is not None
    assert found.function == "driver"
    assert found.names == {"driver", "row"}
    x, seven, i, numbers, row, mixed = found.arguments
    assert (x, seven, i, row) == (Argument(0), -7, Argument(2), Function("row"))
    assert isinstance(numbers, Table)
    assert numbers.is_constant
    assert numbers.entries == [0, -1, 2, -3]
    assert isinstance(mixed, Table)
    assert not mixed.is_constant
    assert mixed.entries == [-7, Argument(1), 0]


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        ("", ""),  # no call
        (CALL, CALL + CALL),
        (CALL, CALL + "    memref.store %c0, %mixed[%c1] : memref<3xindex>\n"),
        (CALL, CALL.replace("%low, %high)", "%high, %low)")),
        (CALL, CALL.replace("%low, %high)", "%c0, %high)")),
        (CALL, CALL.replace("%low, %high)", "%low, %c1)")),
        (CALL, CALL.replace("%i, ", "%low, ")),
        ("memref.store %address, %mixed[%c1]", "memref.store %low, %mixed[%c1]"),
        ("memref.store %address, %mixed[%c1]", "memref.store %address, %mixed[%i]"),
        ("%c-7 = arith.constant -7 : index", "%c-7 = func.call @value() : () -> index"),
        ("%c-7 = arith.constant -7 : index", "%c-7 = arith.addi %i, %i : index"),
        ("    memref.store %c0, %mixed[%c2] : memref<3xindex>\n", ""),  # memory that the function may write
        ("%y : memref<9xf32> -> index", "%y : memref<9xf32> -> index\n%v = memref.load %y[%c0] : memref<9xf32>"),
    ],
)
def test_a_kernel_that_does_more_is_not(there: str, instead: str) -> None:
    assert kernel(BODY.replace(there or CALL, instead)) is None


def test_a_kernel_that_takes_a_narrow_number_is_not() -> None:
    """The rest of a register may hold anything."""
    with upstream_context():
        text = MODULE.replace("%i: index", "%i: i32").replace(
            "%c0 = arith", "%j = arith.index_cast %i : i32 to index\n%c0 = arith"
        )
        module = ir.Module.parse(text.replace("%c-7, %i", "%c-7, %j"))
        assert Forwarded.of(functions_of(module)["kernel_impl"]) is None


@pytest.mark.parametrize(("items", "is_listed"), [(1, True), (2, False)])
def test_a_function_without_a_range_is_called_for_one_item(items: int, is_listed: bool) -> None:
    text = (
        (MODULE + MAIN).replace("%low, %high)", "%c1, %i)").replace("constant 5 : index", f"constant {items} : index")
    )
    with upstream_context():
        module = with_note(text)
        found = Forwarded.noted(functions_of(module)["kernel_impl"])
        assert found.is_of_one
        assert found.arguments[-2:] == [1, Argument(2)]
        list_calls(module)
        assert module.operation.verify()
        assert bool(numbers_of(module)) == is_listed


@pytest.mark.parametrize(("length", "is_read"), [(MOST_NUMBERS, True), (MOST_NUMBERS + 1, False)])
def test_tables_with_addresses_are_short(length: int, is_read: bool) -> None:
    """Tables of numbers alone may have any length."""
    lengths = {"some": length + 100, "rest": length}
    filled = "".join(
        f"    %{name}_all = arith.constant dense<5> : vector<{count}xindex>\n"
        f"    %{name}_table = memref.alloca() : memref<{count}xindex>\n"
        f"    vector.store %{name}_all, %{name}_table[%c0] : memref<{count}xindex>, vector<{count}xindex>\n"
        for name, count in lengths.items()
    )
    casts = f"""
    memref.store %address, %rest_table[%c1] : memref<{length}xindex>
    %n4 = builtin.unrealized_conversion_cast %some_table : memref<{length + 100}xindex> to memref<4xindex>
    %at = memref.extract_aligned_pointer_as_index %rest_table : memref<{length}xindex> -> index
"""
    call = CALL.replace("%numbers", "%n4").replace("%place", "%at")
    assert (kernel(BODY.replace(CALL, filled + casts + call)) is not None) == is_read


def test_kernels_of_other_forms_are_not() -> None:
    """Of several blocks, and with constants that are no numbers of 64 bits."""
    with upstream_context():
        text = MODULE.replace(CALL, f"    cf.br ^next\n  ^next:\n{CALL}")
        module = ir.Module.parse(text)
        assert Forwarded.of(functions_of(module)["kernel_impl"]) is None
    wide = "    %wide_ones = arith.constant dense<1> : vector<4xi128>\n"
    assert kernel(wide + BODY) is None


def numbers_of(module: ir.Module) -> list[int]:
    """Return the numbers of the list."""
    for view in module.body.operations:
        if "sym_name" in view.attributes and view.attributes["sym_name"].value == "stablexla_calls":
            return list(ir.DenseIntElementsAttr(view.attributes["value"]))
    return []


def test_the_list_says_what_the_kernel_did() -> None:
    with upstream_context():
        module = with_note(MODULE + MAIN)
        list_calls(module)
        assert module.operation.verify()
        assert "kernel_impl" not in functions_of(module)
        driver, items, grain, _, count, *arguments = numbers_of(module)
        text = str(module)
    assert (items, grain, count) == (5, 0, 6)
    assert arguments == [0, 8, -1, -7, -2, 0, -4, 4, 0, -1, 2, -3, -3, 1 - driver, -5, 3, -1, -7, 1, 0, -1, 0]
    assert text.count("llvm.mlir.addressof @driver") == text.count("llvm.mlir.addressof @row") == 1


@pytest.mark.parametrize(
    "other",
    [
        "func.func @other(%i: index) {\n  call @row(%i) : (index) -> ()\n  return\n}",  # code that stays refers to it
        "func.func private @row(%i: index) {\n  return\n}",  # it is here
    ],
)
def test_functions_that_are_used_here_stay(other: str) -> None:
    text = MODULE + MAIN + other
    if "private @row" in other:
        text = text.replace("func.func private @row(index)\n", "")
    with upstream_context():
        module = with_note(text)
        list_calls(module)
        assert module.operation.verify()
        assert "kernel_impl" in functions_of(module)
        assert numbers_of(module) == []


@pytest.mark.parametrize(("more", "is_listed"), [(MOST_ARGUMENTS - 6, True), (MOST_ARGUMENTS - 5, False)])
def test_functions_of_too_many_arguments_are_called(more: int, is_listed: bool) -> None:
    text = (MODULE + MAIN).replace("(%x, %c-7", "(%x" + ", %c-7" * (1 + more))
    text = text.replace("(memref<4xf32>, index", "(memref<4xf32>" + ", index" * (1 + more))
    with upstream_context():
        module = with_note(text)
        list_calls(module)
        assert module.operation.verify()
        assert bool(numbers_of(module)) == is_listed


@pytest.mark.parametrize(("more", "length"), [(0, 4), (MOST_ARGUMENTS - 6, MOST_NUMBERS)])
def test_what_the_runtime_passes(more: int, length: int) -> None:
    """All kinds of arguments, in a call and in a parallel-for: each range of items gets them once."""
    seen: list[tuple[list[int], int, int]] = []

    def note(address: int, number: int, computed: int, function: int, numbers: int, mixed: int, *rest: int) -> None:
        tables = [list((ctypes.c_int64 * n).from_address(table)) for table, n in ((numbers, 3), (mixed, length))]
        *others, low, high = rest
        seen.append(([address, number, computed, function, *itertools.chain(*tables), *others], low, high))

    i64 = ctypes.c_int64
    function = ctypes.CFUNCTYPE(None, *[i64] * (8 + more))(note)
    address = ctypes.cast(function, ctypes.c_void_p).value
    buffer = (i64 * 4)()
    cell = ctypes.c_void_p(ctypes.addressof(buffer))
    functions = (ctypes.c_void_p * 2)(None, address)
    cells = (ctypes.c_void_p * 1)(ctypes.addressof(cell))
    computed = (i64 * 2)(11, -12)
    arguments = [0, 8, -1, -7, -2, 1, -3, 1, -4, 3, 1, -2, 3, -5, length, 0, 16, -2, 0, -3, 1, -1, 2**62]
    for number in [*range(length - 4), *range(more)]:
        arguments += [-1, number]
    calls = [1, 5, 0, 0, 6 + more, *arguments, 1, 6, 2, 0, 6 + more, *arguments]
    run = ctypes.CDLL(_runtime.__file__).stablexla_run_calls
    run.argtypes, run.restype = [ctypes.c_void_p, ctypes.c_void_p, i64, ctypes.c_void_p, ctypes.c_void_p], None
    run(functions, (i64 * len(calls))(*calls), len(calls), cells, computed)
    at = ctypes.addressof(buffer)
    passed = [at + 8, -7, -12, address, 1, -2, 3, at + 16, 11, address, 2**62, *range(length - 4), *range(more)]
    assert all(values == passed for values, _, _ in seen)
    first, *others = [(low, high) for _, low, high in seen]
    assert first == (0, 5)
    assert sorted(item for low, high in others for item in range(low, high)) == list(range(6))


# ---- programs --------------------------------------------------------------------------------------------------------


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every kernel's code is made early, in a part of its own, and kept in an empty library."""
    two = type("Two", (), {"num_threads": max(2, early_code.host_target().num_threads)})
    monkeypatch.setattr(early_code, "host_target", lambda: two)
    monkeypatch.setattr(early_code.MOST_OF_SMALL, "usual", 3)
    monkeypatch.setattr(early_code.LEAST_KERNELS, "usual", 1)
    monkeypatch.setattr(early_code, "PART", 1)
    monkeypatch.setattr(early_code, "LIBRARY", Library())
    with knobs.scoped(kept_kernels=True):
        yield


def perceptron(x: Any, y: Any, z: Any, n: Any) -> Any:
    """Products with an epilogue, without one, in a loop and in a branch, and of a part at a computed place."""
    h = jnp.tanh(x @ y + z)
    part = jax.lax.dynamic_slice(h, (n, 0), (48, 301)) @ y.T
    h = jax.lax.fori_loop(0, n, lambda _, h: jnp.sin(h @ y.T @ y * 0.01), h)
    h = jax.lax.cond(n > 2, lambda h: h @ y.T, lambda h: h @ y.T + 1, h)
    return h, part, jnp.tanh(h @ y + z)


def network(x: Any, y: Any, z: Any, n: Any) -> Any:
    """Convolutions with an epilogue and without, and one whose result is added to another's."""
    x, weights = x.reshape(4, 24, 25, 16), y[:, :144].reshape(-1)[: 9 * 16 * 32].reshape(3, 3, 16, 32)

    def conv(x: Any, weights: Any, strides: int = 1) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, weights, (strides, strides), "SAME", dimension_numbers=numbers)

    h = jax.nn.relu(conv(x, weights) + z[:32])
    back = conv(h, jnp.swapaxes(weights, 2, 3))
    return back + x, conv(h, jnp.swapaxes(weights, 2, 3), 2), jnp.tanh(conv(back, weights) + h)


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("function", [perceptron, network])
def test_the_same_results_as_by_code(monkeypatch: pytest.MonkeyPatch, function: Any) -> None:
    """Also by what is kept, and where one of the kernels is kept and another is new."""
    draw = np.random.default_rng(1)
    shapes = ((64, 600), (600, 301), (301,))
    arguments = [*(draw.standard_normal(shape, np.float32) * np.float32(0.1) for shape in shapes), np.int32(3)]
    text = jax.jit(function, keep_unused=True).lower(*arguments).as_text()
    read = Forwarded.of
    forwarding: list[Forwarded | None] = []
    monkeypatch.setattr(Forwarded, "of", staticmethod(lambda op: (forwarding.append(read(op)), forwarding[-1])[1]))
    made = [sx.compile(text)]
    assert sum(each is not None for each in forwarding) >= 2
    forwarding.clear()
    made.append(sx.compile(text))
    assert forwarding == []  # all are kept
    made.append(sx.compile(text.replace("stablehlo.tanh", "stablehlo.sine", 1)))
    files = [b"".join(each._function.keep_alive.object_files()) for each in made]
    assert all(RUN_CALLS.encode() in each for each in files)
    monkeypatch.setattr(Forwarded, "of", staticmethod(lambda op: None))
    with knobs.scoped(kept_kernels=False):
        whole = [sx.compile(text), sx.compile(text.replace("stablehlo.tanh", "stablehlo.sine", 1))]
    for one, other in zip(made, (whole[0], whole[0], whole[1]), strict=True):
        for found, expected in zip(one.execute(arguments), other.execute(arguments), strict=True):
            np.testing.assert_array_equal(found, expected)
    for found, expected in zip(made[0].execute(arguments), jax.jit(function)(*arguments), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("loops", [False, True])
def test_a_kernel_that_is_called_in_a_loop_has_code(monkeypatch: pytest.MonkeyPatch, loops: bool) -> None:
    """It is made beside the others', not with main's."""
    taken: list[str] = []
    moved = early_code.EarlyCode._moved
    monkeypatch.setattr(
        early_code.EarlyCode,
        "_moved",
        lambda self, chosen: (taken.extend(s.name for s in chosen), moved(self, chosen))[1],
    )

    def function(x: Any, y: Any, n: Any) -> Any:
        z = jnp.sin(x @ y)
        return jax.lax.fori_loop(0, n, lambda _, x: x @ z + x, x) if loops else z

    x, y = np.random.default_rng(1).standard_normal((2, 300, 300), np.float32) * np.float32(0.05)
    with knobs.scoped(kept_kernels=False):
        made = sx.compile(jax.jit(function, keep_unused=True).lower(x, y, np.int32(3)).as_text())
    np.testing.assert_allclose(made(x, y, np.int32(3)), jax.jit(function)(x, y, 3), rtol=1e-3, atol=1e-3)
    assert any(name.startswith("stablexla_epilogue") for name in taken)
    in_loop = [f"contraction_1_impl{phase}" for phase in ("_pack", "")]
    assert [name for name in taken if name.startswith("contraction")] == in_loop * loops
