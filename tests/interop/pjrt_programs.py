"""Programs of JAX on the platform stablexla, each beside XLA's CPU in the same process; run by `test_pjrt.py`.

Prints a line of JSON for each check: its name, and what went wrong, or an empty string.
"""

from __future__ import annotations

import _thread
import ctypes
import json
import os
import signal
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from itertools import permutations, product
from typing import Any

os.environ["JAX_PLATFORMS"] = "stablexla,cpu"
os.environ["STABLEXLA_NUM_DEVICES"] = "4"

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback, serialize_executable
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.layout import Format, Layout, with_layout_constraint
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from stablexla.interop.jax import jit

CHECKS: dict[str, Callable[[], None]] = {}
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def same(function: Callable[..., Any], *arguments: Any, rtol: float = 1e-6) -> None:
    """Compare a function's results here with those of XLA's CPU."""
    ours = jax.jit(function)(*jax.device_put(arguments, jax.devices()[0]))
    theirs = jax.jit(function)(*jax.device_put(arguments, jax.devices("cpu")[0]))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.dtype == b.dtype
        assert {d.client.platform_version for d in a.devices()} == {jax.devices()[0].client.platform_version}
        wide = np.float64 if jnp.issubdtype(a.dtype, jnp.floating) else a.dtype
        np.testing.assert_allclose(np.asarray(a).astype(wide), np.asarray(b).astype(wide), rtol=rtol, atol=rtol)


@check
def devices() -> None:
    assert [device.id for device in jax.devices()] == [0, 1, 2, 3]
    assert "stablexla" in jax.devices()[0].client.platform_version
    kinds, theirs = ([m.kind for m in each[0].addressable_memories()] for each in (jax.devices(), jax.devices("cpu")))
    assert kinds == theirs == ["device", "pinned_host", "unpinned_host"]
    assert jax.devices()[0].default_memory().kind == "device"
    assert jax.devices()[0].memory_stats()["bytes_in_use"] >= 0


@check
def checks_of_sharded_programs() -> None:
    mesh = jax.make_mesh((4,), ("d",))
    x = jax.device_put(jnp.array([1.0, 2.0, -1.0, 4.0]), NamedSharding(mesh, PartitionSpec("d")))
    finding = jit(lambda x: jnp.log(x) * 2).check(x)
    assert finding is not None
    assert (finding.operation, finding.kind, finding.index) == ("stablehlo.log", "nan", (2,)), finding


@check
def arithmetic() -> None:
    same(lambda x: (jnp.tanh(x) @ x.T, x.sum(0), x > 0, x.astype(jnp.int8)), X)


@check
def gradients_and_control() -> None:
    same(jax.grad(lambda x: jnp.sin(x).sum()), X)
    same(lambda x: jax.lax.scan(lambda c, row: (c + row, c * row), jnp.zeros(4), x), X)
    same(jax.vmap(lambda x: jax.lax.cond(x > 0, lambda: x, lambda: -x)), X[0])
    same(lambda n: jax.lax.while_loop(lambda s: s < 100, lambda s: s * 2, n), np.int32(3))


@check
def random_numbers() -> None:
    same(lambda seed: jax.random.normal(jax.random.key(seed), (3, 5)), np.uint32(7))
    same(lambda seed: jax.random.key_data(jax.random.split(jax.random.key(seed))), np.uint32(7))


@check
def transforms_and_linear_algebra() -> None:
    same(jnp.fft.fft, X, rtol=1e-5)
    same(lambda x: jnp.linalg.svd(x, compute_uv=False), X, rtol=1e-5)
    same(lambda x: jnp.linalg.solve(x @ x.T + jnp.eye(3), x), X, rtol=1e-4)


