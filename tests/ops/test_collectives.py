"""Collectives where there is one device, which is alone in its group; and what is special in programs for several.

Whole programs for several devices are in tests/distributed. Oracle: XLA:CPU. The reference interpreter ends the process
where it meets one outside of a simulation of its own, and XLA:CPU has no collective_broadcast; what these come to is
known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.ops.samples import sample
from tests.programs import check, run

ELEMENT_TYPES = [t.name for t in sx.ELEMENT_TYPES]
ALONE = ((0,),)
# bf16, f16 and the eight-bit integers and floats, c64 ...: all but what XLA:CPU refuses
XLA = {"s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "bf16", "f16", "f32", "f64", "c64", "c128", "pred"}

Make = Callable[[sx.XlaBuilder, sx.XlaOp], Any]

SAME: dict[str, Make] = {
    "all_gather": lambda b, x: sx.all_gather(x, 0, 1, ALONE),
    "all_gather of all": lambda b, x: sx.all_gather(x, 0, 1),
    "all_reduce": lambda b, x: sx.all_reduce(x, sx.max, ALONE),
    "all_reduce of all": lambda b, x: sx.all_reduce(x, sx.max),
    "all_reduce over a channel": lambda b, x: sx.all_reduce(x, sx.max, ALONE, 1, True),
    "all_to_all": lambda b, x: sx.all_to_all(x, 1, 0, 1, ALONE),
    "all_to_all of all": lambda b, x: sx.all_to_all(x, 0, 0, 1),
    "collective_permute": lambda b, x: sx.collective_permute(x, ((0, 0),)),
    "reduce_scatter": lambda b, x: sx.reduce_scatter(x, sx.max, 0, 1, ALONE),
    "reduce_scatter of all": lambda b, x: sx.reduce_scatter(x, sx.max, 1, 1),
    "multi_collective_permute": lambda b, x: sx.multi_collective_permute((x,), ((0, 0),)),
    "all_to_all_tuple": lambda b, x: sx.all_to_all_tuple((x,), ALONE),
    "all_to_all_tuple of all": lambda b, x: sx.all_to_all_tuple((x,), layout=(0, 1)),
}


@pytest.mark.parametrize("operation", SAME)
def test_alone_it_is_the_operand(operation: str) -> None:
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    run(SAME[operation], x, against=["xla"], expected=[x])


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_every_element_type(name: str) -> None:
    with np.errstate(invalid="ignore"):
        x = sample(name, 6).reshape(2, 3)

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        first = lambda a, c: a  # noqa: E731
        made = [sx.all_gather(x, 1, 1), sx.all_to_all(x, 0, 1, 1), sx.collective_permute(x, ((0, 0),))]
        return [*made, sx.all_reduce(x, first), sx.reduce_scatter(x, first, 0, 1), sx.collective_permute(x, ())]

    # XLA:CPU's own all-reduce takes no computation that is none of its few; the type alone is tested here.
    # A type without a zero has what zero is converted to.
    zeros = np.zeros(x.shape, np.float32).astype(x.dtype)
    run(program, x, against=[], expected=[x] * 5 + [zeros])


@pytest.mark.parametrize("name", sorted(XLA - {"pred"}))
def test_cross_replica_sum(name: str) -> None:
    with np.errstate(invalid="ignore"):
        x = sample(name, 6).reshape(2, 3)
    run(lambda b, x: sx.cross_replica_sum(x), x, against=["xla"], expected=[x])
    run(lambda b, x: sx.cross_replica_sum(x, ALONE), x, against=["xla"], expected=[x])


@pytest.mark.parametrize("shape", [(1,), (3, 0), (1, 2, 1, 3, 1, 2)], ids=str)
def test_shapes(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        made = [sx.all_gather(x, 0, 1), sx.all_reduce(x, sx.add), sx.all_to_all(x, 0, 0, 1)]
        return [*made, sx.reduce_scatter(x, sx.add, 0, 1), sx.collective_permute(x, ())]

    run(program, x, against=["xla"], expected=[x] * 4 + [x * 0 if x.size else x])


def test_scalars() -> None:
    x = np.float32(3)
    run(lambda b, x: [sx.all_reduce(x, sx.add), sx.collective_permute(x, ())], x, against=["xla"], expected=[x, x * 0])


def test_several_operands() -> None:
    x, y = np.arange(4, dtype=np.float32), np.ones((2, 3), np.float32)

    def program(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
        pair = sx.tuple((x, y))
        made = [sx.all_reduce((x, y), sx.add), sx.all_gather(pair, 0, 1), sx.collective_broadcast(pair, ALONE)]
        made.append(sx.multi_collective_permute(pair, ((0, 0),)))
        return [part for both in (*made, sx.reduce_scatter(pair, sx.add, 0, 1)) for part in both]

    # XLA:CPU has no collective_broadcast.
    run(program, x, y, against=[], expected=[x, y] * 5)


@pytest.mark.parametrize("name", ["f32", "bf16", "s4", "pred", "c64"])
def test_along_a_dimension_of_size_0(name: str) -> None:
    """StableHLO refuses both; there is nothing to exchange."""
    x, y = sample(name, 0).reshape(3, 0, 2), sample(name, 6).reshape(3, 2, 1)

    def program(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
        first = lambda a, c: a  # noqa: E731
        made = [sx.all_gather(x, 1, 1), sx.reduce_scatter(x, first, 1, 1)]
        both = [sx.all_gather((x, y), 1, 1), sx.reduce_scatter((x, y), first, 1, 1)]
        return [*made, *(part for pair in both for part in pair)]

    run(program, x, y, against=[], expected=[x, x, x, y, x, y])


def test_ragged_all_to_all() -> None:
    """Of one device: pieces move within its own array. The rows that nothing is sent to stay."""
    x, y = np.arange(8, dtype=np.float32).reshape(4, 2), -np.ones((6, 2), np.float32)
    begins, sizes, places = (np.array(v, np.int64) for v in ([2, 0, 3], [2, 1, 0], [1, 5, 0]))
    wanted = y.copy()
    wanted[1:3], wanted[5] = x[2:4], x[0]
    run(
        lambda b, x, y, begins, sizes, places: sx.ragged_all_to_all(x, begins, sizes, y, places, sizes),
        x, y, begins, sizes, places, against=[], expected=[wanted],
    )  # fmt: skip


def test_collective_broadcast() -> None:
    x = np.arange(3, dtype=np.float32)
    run(lambda b, x: sx.collective_broadcast(x, ALONE), x, against=[], expected=[x])


def test_the_only_device_has_number_0() -> None:
    run(lambda b: [b.replica_id(), b.partition_id()], against=["xla"], expected=[np.uint32(0), np.uint32(0)])


def test_text_of_older_and_newer_operations() -> None:
    """cross-replica-sum; and collectives that are started first and waited for later."""
    text = """
    func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
      %0 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<[[0]]> : tensor<1x1xi64>}
        : (tensor<4xf32>) -> tensor<4xf32>
      %1 = "stablehlo.async_start"(%0) ({
      ^bb0(%a: tensor<4xf32>):
        %g = "stablehlo.all_gather"(%a) {
          all_gather_dim = 0 : i64, replica_groups = dense<[[0]]> : tensor<1x1xi64>
        } : (tensor<4xf32>) -> tensor<4xf32>
        stablehlo.return %g : tensor<4xf32>
      }) : (tensor<4xf32>) -> !stablehlo.future<tensor<4xf32>>
      %2 = stablehlo.add %x, %x : tensor<4xf32>
      %3 = "stablehlo.async_done"(%1) : (!stablehlo.future<tensor<4xf32>>) -> tensor<4xf32>
      return %2, %3 : tensor<4xf32>, tensor<4xf32>
    }"""
    x = np.arange(4, dtype=np.float32)
    check(text, [x], against=[], expected=[x + x, x])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b, x: sx.all_reduce(x, sx.add, ((0, 1),)), "replica_groups names device 1"),
        (lambda b, x: sx.all_gather(x, 0, 2), "it is written for several devices"),
        (lambda b, x: sx.reduce_scatter(x, sx.add, 0, 2), "it is written for several devices"),
        (lambda b, x: sx.all_to_all(x, 0, 1, 2), "replica_groups names device 1"),
        (lambda b, x: sx.collective_permute(x, ((0, 1), (1, 0))), "source_target_pairs names device 1"),
        (lambda b, x: sx.collective_broadcast(x, ((1, 0),)), "replica_groups names device 1"),
        (lambda b, x: sx.all_to_all_tuple((x, x)), "replica_groups names device 1"),
    ],
)
def test_programs_for_several_devices_are_refused_on_one(make: Make, message: str) -> None:
    b = sx.XlaBuilder("test")
    computation = b.build(make(b, b.parameter(0, sx.f32[4, 2])))
    with pytest.raises(sx.UnsupportedError, match=message) as raised:
        sx.compile(computation)
    assert "compiled for one" in str(raised.value)
    assert "test_collectives.py" in str(raised.value)
    assert "num_replicas=" in raised.value.hint


STARTED = """
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<8xf32>, tensor<4xf32>) {
  %0 = "stablehlo.async_start"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    %g = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>}
      : (tensor<4xf32>) -> tensor<8xf32>
    stablehlo.return %g : tensor<8xf32>
  }) : (tensor<4xf32>) -> !stablehlo.future<tensor<8xf32>>
  %1 = "stablehlo.async_start"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    %r = "stablehlo.all_reduce"(%a) ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.subtract %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
    stablehlo.return %r : tensor<4xf32>
  }) : (tensor<4xf32>) -> !stablehlo.future<tensor<4xf32>>
  %2 = "stablehlo.async_start"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    %p = "stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}
      : (tensor<4xf32>) -> tensor<4xf32>
    stablehlo.return %p : tensor<4xf32>
  }) : (tensor<4xf32>) -> !stablehlo.future<tensor<4xf32>>
  %3 = "stablehlo.async_done"(%2) : (!stablehlo.future<tensor<4xf32>>) -> tensor<4xf32>
  %4 = stablehlo.add %x, %3 : tensor<4xf32>
  %5 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<8xf32>>) -> tensor<8xf32>
  %6 = "stablehlo.async_done"(%1) : (!stablehlo.future<tensor<4xf32>>) -> tensor<4xf32>
  return %4, %5, %6 : tensor<4xf32>, tensor<8xf32>, tensor<4xf32>
}"""


def test_what_is_started_may_be_waited_for_in_any_order() -> None:
    x, y = np.arange(4, dtype=np.float32), np.arange(4, dtype=np.float32) ** 2
    results = sx.compile(STARTED, num_replicas=2).execute_replicated([[x], [y]])
    for (permuted, gathered, reduced), wanted in zip(results, [x, x + y], strict=True):
        np.testing.assert_array_equal(permuted, wanted)
        np.testing.assert_array_equal(gathered, np.concatenate([y, x]))
        np.testing.assert_array_equal(reduced, x - y)


def test_a_wider_computation() -> None:
    """The operands become numbers of the computation's type before they are folded."""
    wide = sx.XlaBuilder("wide")
    add = wide.build(wide.parameter(0, sx.f64[()]) + wide.parameter(1, sx.f64[()]))
    b = sx.XlaBuilder("test")
    x = b.parameter(0, sx.f32[4])
    computation = b.build(sx.tuple([sx.all_reduce(x, add), sx.reduce_scatter(x, add, 0, 2)]))
    one, two = np.array([1, 1e8, 0.1, 3], np.float32), np.array([1e-8, 1, 0.2, -3], np.float32)
    sums = one.astype(np.float64) + two
    results = sx.compile(computation, num_replicas=2).execute_replicated([[one], [two]])
    for device, (whole, part) in enumerate(results):
        np.testing.assert_array_equal(whole, sums)
        np.testing.assert_array_equal(part, sums[2 * device : 2 * device + 2])
    run(lambda b, x: sx.all_reduce(x, add), one, against=[], expected=[one.astype(np.float64)])


