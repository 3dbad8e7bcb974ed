"""The operations of the dialects that jaxlib has, and what becomes of each here: by rules, or by trying a program."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import NamedTuple

import stablexla as sx
from stablexla.dialects.composites import COMPOSITES
from stablexla.lowering.support.registry import RULES
from stablexla.targets.registry import find_target
from stablexla.targets.stablehlo.imports.replacements import REPLACEMENTS

DIALECTS = {"stablehlo": "StableHLO", "chlo": "CHLO", "mhlo": "MHLO"}
V, P, N, C = "tensor<2x3xf32>", "tensor<2x3xi1>", "tensor<2x3xi32>", "tensor<2x3xcomplex<f32>>"
_FLOATS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "cosh", "digamma", "erf", "erf_inv", "erfc"),
    *("lgamma", "sinh", "square", "tan"),
)
_BINARY = ("add", "atan2", "divide", "maximum", "minimum", "multiply", "next_after", "polygamma", "power", "remainder")
_INTEGERS = ("and", "or", "shift_left", "shift_right_arithmetic", "shift_right_logical", "xor")
_RAGGED = "lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], \
rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]"


def _one(name: str, operands: str, result: str, attributes: str = "") -> str:
    """A program of one operation on the parameters %0, %1 ... of these types."""
    types = operands.split(", ") if operands else []
    parameters = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
    values = ", ".join(f"%a{i}" for i in range(len(types)))
    return f"""func.func @main({parameters}) -> {result} {{
      %r = "{name}"({values}) {{{attributes}}} : ({operands}) -> {result}
      return %r : {result}
    }}"""


SCAN = """func.func @main(%x: tensor<3xf32>, %i: tensor<f32>) -> tensor<f32> {
  %r:2 = chlo.scan(%x) inits(%i) dimension=0 {
  ^bb0(%a: tensor<f32>, %c: tensor<f32>):
    %s = stablehlo.add %a, %c : tensor<f32>
    stablehlo.return %s, %s : tensor<f32>, tensor<f32>
  } : (tensor<3xf32>, tensor<f32>) -> (tensor<3xf32>, tensor<f32>)
  return %r#1 : tensor<f32>
}"""
TOP_K = """func.func @main(%x: tensor<9xf32>) -> (tensor<3xf32>, tensor<3xi32>) {
  %v, %i = chlo.top_k(%x, k = 3) : tensor<9xf32> -> (tensor<3xf32>, tensor<3xi32>)
  return %v, %i : tensor<3xf32>, tensor<3xi32>
}"""
TUPLES = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %t = stablehlo.tuple %x, %x : tuple<tensor<3xf32>, tensor<3xf32>>
  %r = stablehlo.get_tuple_element %t[1] : (tuple<tensor<3xf32>, tensor<3xf32>>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}"""