@check
def element_types() -> None:
    for name in ("bool", "int16", "uint64", "float16", "bfloat16", "float64", "complex64", "int4", "float8_e4m3fn"):
        with jax.enable_x64(True):
            dtype = jnp.dtype(name)
            x = np.arange(6).reshape(2, 3).astype(dtype)
            np.testing.assert_array_equal(np.asarray(jax.device_put(x, jax.devices()[0])), x)
            same(lambda x: jnp.concatenate([x, x[::-1]]), x)
    same(lambda x: x * (2 + 0j), X)  # a constant that the bindings cannot return


@check
def odd_arrays() -> None:
    for array in (X.T, X[:, ::2], X[::-1], np.float32(3), np.zeros((0, 3), np.float32), np.ones((2, 1, 3))[:, :, ::-1]):
        np.testing.assert_array_equal(
            np.asarray(jax.device_put(array, jax.devices()[1])), np.asarray(array, np.float32)
        )


@check
def donation() -> None:
    double = jax.jit(lambda x: x * 2, donate_argnums=0)
    x = jax.jit(lambda: jnp.ones((64, 64)))()
    address = x.unsafe_buffer_pointer()
    y = double(x)
    assert x.is_deleted()
    assert y.unsafe_buffer_pointer() == address
    np.testing.assert_array_equal(y, np.full((64, 64), 2))
    view = np.asarray(y)  # somebody else's: it must stay as it is
    z = double(y)
    assert z.unsafe_buffer_pointer() != view.ctypes.data
    np.testing.assert_array_equal(view, np.full((64, 64), 2))
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        double(x)


@check
def donors() -> None:
    """A donated array is gone if a result has as many bytes; it cannot be another argument as well."""
    x, y = jnp.ones((3, 2)), jnp.ones((3, 2))
    jax.jit(lambda x: x @ x.T, donate_argnums=0)(x)
    assert not x.is_deleted()
    add = jax.jit(lambda x, y: x + y, donate_argnums=0)
    with pytest.raises(jax.errors.JaxRuntimeError, match="argument 0 is donated, and is another argument, too"):
        add(y, y)
    assert add(y, x)[0, 0] == 2
    assert y.is_deleted()


@check
def memory_is_shared() -> None:
    x = jnp.arange(1000.0)
    assert np.asarray(x).ctypes.data == x.unsafe_buffer_pointer() == np.from_dlpack(x).ctypes.data
    assert jnp.from_dlpack(np.arange(4.0, dtype=np.float32))[3] == 3
    kept = np.arange(64, dtype=np.float32)
    given = jax.device_put(kept, jax.devices()[0])
    del kept
    np.testing.assert_array_equal(given, np.arange(64))


@check
def copies_between_devices() -> None:
    x = jax.device_put(X, jax.devices()[0])
    y = jax.device_put(x, jax.devices()[3])
    assert y.devices() == {jax.devices()[3]}
    np.testing.assert_array_equal(jax.jit(lambda a: a + 1)(y), X + 1)
    z = jax.device_put(x, jax.devices("cpu")[0])
    np.testing.assert_array_equal(z, X)


def moves(device: Any) -> list[Any]:
    """Transfers of an array between all pairs of memory kinds: device_put, results of programs, donation."""
    places = [SingleDeviceSharding(device, memory_kind=memory.kind) for memory in device.addressable_memories()]
    found = []
    for here, there in product(places, repeat=2):
        x = jax.device_put(X, here)
        put = jax.device_put(x, there)
        compiled = jax.jit(lambda x: (x * 2, x), in_shardings=here, out_shardings=(there, None)).lower(x).compile()
        kinds = [each.sharding.memory_kind for each in (x, put, *compiled(x))]
        jax.jit(lambda x: x * 2, out_shardings=there, donate_argnums=0)(x)
        found.append((kinds, [each.memory_kind for each in compiled.output_shardings], x.is_deleted()))
    return found