def test_a_computation_with_a_value_from_outside_is_refused() -> None:
    text = """
    func.func @main(%x: tensor<4xf32>, %y: tensor<f32>) -> tensor<4xf32> {
      %0 = "stablehlo.all_reduce"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        %d = stablehlo.multiply %c, %y : tensor<f32>
        stablehlo.return %d : tensor<f32>
      }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    with pytest.raises(sx.UnsupportedError, match="uses a value from outside"):
        sx.compile(text, num_replicas=2)


def test_the_sum_of_older_programs() -> None:
    text = """
    func.func @main(%x: tensor<4xbf16>) -> tensor<4xbf16> {
      %0 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}
        : (tensor<4xbf16>) -> tensor<4xbf16>
      return %0 : tensor<4xbf16>
    }"""
    xs = [sample("bf16", 4, seed) for seed in range(3)]
    wanted = xs[0].astype(np.float32)
    with np.errstate(invalid="ignore"):
        for x in xs[1:]:
            wanted = (wanted + x.astype(np.float32)).astype(x.dtype).astype(np.float32)
    for (result,) in sx.compile(text, num_replicas=3).execute_replicated([[x] for x in xs]):
        np.testing.assert_array_equal(result.astype(np.float32), wanted)


def test_device_numbers_inside_of_computations() -> None:
    """They are read at the beginning of the program, and used wherever they are wanted."""
    text = """
    func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<f32>) {
      %0 = "stablehlo.map"(%x) ({
      ^bb0(%a: tensor<f32>):
        %n = stablehlo.replica_id : tensor<ui32>
        %f = stablehlo.convert %n : (tensor<ui32>) -> tensor<f32>
        %s = stablehlo.add %a, %f : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }) {dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %1 = "stablehlo.reduce"(%x, %z) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %n = stablehlo.partition_id : tensor<ui32>
        %f = stablehlo.convert %n : (tensor<ui32>) -> tensor<f32>
        %s = stablehlo.add %a, %b : tensor<f32>
        %m = stablehlo.maximum %s, %f : tensor<f32>
        stablehlo.return %m : tensor<f32>
      }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
      return %0, %1 : tensor<4xf32>, tensor<f32>
    }"""
    results = sx.compile(text, num_replicas=2, num_partitions=3).execute_replicated([[np.zeros(4, np.float32)]] * 6)
    for device, (mapped, reduced) in enumerate(results):
        np.testing.assert_array_equal(mapped, np.full(4, device // 3, np.float32))
        assert reduced == device % 3


def test_nothing_sent_is_the_number_zero_of_quantised_arrays() -> None:
    kind = "tensor<4x!quant.uniform<i8:f32, 0.5:3>>"
    text = f"""
    func.func @main(%x: {kind}) -> ({kind}, {kind}) {{
      %0 = "stablehlo.collective_permute"(%x) {{source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}}
        : ({kind}) -> {kind}
      %1 = "stablehlo.collective_broadcast"(%x) {{replica_groups = dense<[[1]]> : tensor<1x1xi64>}} : ({kind}) -> {kind}
      return %0, %1 : {kind}, {kind}
    }}"""
    x, y = np.array([-128, 0, 3, 127], np.int8), np.array([1, 2, 3, 4], np.int8)
    zeros = np.full(4, 3, np.int8)
    results = sx.compile(text, num_replicas=2).execute_replicated([[x], [y]])
    for (permuted, broadcast), wanted in zip(results, [(zeros, zeros), (x, y)], strict=True):
        np.testing.assert_array_equal(permuted, wanted[0])
        np.testing.assert_array_equal(broadcast, wanted[1])


@pytest.mark.parametrize("elements", [1, 5000])
def test_sums_of_many_devices_keep_their_digits(elements: int) -> None:
    """1 + u + u + ...: each u is lost that is added to the 1 alone, and 69 of them are more than 8 u log2(70)."""
    count, unit = 70, 2.0**-24
    numbers = [np.full(elements, 1.0 if i == 0 else unit, np.float32) for i in range(count)]
    b = sx.XlaBuilder("sum")
    x = b.parameter(0, sx.f32[elements])
    whole = sx.compile(b.build(sx.all_reduce(x, sx.add)), num_replicas=count)
    for (found,) in whole.execute_replicated([[x] for x in numbers]):
        assert (np.abs(found.astype(np.float64) - (1 + 69 * unit)) <= 8 * np.log2(count) * unit).all()


def test_parts_of_many_devices_are_summed_where_rows_lie_apart() -> None:
    """More than one block of members, the last of one member alone."""
    count = 65
    arrays = [np.random.default_rng(i).integers(0, 100, (7, count)).astype(np.float32) for i in range(count)]
    b = sx.XlaBuilder("sum")
    x = b.parameter(0, sx.f32[7, count])
    parts = sx.compile(b.build(sx.reduce_scatter(x, sx.add, 1, count)), num_replicas=count)
    for number, (found,) in enumerate(parts.execute_replicated([[x] for x in arrays])):
        assert (found[:, 0] == sum(arrays)[:, number]).all()
