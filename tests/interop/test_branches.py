"""Branches between the blocks of a function, and tuples as values: neither is left of a program that was read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx

V, F, N = "tensor<4xf32>", "tensor<i1>", "tensor<i32>"
X = np.array([1, -2, 3, 0.5], np.float32)


def test_loop() -> None:
    """The header decides, and carries a counter and an array."""
    text = f"""func.func @main(%x: {V}, %n: {N}) -> {V} {{
      %z = stablehlo.constant dense<0> : {N}
      %one = stablehlo.constant dense<1> : {N}
      cf.br ^head(%z, %x : {N}, {V})
    ^head(%i: {N}, %y: {V}):
      %c = stablehlo.compare LT, %i, %n : ({N}, {N}) -> {F}
      %p = tensor.extract %c[] : {F}
      cf.cond_br %p, ^body, ^exit
    ^body:
      %y2 = stablehlo.add %y, %x : {V}
      %i2 = stablehlo.add %i, %one : {N}
      cf.br ^head(%i2, %y2 : {N}, {V})
    ^exit:
      return %y : {V}
    }}"""
    program = sx.compile(text)
    for count in (0, 1, 5):
        np.testing.assert_array_equal(program(X, np.int32(count)), X * (count + 1))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_conditionals(first: bool, second: bool) -> None:
    """One of them returns at once, one comes to the same block from both sides."""
    text = f"""func.func @main(%x: {V}, %c: {F}, %d: {F}) -> {V} {{
      %p = tensor.extract %c[] : {F}
      %q = tensor.extract %d[] : {F}
      cf.cond_br %p, ^left, ^right
    ^left:
      %t = stablehlo.multiply %x, %x : {V}
      return %t : {V}
    ^right:
      %u = stablehlo.negate %x : {V}
      cf.cond_br %q, ^end(%u : {V}), ^end(%x : {V})
    ^end(%w : {V}):
      return %w : {V}
    }}"""
    expected = X * X if first else -X if second else X
    np.testing.assert_array_equal(sx.compile(text)(X, np.bool_(first), np.bool_(second)), expected)


def test_switch() -> None:
    text = f"""func.func @main(%x: {V}, %k: {N}) -> {V} {{
      %p = tensor.extract %k[] : {N}
      cf.switch %p : i32, [ default: ^a, 3: ^b(%x : {V}), 5: ^a ]
    ^a:
      %t = stablehlo.abs %x : {V}
      cf.br ^b(%t : {V})
    ^b(%w: {V}):
      return %w : {V}
    }}"""
    program = sx.compile(text)
    for k, expected in ((0, abs(X)), (3, X), (5, abs(X)), (-1, abs(X))):
        np.testing.assert_array_equal(program(X, np.int32(k)), expected)


def test_called_function() -> None:
    """Blocks of a function that is called, around a loop of StableHLO with a computation of its own."""
    text = f"""func.func @main(%x: {V}, %c: {F}) -> tensor<f32> {{
      %0 = call @f(%x, %c) : ({V}, {F}) -> tensor<f32>
      return %0 : tensor<f32>
    }}
    func.func private @f(%x: {V}, %c: {F}) -> tensor<f32> {{
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %p = tensor.extract %c[] : {F}
      cf.cond_br %p, ^sum, ^none
    ^sum:
      %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
        : ({V}, tensor<f32>) -> tensor<f32>
      return %s : tensor<f32>
    ^none:
      return %z : tensor<f32>
    }}"""
    program = sx.compile(text)
    assert [program(X, np.bool_(c)) for c in (True, False)] == [X.sum(), 0]


T1, T2 = f"tuple<{N}, {V}>", f"tuple<{V}, tuple<{N}, {V}>>"


def test_nested_tuples() -> None:
    """Parameters, results, calls and parts of parts."""
    text = f"""func.func @main(%t: {T2}, %k: {N} {{jax.arg_info = "k"}}) -> (tuple<{V}, tuple<{V}>>, {N}) {{
      %a = stablehlo.get_tuple_element %t[0] : ({T2}) -> {V}
      %in = stablehlo.get_tuple_element %t[1] : ({T2}) -> {T1}
      %b = stablehlo.get_tuple_element %in[1] : ({T1}) -> {V}
      %n = stablehlo.get_tuple_element %in[0] : ({T1}) -> {N}
      %f = func.call @f(%in) : ({T1}) -> tuple<{V}>
      %s = stablehlo.add %a, %b : {V}
      %m = stablehlo.subtract %n, %k : {N}
      %o = stablehlo.tuple %s, %f : tuple<{V}, tuple<{V}>>
      return %o, %m : tuple<{V}, tuple<{V}>>, {N}
    }}
    func.func private @f(%in: {T1}) -> tuple<{V}> {{
      %b = stablehlo.get_tuple_element %in[1] : ({T1}) -> {V}
      %c = stablehlo.multiply %b, %b : {V}
      %r = stablehlo.tuple %c : tuple<{V}>
      return %r : tuple<{V}>
    }}"""
    results = sx.compile(text).execute([X, np.int32(7), 2 * X, np.int32(4)])
    for result, expected in zip(results, (3 * X, 4 * X * X, 3), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_custom_call_of_tuples() -> None:
    sx.register_custom_call("tests.swap", lambda a, n, b: (b, n + 1, a))
    text = f"""func.func @main(%x: {V}, %k: {N}) -> ({V}, {N}) {{
      %u = stablehlo.negate %x : {V}
      %in = stablehlo.tuple %k, %u : {T1}
      %t = stablehlo.tuple %x, %in : {T2}
      %r = stablehlo.custom_call @tests.swap(%t) : ({T2}) -> {T2}
      %0 = stablehlo.get_tuple_element %r[0] : ({T2}) -> {V}
      %1 = stablehlo.get_tuple_element %r[1] : ({T2}) -> {T1}
      %2 = stablehlo.get_tuple_element %1[0] : ({T1}) -> {N}
      return %0, %2 : {V}, {N}
    }}"""
    first, second = sx.compile(text).execute([X, np.int32(4)])
    np.testing.assert_array_equal(first, -X)
    assert second == 5


HLO = {
    "while": """cond {{ p = {s} parameter(0)
      i = s32[] get-tuple-element(p), index=0
      n = s32[] constant(3)
      ROOT c = pred[] compare(i, n), direction=LT }}
    body {{ p = {s} parameter(0)
      i = s32[] get-tuple-element(p), index=0
      one = s32[] constant(1)
      t = {t} get-tuple-element(p), index=1
      b = (f32[4]) get-tuple-element(t), index=1
      v = f32[4] get-tuple-element(b), index=0
      w = (f32[4]) tuple(v)
      d = f32[4] add(v, v)
      next = {t} tuple(d, w)
      j = s32[] add(i, one)
      ROOT r = {s} tuple(j, next) }}
    ENTRY e {{ x = f32[4] parameter(0)
      u = (f32[4]) tuple(x)
      t = {t} tuple(x, u)
      z = s32[] constant(0)
      s = {s} tuple(z, t)
      w = {s} while(s), condition=cond, body=body
      o = {t} get-tuple-element(w), index=1
      ROOT r = f32[4] get-tuple-element(o), index=0 }}""",
    "conditional": """f {{ p = {t} parameter(0)
      ROOT r = (f32[4]) get-tuple-element(p), index=1 }}
    g {{ q = f32[4] parameter(0)
      n = f32[4] negate(q)
      ROOT r = (f32[4]) tuple(n) }}
    ENTRY e {{ x = f32[4] parameter(0)
      c = pred[] constant(false)
      u = (f32[4]) tuple(x)
      t = {t} tuple(x, u)
      o = (f32[4]) conditional(c, t, x), true_computation=f, false_computation=g
      ROOT r = f32[4] get-tuple-element(o), index=0 }}""",
    "barrier": """ENTRY e {{ x = f32[4] parameter(0)
      n = f32[4] negate(x)
      u = (f32[4]) tuple(n)
      t = {t} tuple(x, u)
      o = {t} opt-barrier(t)
      i = (f32[4]) get-tuple-element(o), index=1
      ROOT r = f32[4] get-tuple-element(i), index=0 }}""",
}
EXPECTED: dict[str, Callable[[Any], Any]] = {
    "while": lambda x: 2 * x,
    "conditional": lambda x: -x,
    "barrier": lambda x: -x,
}


@pytest.mark.parametrize("name", HLO)
def test_nested_state_of_hlo(name: str) -> None:
    text = "HloModule m\n" + HLO[name].format(t="(f32[4], (f32[4]))", s="(s32[], (f32[4], (f32[4])))")
    np.testing.assert_array_equal(sx.compile(text)(X), EXPECTED[name](X))