@check
def memory_kinds() -> None:
    assert moves(jax.devices()[0]) == moves(jax.devices("cpu")[0])
    pinned = NamedSharding(mesh_of(2, 2), PartitionSpec("a"), memory_kind="pinned_host")
    x = np.arange(8, dtype=np.float32)
    made = jax.make_array_from_callback(x.shape, pinned, lambda index: x[index])
    assert {shard.data.sharding.memory_kind for shard in made.addressable_shards} == {"pinned_host"}
    compiled = jax.jit(lambda x: (x * 2, jax.device_put(x, jax.memory.Space.Device))).lower(made).compile()
    for each in (compiled, serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))):
        doubled, moved = each(made)
        assert (doubled.sharding.memory_kind, moved.sharding.memory_kind) == ("pinned_host", "device")
        np.testing.assert_array_equal(doubled, 2 * moved)
        np.testing.assert_array_equal(moved, x)


@check
def callbacks() -> None:
    shape = jax.ShapeDtypeStruct((3, 4), jnp.float32)
    np.testing.assert_allclose(jax.jit(lambda x: jax.pure_callback(np.sin, shape, x))(X), np.sin(X), rtol=1e-6)
    seen: list[float] = []

    def note(x: Any) -> np.float32:
        seen.append(float(x))
        return np.float32(x + 1)

    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    ordered = jax.jit(lambda x: io_callback(note, scalar, io_callback(note, scalar, x, ordered=True), ordered=True))
    assert ordered(3.0) == 5
    jax.effects_barrier()
    assert seen == [3, 4]


@check
def a_callback_that_raises() -> None:
    def fail(x: Any) -> Any:
        raise ValueError("not this number")

    wrong = jax.jit(lambda x: jax.pure_callback(fail, jax.ShapeDtypeStruct((), jnp.float32), x))
    with pytest.raises(jax.errors.JaxRuntimeError, match="not this number"):
        wrong(1.0).block_until_ready()
    assert jax.jit(lambda x: x + 1)(1.0) == 2


@check
def an_unsupported_program() -> None:
    def odd(x: Any) -> Any:
        return jax.ffi.ffi_call("nobody_registered_this", jax.ShapeDtypeStruct((), jnp.float32))(x)

    with pytest.raises(jax.errors.JaxRuntimeError, match="nobody_registered_this") as caught:
        jax.jit(odd)(1.0)
    assert "pjrt_programs.py" in str(caught.value)  # the user's line


@check
def what_a_program_says_of_itself() -> None:
    compiled = jax.jit(lambda x: x @ x.T).lower(X).compile()
    assert compiled.memory_analysis().output_size_in_bytes == 36
    assert compiled.memory_analysis().argument_size_in_bytes == 48
    assert "dot" in compiled.as_text()


@check
def replicas() -> None:
    total = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")
    np.testing.assert_array_equal(total(jnp.arange(4.0)), [6] * 4)


def mesh_of(*shape: int) -> Any:
    return jax.make_mesh(shape, tuple("ab"[: len(shape)]))


@check
def sharded_programs() -> None:
    mesh = mesh_of(2, 2)
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    put = jax.device_put(x, NamedSharding(mesh, PartitionSpec("a", "b")))
    np.testing.assert_array_equal(jax.jit(lambda x: x * 2)(put), x * 2)
    out = NamedSharding(mesh, PartitionSpec(None, "a"))
    product = jax.jit(lambda x, y: x @ y, out_shardings=out)
    whole = jax.device_put(x, NamedSharding(mesh, PartitionSpec()))
    found = product(jax.device_put(x, NamedSharding(mesh, PartitionSpec("a", None))), whole)
    assert found.sharding.is_equivalent_to(out, 2)
    np.testing.assert_allclose(found, x @ x, rtol=1e-6)
    np.testing.assert_array_equal(jax.device_put(put, NamedSharding(mesh, PartitionSpec("b"))), x)


@check
def shard_map() -> None:
    mesh = mesh_of(4)
    add = jax.shard_map(
        lambda x: jax.lax.psum(x, "a"), mesh=mesh, in_specs=PartitionSpec("a"), out_specs=PartitionSpec()
    )
    given = jax.device_put(jnp.arange(4.0), NamedSharding(mesh, PartitionSpec("a")))
    np.testing.assert_array_equal(jax.jit(add)(given), [6])


