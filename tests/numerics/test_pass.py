"""The pass `stablexla-expand-math` on whole modules: which operations it rewrites, where, and what it leaves."""

from __future__ import annotations

import re
from typing import Any

import mlir.ir as ir
import numpy as np
import pytest
from mlir.dialects import vector

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.lowering.math import EXPANSIONS, expand_math
from stablexla.lowering.math.functions import library
from stablexla.lowering.math.logistic import LOGISTIC
from stablexla.lowering.math.registry import LEAST_CALLED, LONG, MOST_EVALUATED, SHORT
from tests.numerics.harness import Kernel, operation
from tests.numerics.references import FUNCTIONS, Function, unary_sample

#: what becomes an instruction as it is
NATIVE = {"math.absf", "math.copysign", "math.floor", "math.fma", "math.sqrt", "math.trunc"}


def expanded(text: str) -> str:
    """A module's text after the pass; the result is verified."""
    with upstream_context():
        module = ir.Module.parse(text)
    expand_math(module)
    assert module.operation.verify()
    return str(module)


def names(text: str) -> set[str]:
    """The operations of `math` and the remainder that a text holds."""
    return set(re.findall(r"\b(?:math\.\w+|arith\.remf)", text))


@pytest.mark.parametrize("type_", ["f32", "f64", "vector<f32>", "vector<3xf32>", "vector<2x3x4xf64>"])
def test_nothing_but_instructions_is_left(type_: str) -> None:
    binary = ["math.powf", "math.atan2", "arith.remf"]
    apart = {f"math.{name}" for name in ("ipowi", "fpowi", "sincos", "isnan", "isinf", "isfinite", "isnormal")}
    unary = sorted(set(EXPANSIONS) - set(binary) - apart - {LOGISTIC})
    lines = [f"%{k} = {name} %x : {type_}" for k, name in enumerate(unary)]
    lines += [f"%b{k} = {name} %0, %y : {type_}" for k, name in enumerate(binary)]
    lines.append(f"%s, %c = math.sincos %x : {type_}")
    calls = [f"func.call @use(%{k}) : ({type_}) -> ()" for k in range(len(unary))]
    body = "\n".join([*lines, *calls])
    text = f"func.func private @use({type_})\nfunc.func @f(%x: {type_}, %y: {type_}) {{ {body} return }}"
    assert names(text) >= set(unary)
    assert names(expanded(text)) <= NATIVE


@pytest.mark.parametrize("shape", [None, (2, 4), (4, 1, 2), (3,), (16,)], ids=str)
@pytest.mark.parametrize("name", ["exp", "tanh", "sin", "log1p", "erfc", "cbrt"])
def test_every_shape_gives_the_same_bits(name: str, shape: Any) -> None:
    function: Function = FUNCTIONS[name]
    for dtype in (np.float32, np.float64):
        # 4095 elements: what vectors of three fill
        x = unary_sample(dtype, 6000)[:4095]
        expected = Kernel(function.emit, [dtype], (8,))(x)
        result = Kernel(function.emit, [dtype], shape)(x) if shape != (3,) else _of_three(function, dtype, x)
        assert np.array_equal(result, expected, equal_nan=True)


def _of_three(function: Function, dtype: Any, x: Any) -> Any:
    def emit(value: ir.Value) -> ir.Value:
        """Lanes 0 to 2 as a vector of their own, then again with 1 to 3 for the last."""
        three = [
            vector.extract_strided_slice(ir.VectorType.get([3], value.type.element_type), value, [at], [3], [1])
            for at in (0, 1)
        ]
        first, second = (function.emit(part) for part in three)
        whole = vector.insert_strided_slice(first, value, [0], [1])
        return vector.insert_strided_slice(second, whole, [1], [1])

    return Kernel(emit, [dtype], (4,))(x)