ASYNC = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %f = "stablehlo.async_start"(%x) ({
  ^bb0(%a: tensor<3xf32>):
    %r = "stablehlo.collective_permute"(%a) {source_target_pairs = dense<0> : tensor<1x2xi64>}
        : (tensor<3xf32>) -> tensor<3xf32>
    stablehlo.return %r : tensor<3xf32>
  }) : (tensor<3xf32>) -> !stablehlo.future<tensor<3xf32>>
  %r = "stablehlo.async_done"(%f) : (!stablehlo.future<tensor<3xf32>>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}"""
MHLO_ASYNC = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "mhlo.async_start"(%x) {called_computation = @f, execution_thread = "main"}
      : (tensor<3xf32>) -> !mhlo.async_bundle<tensor<3xf32>, tensor<3xf32>>
  %1 = "mhlo.async_update"(%0) : (!mhlo.async_bundle<tensor<3xf32>, tensor<3xf32>>)
      -> !mhlo.async_bundle<tensor<3xf32>, tensor<3xf32>>
  %2 = "mhlo.async_done"(%1) : (!mhlo.async_bundle<tensor<3xf32>, tensor<3xf32>>) -> tensor<3xf32>
  return %2 : tensor<3xf32>
}
func.func private @f(%x: tensor<3xf32>) -> tensor<3xf32> attributes {execution_thread = "main"} {
  %r = mhlo.negate %x : tensor<3xf32>
  return %r : tensor<3xf32>
}"""
QUANTIZED = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %q = stablehlo.uniform_quantize %x : (tensor<3xf32>) -> tensor<3x!quant.uniform<i8:f32, 0.5>>
  %r = stablehlo.uniform_dequantize %q : (tensor<3x!quant.uniform<i8:f32, 0.5>>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}"""
SIZED = """func.func @main(%x: tensor<3xf32>, %n: tensor<i32>) -> tensor<f32> {
  %s = "stablehlo.set_dimension_size"(%x, %n) {dimension = 0 : i64}
      : (tensor<3xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<3>>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [0]
      : (tensor<?xf32, #stablehlo.bounds<3>>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}"""
SAMPLES = {
    **{f"chlo.{name}": _one(f"chlo.{name}", V, V) for name in _FLOATS},
    **{f"chlo.broadcast_{name}": _one(f"chlo.broadcast_{name}", f"{V}, tensor<3xf32>", V) for name in _BINARY},
    "chlo.broadcast_subtract": _one("chlo.broadcast_subtract", f"{V}, tensor<3xf32>", V),
    "chlo.broadcast_zeta": _one("chlo.broadcast_zeta", f"{V}, tensor<3xf32>", V),
    **{f"chlo.broadcast_{name}": _one(f"chlo.broadcast_{name}", f"{N}, tensor<3xi32>", N) for name in _INTEGERS},
    **{f"chlo.{name}": _one(f"chlo.{name}", f"{V}, {V}", V) for name in ("next_after", "polygamma", "zeta")},
    **{f"chlo.{name}": _one(f"chlo.{name}", V, P) for name in ("is_inf", "is_neg_inf", "is_pos_inf")},
    "chlo._asin_acos_kernel": _one("chlo._asin_acos_kernel", C, C),
    "chlo.broadcast_compare": _one(
        "chlo.broadcast_compare", f"{V}, tensor<3xf32>", P, "comparison_direction = #chlo<comparison_direction LT>"
    ),
    "chlo.broadcast_complex": _one("chlo.broadcast_complex", f"{V}, tensor<3xf32>", C),
    "chlo.broadcast_select": _one("chlo.broadcast_select", f"{P}, {V}, tensor<f32>", V),
    "chlo.conj": _one("chlo.conj", C, C),
    "chlo.constant": _one("chlo.constant", "", "tensor<2xf32>", "value = dense<[1.0, 2.0]> : tensor<2xf32>"),
    "chlo.constant_like": _one("chlo.constant_like", V, V, "value = 2.5 : f32"),
    "chlo.mulhi": _one("chlo.mulhi", f"{N}, {N}", N),
    "chlo.ragged_dot": _one(
        *("chlo.ragged_dot", "tensor<4x3xf32>, tensor<2x3x5xf32>, tensor<2xi32>", "tensor<4x5xf32>"),
        f"ragged_dot_dimension_numbers = #chlo.ragged_dot<{_RAGGED}>, precision_config = []",
    ),
    "chlo.scan": SCAN,
    "chlo.top_k": TOP_K,
    "stablehlo.async_done": ASYNC,
    "stablehlo.async_start": ASYNC,
    "stablehlo.get_tuple_element": TUPLES,
    "stablehlo.return": SCAN,
    "stablehlo.set_dimension_size": SIZED,
    "stablehlo.tuple": TUPLES,
    "stablehlo.uniform_dequantize": QUANTIZED,
    "stablehlo.uniform_quantize": QUANTIZED,
    **{f"mhlo.{name}": _one(f"mhlo.{name}", V, V) for name in ("bitcast", "copy", "erf")},
    **{
        f"mhlo.{name}": _one(f"mhlo.{name}", V, V)
        for name in ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh")
    },
    **{f"mhlo.{name}": _one(f"mhlo.{name}", V, V) for name in ("exp2", "log2")},
    "mhlo.add_dependency": """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %t = "mhlo.create_token"() : () -> !mhlo.token
      %r = "mhlo.add_dependency"(%x, %t) : (tensor<3xf32>, !mhlo.token) -> tensor<3xf32>
      return %r : tensor<3xf32>
    }""",
    "mhlo.async_update": MHLO_ASYNC,
    "mhlo.domain": _one("mhlo.domain", V, V, 'kind = #mhlo<kind sharding>, entry_metadata = "", exit_metadata = ""'),
    "mhlo.fusion": """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %r = "mhlo.fusion"(%x) ({
      ^bb0(%a: tensor<3xf32>):
        %n = mhlo.negate %a : tensor<3xf32>
        mhlo.return %n : tensor<3xf32>
      }) {fusion_kind = #mhlo<fusion_kind kLoop>} : (tensor<3xf32>) -> tensor<3xf32>
      return %r : tensor<3xf32>
    }""",
    "mhlo.minimum_broadcast_shapes": """func.func @main(%x: tensor<2xindex>) -> tensor<2xindex> {
      %r:2 = "mhlo.minimum_broadcast_shapes"(%x, %x)
          : (tensor<2xindex>, tensor<2xindex>) -> (tensor<2xindex>, tensor<2xindex>)
      return %r#0 : tensor<2xindex>
    }""",
    "mhlo.mulhi": _one("mhlo.mulhi", f"{N}, {N}", N),
    "mhlo.ragged_dot": _one(
        *("mhlo.ragged_dot", "tensor<4x3xf32>, tensor<2x3x5xf32>, tensor<2xi32>", "tensor<4x5xf32>"),
        "ragged_dot_dimension_numbers = #mhlo.ragged_dot<dot_dimension_numbers = #mhlo.dot<lhs_contracting_dimensions "
        "= [1], rhs_contracting_dimensions = [1]>, lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>, "
        "precision_config = []",
    ),
    "mhlo.scan": """func.func @main(%x: tensor<3xf32>, %i: tensor<f32>) -> tensor<f32> {
      %r:2 = "mhlo.scan"(%x, %i) ({
      ^bb0(%a: tensor<f32>, %c: tensor<f32>):
        %s = mhlo.add %a, %c : tensor<f32>
        mhlo.return %s, %s : tensor<f32>, tensor<f32>
      }) {dimension = 0 : i64, operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>}
          : (tensor<3xf32>, tensor<f32>) -> (tensor<3xf32>, tensor<f32>)
      return %r#1 : tensor<f32>
    }""",
    "mhlo.stochastic_convert": _one("mhlo.stochastic_convert", f"{V}, tensor<2x3xui32>", "tensor<2x3xi8>"),
    "mhlo.topk": """func.func @main(%x: tensor<9xf32>) -> tensor<3xf32> {
      %r:2 = "mhlo.topk"(%x) {k = 3 : i64} : (tensor<9xf32>) -> (tensor<3xf32>, tensor<3xi32>)
      return %r#0 : tensor<3xf32>
    }""",
    "mhlo.trace": """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      "mhlo.trace"(%x) {tag = "x"} : (tensor<3xf32>) -> ()
      return %x : tensor<3xf32>
    }""",
    "mhlo.xla.rng_get_and_update_state": _one(
        "mhlo.xla.rng_get_and_update_state", "", "tensor<2xui64>", "delta = 1 : i64"
    ),
}
"""A program for each operation that no rule is registered for, and that is not StableHLO's under another name."""

REASONS = {
    "mhlo.minimum_broadcast_shapes": "its sizes are of the type index, which no array of XLA's has",
    "mhlo.trace": "XLA's own; it computes nothing",
}
"""Why operations are refused."""


class State(NamedTuple):
    """The support state of an operation.

    Attributes:
        name: with its dialect.
        runs: whether programs with it run.
        how: in a few words; "" when there is no state, which is a fault.
    """

    name: str
    runs: bool
    how: str


def operations(dialect: str) -> list[str]:
    """The operations of a dialect in the installed jaxlib."""
    module = importlib.import_module(f"jaxlib.mlir.dialects._{dialect}_ops_gen")
    found = (getattr(value, "OPERATION_NAME", None) for value in vars(module).values())
    return sorted({name for name in found if name})


def states(dialect: str) -> Iterator[State]:
    """The state of each operation of a dialect."""
    find_target("cpu")  # registers all rules
    for name in operations(dialect):
        yield _state(name)


def _state(name: str) -> State:
    same = f"stablehlo.{name.partition('.')[2]}"
    if name in RULES:
        return State(name, True, "a lowering rule")
    if name in REPLACEMENTS:
        return State(name, True, "written out in other operations")
    if name in COMPOSITES and name in SAMPLES and _runs(name):
        return State(name, True, "a lowering rule, as a composite")
    if name in SAMPLES:
        runs = _runs(name)
        return State(name, runs, WAYS.get(name.partition(".")[0], "") if runs else REASONS.get(name, ""))
    if name.startswith("mhlo.") and same in operations("stablehlo"):
        return State(name, True, f"read as `{same}`")
    return State(name, False, "")


WAYS = {
    "stablehlo": "taken apart or resolved before the lowering",
    "chlo": "its decomposition",
    "mhlo": "read as StableHLO or CHLO",
}


def _runs(name: str) -> bool:
    try:
        sx.compile(SAMPLES[name])
    except sx.StablexlaError:
        return False
    return True


def section() -> str:
    """The section of docs/interop_formats.md."""
    lines = ["## Operations of the dialects", ""]
    lines += ["Taken from the installed dialects. Operations of which a program was compiled are marked by a star.", ""]
    for dialect, title in DIALECTS.items():
        found = list(states(dialect))
        lines += [f"### {title}: {sum(s.runs for s in found)} of {len(found)}", ""]
        lines += ["| state | operations |", "|---|---|"]
        for how in dict.fromkeys(_row(s) for s in found):
            lines.append(f"| {how} | {', '.join(_shown(s) for s in found if _row(s) == how)} |")
        lines.append("")
    return "\n".join(lines)


def _row(state: State) -> str:
    if state.how.startswith("read as `"):
        return "read as StableHLO's of the same name"
    return state.how if state.runs else f"refused: {state.how}"


def _shown(state: State) -> str:
    return f"`{state.name.partition('.')[2]}`" + "*" * (state.name in SAMPLES)