@check
def shardings_that_are_looked_at() -> None:
    """Once each, when the program is compiled, in a loop, too; its text comes of another partitioning."""
    seen: dict[str, Any] = {}
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    put = jax.device_put(np.eye(4, dtype=np.float32), NamedSharding(mesh, PartitionSpec("b", "a")))

    def look(name: str, x: Any) -> Any:
        jax.debug.inspect_array_sharding(x, callback=lambda found: seen.update({name: (*found.spec, len(seen))}))
        return x

    def program(x: Any) -> Any:
        rows = jax.lax.with_sharding_constraint(look("given", x) + 1, NamedSharding(mesh, PartitionSpec(("a", "b"))))
        return jax.lax.fori_loop(0, 3, lambda _, y: look("in the loop", y) * 2, rows), look("sum", x.sum(0))

    compiled = jax.jit(program).lower(put).compile()
    np.testing.assert_array_equal(compiled(put)[0], (np.eye(4) + 1) * 8)
    assert "dot" not in compiled.as_text()
    assert {name: spec[:-1] for name, spec in seen.items()} == {
        "given": ("b", "a"),
        "in the loop": (("a", "b"),),
        "sum": ("a",),
    }
    assert sorted(spec[-1] for spec in seen.values()) == [0, 1, 2]


@check
def functions_with_a_partitioning_of_their_own() -> None:
    """They are cut here as all others are, on one device and on several, inside and outside of `shard_map`."""

    def never(*_: Any) -> Any:
        raise AssertionError("the partitioning of XLA")

    rows = custom_partitioning(lambda x, y: (x @ y, jnp.sin(x)))
    rows.def_partition(never, infer_sharding_from_operands=never, sharding_rule="i k, k j -> i j, i k")
    mesh, cut = mesh_of(4), PartitionSpec("a")
    x, y = np.arange(32, dtype=np.float32).reshape(8, 4), np.eye(4, dtype=np.float32)
    on_devices = jax.device_put(x, NamedSharding(mesh, cut))
    mapped = jax.shard_map(rows, mesh=mesh, in_specs=(cut, PartitionSpec()), out_specs=cut)
    for made in (jax.jit(rows)(x, y), jax.jit(rows)(on_devices, y), jax.jit(mapped)(on_devices, y)):
        np.testing.assert_array_equal(made[0], x)
        np.testing.assert_allclose(made[1], np.sin(x), rtol=1e-6, atol=1e-6)