def test_nested_operations_and_shared_constants() -> None:
    text = expanded(
        """
        func.func @f(%m: memref<8xf32>, %n: index, %p: i1) {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          scf.for %i = %c0 to %n step %c1 {
            %x = memref.load %m[%i] : memref<8xf32>
            %y = scf.if %p -> f32 {
              %a = math.exp %x : f32
              scf.yield %a : f32
            } else {
              %b = math.sin %x : f32
              %c = math.exp %b : f32
              scf.yield %c : f32
            }
            memref.store %y, %m[%i] : memref<8xf32>
          }
          return
        }
        """
    )
    assert names(text) <= NATIVE
    loop = text.index("scf.for")
    assert "arith.constant" not in text[loop:], "constants stand at the start of the function"
    constants = re.findall(r"arith\.constant (\S+ : \S+)", text[:loop])
    assert len(constants) == len(set(constants)), "each constant is made once"


def test_functions_do_not_share_constants() -> None:
    body = "(%x: f32) -> f32 { %y = math.exp %x : f32 return %y : f32 }"
    text = expanded(f"func.func private @declared(f32)\nfunc.func @f{body}\nfunc.func @g{body}")
    first, second = text.split("func.func @g")
    assert first.count("arith.constant") == second.count("arith.constant") > 5


def test_an_operation_that_is_first_or_only_in_its_function() -> None:
    assert "math.round " not in expanded("func.func @f(%x: f32) -> f32 { %y = math.round %x : f32 return %y : f32 }")
    assert "math.isnan" not in expanded("func.func @f(%x: f32) -> i1 { %y = math.isnan %x : f32 return %y : i1 }")


def test_other_types_and_native_operations_are_left_alone() -> None:
    text = """
      func.func @f(%x: f16, %v: vector<4xbf16>, %y: f32, %n: i32, %s: vector<[4]xf32>) {
        %0 = math.exp %x : f16
        %1 = math.tanh %v : vector<4xbf16>
        %2 = math.floor %y : f32
        %3 = math.ctlz %n : i32
        %4 = math.exp %s : vector<[4]xf32>
        return
      }
    """
    assert names(expanded(text)) == {"math.exp", "math.tanh", "math.floor", "math.ctlz"}


def test_expanding_twice_changes_nothing() -> None:
    once = expanded("func.func @f(%x: vector<8xf32>) -> vector<8xf32> { %y = math.tan %x : vector<8xf32> "
                    "return %y : vector<8xf32> }")  # fmt: skip
    assert expanded(once) == once


def test_sine_and_cosine_at_once() -> None:
    def difference(x: ir.Value) -> ir.Value:
        both = ir.Operation.create("math.sincos", results=[x.type, x.type], operands=[x])
        return ir.Operation.create("arith.subf", results=[x.type], operands=list(both.results)).result

    def apart(x: ir.Value) -> ir.Value:
        parts = [operation(name)(x) for name in ("math.sin", "math.cos")]
        return ir.Operation.create("arith.subf", results=[x.type], operands=parts).result

    for dtype in (np.float32, np.float64):
        x = unary_sample(dtype, 5000)
        together, separate = (Kernel(emit, [dtype])(x) for emit in (difference, apart))
        assert np.array_equal(together, separate, equal_nan=True)


def test_locations_are_kept() -> None:
    with upstream_context():
        module = ir.Module.parse('func.func @f(%x: f32) -> f32 { %y = math.log %x : f32 loc("here") return %y : f32 }')
    expand_math(module)
    text = module.operation.get_asm(enable_debug_info=True)
    assert text.count('loc("here")') + text.count("#loc") > 5
    assert "math.log" not in text


def test_rare_parts_are_one_function_for_each_type() -> None:
    sines = "%1 = math.sin %x : {0} %2 = math.cos %1 : {0} %3 = math.tan %2 : {0} return %3 : {0}"
    functions = [
        f"func.func @f{k}(%x: {type_}) -> {type_} {{ {sines.format(type_)} }}"
        for k, type_ in enumerate(["f32", "vector<f32>", "vector<16xf32>", "vector<16xf32>", "vector<8xf64>"])
    ]
    text = expanded("\n".join(functions))
    assert re.findall(r"func private @stablexla\.huge_angle_(\w+)", text)[::-1] == [
        *("f32", "vector_f32", "vector_16xf32", "vector_8xf64"),
    ]
    assert text.count("call @stablexla.huge_angle_") == 15


def test_code_for_a_device_has_no_functions_of_its_own() -> None:
    text = expanded("gpu.module @g { func.func @f(%x: f32) -> f32 { %1 = math.sin %x : f32 return %1 : f32 } }")
    assert "call" not in text
    assert names(text) <= NATIVE


@pytest.mark.parametrize("above", [-1, 0, 1])
def test_many_of_a_function_are_calls(above: int) -> None:
    count = LEAST_CALLED.usual + above
    text = chain([f"%{k + 1} = math.exp %{k} : vector<8xf32>" for k in range(count)], "vector<8xf32>", count)
    made = expanded(text)
    calls = re.findall(r"call @(stablexla\.math_exp_vector_8xf32)\(", made)
    assert len(calls) == (count if above >= 0 else 0)
    assert made.count("func.func private @stablexla.") == len(set(calls))
    assert names(made) <= NATIVE


def test_functions_are_for_operations_alike() -> None:
    """Other operands, other attributes or a use that needs few digits are no reason to share one."""
    count = LEAST_CALLED.usual // 2 + 1
    lines = [f"%{k + 1} = math.exp %{k} : f32" for k in range(count)]
    lines += [f"%w{k} = math.exp %w : f64" for k in range(count)]
    assert "call" not in expanded(chain(lines, "f32", count, more="%w: f64"))
    rounded = [f"%{k + 1} = math.exp %0 : f32\n%r{k} = arith.truncf %{k + 1} : f32 to bf16" for k in range(3 * count)]
    assert "call" not in expanded(chain(rounded, "f32", 0))


def chain(lines: list[str], type_: str, last: int, more: str = "%unused: f32") -> str:
    """A function of `%0` with these lines, whose result is that of number `last`."""
    return f"func.func @f(%0: {type_}, {more}) -> {type_} {{\n" + "\n".join(lines) + f"\nreturn %{last} : {type_} }}"


@pytest.mark.parametrize("function", [sx.tanh, sx.sin, lambda x: sx.pow(x, 2.5), sx.erf])
@pytest.mark.parametrize("type_", [sx.f32, sx.f64])
def test_calls_have_the_bits_of_code_in_place(function: Any, type_: sx.ElementType) -> None:
    b = sx.XlaBuilder("behind_a_product")
    x, y = b.parameter(0, type_[28, 30]), b.parameter(1, type_[30, 24])
    program = b.build(function(sx.dot(x, y)))
    rng = np.random.default_rng(5)
    arguments = [rng.standard_normal(shape).astype(type_.dtype) for shape in ((28, 30), (30, 24))]
    results = [
        sx.compile(program, options=sx.CompileOptions(choices=f"usual+{LEAST_CALLED.name}={least}"))
        for least in (1, LEAST_CALLED.usual, 1000)
    ]
    assert [len(re.findall("call @stablexla.math_", each.ir("llvm"))) > 0 for each in (results[0], results[2])] == [
        True,
        False,
    ]
    first, *others = (each(*arguments) for each in results)
    assert all(np.array_equal(first, other, equal_nan=True) for other in others)


# --- logistic functions -------------------------------------------------------------------------------------


def quotient(x: str = "%n", mark: str = LOGISTIC, more: str = "") -> str:
    """The operations of a logistic function; `x` is what the exponential is of."""
    return f"""
      func.func @f(%x: vector<8xf32>, %b: f32) -> vector<8xf32> {{
        %one = arith.constant dense<1.0> : vector<8xf32>
        %n = arith.negf %x : vector<8xf32>
        %e = math.exp {x} : vector<8xf32>
        %s = arith.addf %one, %e : vector<8xf32>
        %q = arith.divf %one, %s {{{mark}}} : vector<8xf32>
        {more}
        return %q : vector<8xf32>
      }}
    """