@check
def sums_that_are_not_added_up() -> None:
    mesh = jax.make_mesh((4,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    sums = PartitionSpec(None, None, unreduced={"a"})
    with jax.set_mesh(mesh):
        x = jax.device_put(X, PartitionSpec(None, "a"))
        partial = jax.jit(lambda x: jnp.einsum("ij,kj->ik", x, x, out_sharding=sums))(x)
        assert partial.sharding.spec == sums
        for i, shard in enumerate(partial.addressable_shards):
            np.testing.assert_array_equal(shard.data, np.outer(X[:, i], X[:, i]))
        whole = jax.sharding.reshard(partial, PartitionSpec())
        np.testing.assert_allclose(whole, X @ X.T, rtol=1e-6)


@check
def a_mesh_without_shardings() -> None:
    """Programs of several devices of which no array has a sharding: each device holds all of it."""
    mesh = jax.make_mesh((2,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        assert jnp.array([0.0, 1.0]).sharding.is_fully_replicated
        shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
        callback = jax.jit(lambda x: jax.pure_callback(lambda x: x + jnp.ones(4), shape, x))  # not on the mesh
        np.testing.assert_array_equal(callback(X), X + 1)


@check
def threads() -> None:
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        function = jax.jit(lambda x: jnp.sin(x) * number + number)
        for _ in range(20):
            found[number] = function(X)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for number in range(8):
        np.testing.assert_allclose(found[number], np.sin(X) * number + number, rtol=1e-6, atol=1e-6)


@check
def asynchronous_calls() -> None:
    """A call that takes long returns before it has run; what follows on its results comes after it."""
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 200_000, lambda _, y: y @ x, x))
    add = jax.jit(lambda y: y + 1)
    x = jnp.eye(48)
    add(slow(x)).block_until_ready()
    result = slow(x)
    following = add(result)
    assert not result.is_ready()
    assert not following.is_ready()
    np.testing.assert_array_equal(following, np.eye(48) + 1)
    assert result.is_ready()


@check
def many_calls_on_donated_arrays() -> None:
    """More than wait in the queue at once; the last result lies where the first argument lay, but for races."""
    step = jax.jit(lambda x, y: (x + y, y), donate_argnums=0)
    x, y = jnp.zeros((512, 512)), jnp.ones((512, 512))
    for _ in range(100):
        x, _ = step(x, y)
    np.testing.assert_array_equal(x, np.full((512, 512), 100))
    before = jax.devices()[0].memory_stats()["num_allocs"]
    for _ in range(100):
        x, _ = step(x, y)
    x.block_until_ready()
    assert jax.devices()[0].memory_stats()["num_allocs"] <= before + 2


@check
def memory_that_numpy_reads() -> None:
    """It stays after the array is deleted, or donated, until numpy's array goes."""
    x = jnp.arange(1000.0) * 2
    view = np.asarray(x)
    x.delete()
    others = [jnp.full(1000, float(n)) for n in range(20)]
    np.testing.assert_array_equal(view, np.arange(1000) * 2)
    y = jnp.arange(1000.0) * 3
    view = np.asarray(y)
    z = jax.jit(lambda y: y + 1, donate_argnums=0)(y)
    others += [jnp.full(1000, float(n)) for n in range(20)]
    np.testing.assert_array_equal(view + 1, z)
    np.testing.assert_array_equal(view, np.arange(1000) * 3)


@check
def an_interrupt_during_a_run() -> None:
    """Ctrl-C is raised when the run is over, or is the callback's error where the callback ran on this thread."""

    def interrupted(x: Any) -> Any:
        y = io_callback(lambda x: _thread.interrupt_main() or x, jax.ShapeDtypeStruct(X.shape, X.dtype), x)
        return jax.lax.fori_loop(0, 100, lambda _, y: jnp.sin(y), y)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins without it

    def run() -> None:
        jax.jit(interrupted)(X).block_until_ready()
        for _ in range(100_000):  # a signal is looked at between two instructions of Python's
            pass

    for _ in range(2):
        with pytest.raises((KeyboardInterrupt, jax.errors.JaxRuntimeError)) as raised:
            run()
        assert "KeyboardInterrupt" in repr(raised)
    same(lambda x: jnp.cos(x) @ x.T, X)


@check
def costs() -> None:
    compiled = jax.jit(lambda x: x @ x).lower(jax.ShapeDtypeStruct((64, 64), "float32")).compile()
    assert compiled.cost_analysis() == {"flops": 2.0 * 64**3, "bytes accessed": 2.0 * 64**2 * 4}
    stats = compiled.memory_analysis()
    assert (stats.argument_size_in_bytes, stats.output_size_in_bytes) == (64**2 * 4, 64**2 * 4)
    assert stats.host_temp_size_in_bytes == 0


@check
def saved_programs() -> None:
    compiled = jax.jit(lambda x, y: (x @ y["a"], y)).lower(X, {"a": X.T}).compile()
    again = serialize_executable.deserialize_and_load(
        *serialize_executable.serialize(compiled), execution_devices=jax.devices()[:1]
    )
    found, expected = (jax.tree.leaves(each(X, {"a": X.T})) for each in (again, compiled))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    mesh = mesh_of(4)
    put = jax.device_put(np.arange(8.0, dtype=np.float32), NamedSharding(mesh, PartitionSpec("a")))
    compiled = jax.jit(lambda x: x.sum()).lower(put).compile()
    assert serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))(put) == 28
    printing = jax.jit(lambda x: jax.debug.print("{}", x)).lower(X).compile()
    with pytest.raises(jax.errors.JaxRuntimeError, match="1 callbacks of JAX live in the process"):
        serialize_executable.serialize(printing)