def test_a_logistic_function_is_expanded_as_a_whole() -> None:
    whole = expanded(quotient())
    assert LOGISTIC not in whole
    assert names(whole) <= NATIVE
    swapped = quotient().replace("%one, %e", "%e, %one")
    assert expanded(swapped) == whole
    assert expanded(quotient(mark="")) != whole
    two = quotient().replace("dense<1.0>", "dense<2.0>")
    assert LOGISTIC in expanded(two)
    assert LOGISTIC in expanded(quotient(x="%x"))
    used = expanded(quotient(more="%u = math.floor %e : vector<8xf32>\nfunc.call @use(%u) : (vector<8xf32>) -> ()")
                    + "func.func private @use(vector<8xf32>)")  # fmt: skip
    assert "math.floor" in used
    assert LOGISTIC not in used
    assert names(used) <= NATIVE


def test_a_logistic_function_is_one_of_the_library(recorded: Recorded) -> None:
    made = expanded(quotient())
    assert re.findall(r"call @(\w+)", made) == ["of_library_logistic_vector_8xf32"]
    assert names(made) == set()
    (module,) = recorded.modules.values()
    assert module.operation.verify()
    assert names(str(module)) <= NATIVE
    assert LOGISTIC not in str(module)


@pytest.mark.parametrize("above", [-1, 0])
def test_many_logistic_functions_are_calls(above: int) -> None:
    count = LEAST_CALLED.usual + above
    lines = ["%one = arith.constant 1.0 : f32"]
    for k in range(count):
        lines += [f"%n{k} = arith.negf %{k} : f32", f"%e{k} = math.exp %n{k} : f32"]
        lines += [f"%s{k} = arith.addf %one, %e{k} : f32", f"%{k + 1} = arith.divf %one, %s{k} {{{LOGISTIC}}} : f32"]
    made = expanded(chain(lines, "f32", count))
    assert len(re.findall(r"call @stablexla\.logistic_f32\(", made)) == (count if above >= 0 else 0)
    assert made.count("func.func private @stablexla.logistic_f32") == (above >= 0)
    assert names(made) <= NATIVE


@pytest.mark.parametrize("value", [-200.0, -100.0, -88.8, -740.0, -3.3, 0.0, 0.7, 3.3, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("type_", [sx.f32, sx.f64])
def test_logistic_functions_of_constants_have_the_same_bits(type_: sx.ElementType, value: float) -> None:
    """Operations that are folded round one by one, and the exponential overflows."""
    b, given = sx.XlaBuilder("constants"), np.array(value, type_.dtype)
    x, y, constant = b.parameter(0, type_[()]), b.parameter(1, type_[4]), b.constant(given)
    spread = sx.logistic(sx.broadcast(constant, (4,)))
    program = b.build(
        sx.tuple([sx.logistic(x), sx.logistic(constant), y + sx.broadcast(sx.logistic(constant), (4,)), spread])
    )
    run, *folded = (np.asarray(result) for result in sx.compile(program)(given, np.zeros(4, type_.dtype)))
    for result in folded:
        np.testing.assert_array_equal(result, np.full(result.shape, run))


class Recorded:
    """A library that has no code, but notes which functions it is asked for; their modules by symbol."""

    def __init__(self) -> None:
        self.modules: dict[str, ir.Module] = {}

    def symbol_for(self, module: ir.Operation, name: str, key: Any, make: Any) -> str | None:
        self.modules[f"of_library_{name}"] = make(f"of_library_{name}")
        return f"of_library_{name}"


@pytest.fixture
def recorded() -> Any:
    made = Recorded()
    token = library.set(made)
    yield made
    library.reset(token)


def loops(name: str, bounds: str, extent: int, type_: str = "vector<8xf32>") -> str:
    """A function with an array, and a loop over parts of it in a loop of two trips."""
    results = "%y, %z" if name == "math.sincos" else "%y"
    operands = "%x, %x" if name in ("math.powf", "math.atan2", "arith.remf") else "%x"
    made = "i1" if name.startswith("math.is") else type_
    return f"""
      func.func @f(%m: memref<{extent}xf32>, %n: index, %x: {type_}) {{
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %c2 = arith.constant 2 : index
        %trips = arith.constant {bounds if bounds.isdigit() else 0} : index
        scf.for %i = %c0 to %c2 step %c1 {{
          scf.for %j = %c0 to {"%trips" if bounds.isdigit() else bounds} step %c2 {{
            {results} = {name} {operands} : {type_}
            func.call @use(%y) : ({made}) -> ()
          }}
        }}
        return
      }}
      func.func private @use({made})
    """


@pytest.mark.parametrize("above", [-1, 0, 1])
@pytest.mark.parametrize("is_known", [True, False])
def test_what_is_for_few_elements_is_a_call(recorded: Recorded, above: int, is_known: bool) -> None:
    """A loop whose trips are not known is as long as the array."""
    trips = MOST_EVALUATED.usual // 2 + above
    text = loops("math.exp", str(2 * trips) if is_known else "%n", trips)
    made = expanded(text)
    assert ("call @of_library_math_exp_vector_8xf32(" in made) == (above <= 0)
    assert names(made) <= NATIVE
    for module in recorded.modules.values():
        assert module.operation.verify()
        assert names(str(module)) <= NATIVE
    assert "call @of_library" not in library_free(text)


def library_free(text: str) -> str:
    token = library.set(None)
    try:
        return expanded(text)
    finally:
        library.reset(token)


@pytest.mark.parametrize("name", sorted(LONG | SHORT | {"math.log"}))
def test_long_functions_are_calls_and_short_ones_are_not(recorded: Recorded, name: str) -> None:
    many, few = (expanded(loops(name, bounds, 1 << 20, "f32")) for bounds in ("1048576", "2"))
    assert ("call @of_library" in many) == (name in LONG)
    assert ("call @of_library" in few) == (name not in SHORT)
    assert names(many) | names(few) <= NATIVE


def test_functions_of_one_angle_stay_together(recorded: Recorded) -> None:
    """In place, they have one argument reduction."""
    text = loops("math.sin", "1048576", 1 << 20, "f32")
    both = text.replace("%y = math.sin %x : f32", "%y = math.sin %x : f32\n%z = math.cos %x : f32")
    assert "call @of_library" in expanded(text)
    assert "call @of_library" not in expanded(both)


def test_what_is_rounded_to_bf16_or_not_ours_is_expanded_in_place(recorded: Recorded) -> None:
    text = """
      func.func @f(%x: vector<8xf32>) -> vector<8xbf16> {
        %y = math.sin %x : vector<8xf32>
        %z = math.exp %y : vector<8xf32>
        %r = arith.truncf %z : vector<8xf32> to vector<8xbf16>
        return %r : vector<8xbf16>
      }
    """
    made = expanded(text)
    assert re.findall(r"call @of_library_(\w+)", made) == ["math_sin_vector_8xf32"]
    assert names(made) <= NATIVE


def test_a_library_that_is_not_for_a_module_changes_nothing(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "symbol_for", lambda *_: None)
    for text in (loops("math.sin", "1048576", 8, "f32"), loops("math.exp", "2", 8, "f32"), quotient()):
        assert expanded(text) == library_free(text)


def test_arrays_of_unknown_length_may_be_long(recorded: Recorded) -> None:
    text = loops("math.exp", "%n", 2).replace("memref<2xf32>", "memref<2xf32>, %more: memref<?xf32>")
    assert "call @of_library" not in expanded(text)


def test_device_code_and_loops_of_unknown_work_call_no_library(recorded: Recorded) -> None:
    text = "gpu.module @g { func.func @f(%x: f32) -> f32 { %1 = math.exp %x : f32 return %1 : f32 } }"
    assert "call" not in expanded(text)
    text = """
      func.func @f(%x: f32, %p: i1) -> f32 {
        %0 = scf.while (%y = %x) : (f32) -> f32 {
          scf.condition(%p) %y : f32
        } do {
        ^bb0(%y: f32):
          %z = math.exp %y : f32
          scf.yield %z : f32
        }
        return %0 : f32
      }
    """
    assert "call" not in expanded(text)