@check
def results_in_a_trace() -> None:
    """The code of a trace is compiled from the source: of programs with layouts, of loaded ones, with constants."""
    columns = Format(Layout((1, 0)), SingleDeviceSharding(jax.devices()[0]))
    by_columns = jax.jit(lambda x: x + jnp.arange(12.0).reshape(3, 4), in_shardings=columns, out_shardings=columns)
    kept = np.random.default_rng(0).normal(size=(4, 70_000)).astype(np.float32)
    compiled = jax.jit(lambda x: jnp.sort(jnp.sin(x) @ kept)).lower(X).compile()
    loaded = serialize_executable.deserialize_and_load(
        *serialize_executable.serialize(compiled), execution_devices=jax.devices()[:1]
    )
    calls = [(by_columns, jax.device_put(X, columns)), (compiled, X), (loaded, X)]
    plain = [np.asarray(function(x)) for function, x in calls]
    with tempfile.TemporaryDirectory() as folder, jax.profiler.trace(folder):
        traced = [np.asarray(function(x)) for function, x in calls]
    for ours, theirs in zip(traced, plain, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@check
def batches_of_matrices() -> None:
    """Each device decomposes its own matrices: no array is put together."""
    matrices = np.random.default_rng(3).normal(size=(4, 5, 5)).astype(np.float32)
    matrices = matrices @ matrices.transpose(0, 2, 1) + np.eye(5, dtype=np.float32)
    cut = jax.device_put(matrices, NamedSharding(mesh_of(4), PartitionSpec("a")))
    of_two = [lambda x: jax.lax.linalg.triangular_solve(x, x), lambda x: jnp.linalg.solve(x, x)]
    for function in [jnp.linalg.cholesky, jnp.linalg.qr, jnp.linalg.eigh, jnp.linalg.svd, jax.lax.linalg.lu, *of_two]:
        with warnings.catch_warnings(action="error"):
            compiled = jax.jit(function).lower(cut).compile()
        assert "all-" not in compiled.as_text(), function
        results = zip(jax.tree.leaves(compiled(cut)), jax.tree.leaves(jax.jit(function)(matrices)), strict=True)
        for ours, whole in results:
            assert ours.sharding.is_equivalent_to(cut.sharding, ours.ndim), ours.sharding
            np.testing.assert_allclose(ours, whole, rtol=1e-4, atol=1e-4)


@check
def callbacks_on_parts() -> None:
    """By `partitioned=True` each device's call has its part, as by XLA; by default one call has the whole array."""
    x = np.arange(16.0, dtype=np.float32).reshape(4, 4)
    cut = jax.device_put(x, NamedSharding(mesh_of(2, 2), PartitionSpec("a", "b")))
    for wrapped in (jax.jit, jit):
        seen: list[tuple[str, Any]] = []

        def note(name: str, *values: Any, seen: list[Any] = seen) -> None:
            seen.append((name, [np.asarray(value).tolist() for value in values]))

        def function(x: Any, y: Any, note: Any = note) -> Any:
            jax.debug.callback(partial(note, "parts"), x * 2, y, partitioned=True)
            jax.debug.callback(partial(note, "whole"), x * 2)
            step = partial(jax.debug.callback, partial(note, "loop"), partitioned=True)
            return jax.lax.fori_loop(0, 2, lambda _, z: (step(z), z + 1)[1], x)

        np.testing.assert_array_equal(wrapped(function)(cut, x[0]), x + 2)
        jax.effects_barrier()
        parts = [x[i : i + 2, j : j + 2] for i in (0, 2) for j in (0, 2)]
        expected = [("parts", [(2 * part).tolist(), x[0].tolist()]) for part in parts]
        expected += [("loop", [(part + i).tolist()]) for part in parts for i in (0, 1)]
        assert sorted(seen) == sorted([*expected, ("whole", [(2 * x).tolist()])])


def order_of(array: Any) -> tuple[int, ...]:
    order: tuple[int, ...] = array.format.layout.major_to_minor
    return order


COLUMNS = Layout((1, 0))


@check
def arrays_of_a_layout() -> None:
    here = SingleDeviceSharding(jax.devices()[0])
    columns = Format(COLUMNS, here)
    for x in (X, jnp.asarray(X), jax.device_put(X, Format(Layout((0, 1)), here))):
        array = jax.device_put(x, columns)
        assert order_of(array) == (1, 0)
        np.testing.assert_array_equal(array, X)
        assert np.asarray(array).strides == (4, 12)
        assert np.from_dlpack(array).strides == (4, 12)
        assert order_of(jax.device_put(array, jax.devices()[1])) == (1, 0)
        assert order_of(jax.device_put(array, here.with_memory_kind("pinned_host"))) == (1, 0)
        assert float(array[2, 1]) == X[2, 1]
        np.testing.assert_array_equal(jax.device_put(array, Format(Layout((0, 1)), here)), X)
    for name in ("bool", "bfloat16", "int4", "complex64"):
        x = np.arange(12).reshape(3, 4).astype(name)
        np.testing.assert_array_equal(jax.device_put(x, columns), x)
    cube = np.arange(120).reshape(2, 3, 4, 5)
    for order in permutations(range(4)):
        array = jax.device_put(cube, Format(Layout(order), here))
        assert order_of(array) == order
        function = jax.jit(lambda x: x.transpose(1, 3, 0, 2) * 3, out_shardings=Format(Layout(order[::-1]), here))
        result = function(array)
        assert order_of(result) == order[::-1]
        np.testing.assert_array_equal(result, cube.transpose(1, 3, 0, 2) * 3)


@check
def programs_of_a_layout() -> None:
    here = SingleDeviceSharding(jax.devices()[0])
    columns = Format(COLUMNS, here)
    function = jax.jit(lambda x: (x * 2, x.T, x @ x.T), in_shardings=columns, out_shardings=(columns, columns, None))
    array = jax.device_put(X, columns)
    results = function(array)
    assert [order_of(each) for each in results] == [(1, 0), (1, 0), (0, 1)]
    for ours, theirs in zip(results, (X * 2, X.T, X @ X.T), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    compiled = function.lower(array).compile()
    assert compiled.input_formats[0][0].layout.major_to_minor == (1, 0)
    assert [each.layout.major_to_minor for each in compiled.output_formats] == [(1, 0), (1, 0), (0, 1)]
    again = serialize_executable.deserialize_and_load(
        *serialize_executable.serialize(compiled), execution_devices=jax.devices()[:1]
    )
    assert [order_of(each) for each in again(array)] == [(1, 0), (1, 0), (0, 1)]
    np.testing.assert_array_equal(again(array)[1], X.T)
    assert order_of(jax.jit(lambda x: x + 1)(array)) == (0, 1)  # the argument's layout is the program's
    with pytest.raises(ValueError, match="does not match the layout on the respective arg"):
        function(jax.device_put(X, jax.devices()[0]))
    tiles = Format(Layout((0, 1), ((8, 128),)), here)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"(?s)T\(8,128\).*without tiling"):
        jax.jit(lambda x: x + 1, out_shardings=tiles)(X)


@check
def layouts_that_are_chosen() -> None:
    auto = Format(Layout.AUTO)
    compiled = jax.jit(lambda x: (jnp.sin(x.T) * 2, x + 1, x.sum(0)), in_shardings=auto, out_shardings=auto)
    compiled = compiled.lower(X).compile()
    results = compiled(X)
    assert [order_of(each) for each in results] == [(1, 0), (0, 1), (0,)]
    np.testing.assert_allclose(results[0], np.sin(X.T) * 2, rtol=1e-6)
    constrained = jax.jit(lambda x: with_layout_constraint(x + 1, COLUMNS), out_shardings=auto)
    assert order_of(constrained(X)) == (1, 0)
    np.testing.assert_array_equal(jax.jit(lambda x: with_layout_constraint(x.T, COLUMNS) * 2)(X), X.T * 2)


@check
def donated_arrays_of_a_layout() -> None:
    columns = Format(COLUMNS, SingleDeviceSharding(jax.devices()[0]))
    square = np.arange(16.0, dtype=np.float32).reshape(4, 4)
    for x, out, in_place in ((X, columns, True), (square, None, False), (X, None, False)):
        array = jax.device_put(x, columns)
        address = array.unsafe_buffer_pointer()
        result = jax.jit(lambda x: x * x + 1, in_shardings=columns, out_shardings=out, donate_argnums=0)(array)
        np.testing.assert_array_equal(result, x * x + 1)
        assert array.is_deleted()
        assert not in_place or result.unsafe_buffer_pointer() == address


@check
def sharded_arrays_of_a_layout() -> None:
    mesh = mesh_of(2, 2)
    x = np.arange(96.0, dtype=np.float32).reshape(8, 12)
    for spec in (PartitionSpec("a", "b"), PartitionSpec("a"), PartitionSpec(None, ("a", "b")), PartitionSpec()):
        columns = Format(COLUMNS, NamedSharding(mesh, spec))
        array = jax.device_put(x, columns)
        assert {order_of(shard.data) for shard in array.addressable_shards} == {(1, 0)}
        np.testing.assert_array_equal(array, x)
        results = jax.jit(lambda x: (x * 2, x.sum(0)), out_shardings=(columns, None))(array)
        assert order_of(results[0]) == (1, 0)
        assert results[0].sharding == columns.sharding
        np.testing.assert_array_equal(results[0], x * 2)
        np.testing.assert_array_equal(results[1], x.sum(0))
        shards = (np.asarray(shard.data) == 2 * x[shard.index] for shard in results[0].addressable_shards)
        assert all(each.all() for each in shards)
    constrained = jax.jit(lambda x: with_layout_constraint(x + 1, COLUMNS) * 2)  # cut, with no warning
    rows = jax.device_put(x, NamedSharding(mesh, PartitionSpec("a", "b")))
    with warnings.catch_warnings(action="error"):
        result = constrained(rows)
    np.testing.assert_array_equal(result, (x + 1) * 2)
    assert result.sharding.spec == PartitionSpec("a", "b")


HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


@HANDLER
def double(out: int, into: Any) -> None:
    for i in range(3):
        ctypes.cast(out, ctypes.POINTER(ctypes.c_float))[i] = (
            2 * ctypes.cast(into[0], ctypes.POINTER(ctypes.c_float))[i]
        )


@check
def targets_of_ffi() -> None:
    """A target that is registered with JAX for CPUs, and not with stablexla."""
    address = ctypes.cast(double, ctypes.c_void_p).value
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = new(address, b"xla._CUSTOM_CALL_TARGET", None)
    jax.ffi.register_ffi_target("double_it", capsule, platform="cpu", api_version=0)
    call = jax.ffi.ffi_call("double_it", jax.ShapeDtypeStruct((3,), "float32"), custom_call_api_version=1)
    np.testing.assert_array_equal(jax.jit(call)(jnp.arange(3.0)), [0, 2, 4])


def main() -> None:
    for name, function in CHECKS.items():
        wrong = ""
        try:
            function()
        except Exception:
            wrong = traceback.format_exc()
        print(json.dumps({"name": name, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main()
