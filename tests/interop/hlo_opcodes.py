"""A small program of HLO for each of its opcodes, as XLA prints them; docs/hlo_opcodes.md is made by running them.

Opcodes that differ in nothing but their name and element types share a text.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxlib import _hlo

_ADD = "add_ { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }\n"
_SELECT_LARGER = "ge { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=GE }\n"
_DOUBLE = "double { a = f32[4] parameter(0)  ROOT b = f32[4] add(a, a) }\n"
_X = "x = f32[4] parameter(0)"


def _entry(*lines: str) -> str:
    """The entry computation of some instructions, of which the last is the root."""
    *before, last = lines
    return "ENTRY main {\n" + "".join(f"  {line}\n" for line in before) + f"  ROOT {last}\n}}\n"


def _elementwise(opcode: str, operands: int, element: str, result: str = "") -> str:
    names = "xyz"[:operands]
    lines = [f"{name} = {element}[4] parameter({number})" for number, name in enumerate(names)]
    return _entry(*lines, f"r = {result or element}[4] {opcode}({', '.join(names)})")


ELEMENTWISE = {
    ("f32", 1): """abs cbrt ceil cosine erf exponential exponential-minus-one floor log log-plus-one logistic negate
        round-nearest-afz round-nearest-even rsqrt sign sine sqrt tan tanh""",
    ("f32", 2): "add atan2 divide maximum minimum multiply power remainder subtract",
    ("s32", 1): "count-leading-zeros not popcnt",
    ("s32", 2): "and or shift-left shift-right-arithmetic shift-right-logical xor",
}


def elementwise_together(element: str, operands: int) -> str:
    """A program with all opcodes on as many operands of an element type, each a result."""
    names = "xyz"[:operands]
    lines = [f"{name} = {element}[4] parameter({number})" for number, name in enumerate(names)]
    opcodes = ELEMENTWISE[element, operands].split()
    lines += [f"r{i} = {element}[4] {opcode}({', '.join(names)})" for i, opcode in enumerate(opcodes)]
    types = ", ".join([f"{element}[4]"] * len(opcodes))
    return _entry(*lines, f"t = ({types}) tuple({', '.join(f'r{i}' for i in range(len(opcodes)))})")


def _all_elementwise() -> Iterator[tuple[str, str]]:
    for (element, operands), opcodes in ELEMENTWISE.items():
        for opcode in opcodes.split():
            yield opcode, _elementwise(opcode, operands, element)


def _collective(opcode: str, result: str, *attributes: str, before: str = "", operands: str = "x") -> str:
    lines = [f"{name} = f32[4] parameter({number})" for number, name in enumerate(operands.split(", "))]
    return before + _entry(*lines, f"r = {result} {opcode}({operands}), {', '.join(attributes)}")


def _pair(start: str, bundle: str, done: str, *attributes: str, before: str = "", middle: str = "") -> str:
    """A program that starts an operation and waits for it."""
    source, between = ("u", [f"u = {bundle} {middle}(s)"]) if middle else ("s", [])
    begun = ", ".join([f"s = {bundle} {start}(x)", *attributes])
    return before + _entry(_X, begun, *between, f"r = f32[4] {done}({source})")


_GROUPS = "replica_groups={{0,1}}"
_BUNDLE = "((f32[4]), f32[4], u32[])"
_ASYNC = _pair("async-start", _BUNDLE, "async-done", "calls=double", before=_DOUBLE, middle="async-update")
_REDUCING = _pair("all-reduce-start", "f32[4]", "all-reduce-done", _GROUPS, "to_apply=add_", before=_ADD)
_GATHERING = _entry(
    _X,
    f"s = (f32[4], f32[8]) all-gather-start(x), {_GROUPS}, dimensions={{0}}",
    "r = f32[8] all-gather-done(s)",
)
_PERMUTING = _pair(
    "collective-permute-start",
    "(f32[4], f32[4], u32[], u32[])",
    "collective-permute-done",
    "source_target_pairs={{0,1},{1,0}}",
)
_COPYING = _pair("copy-start", "(f32[4], f32[4], u32[])", "copy-done")
_TOKEN = "t = token[] after-all()"
_SENDING = _entry(
    _X,
    _TOKEN,
    "s = (f32[4], u32[], token[]) send(x, t), channel_id=1",
    "sd = token[] send-done(s), channel_id=1",
    "v = (f32[4], u32[], token[]) recv(t), channel_id=2",
    "vd = (f32[4], token[]) recv-done(v), channel_id=2",
    "r = f32[4] get-tuple-element(vd), index=0",
)
_NORMS = [f"{name} = f32[3] parameter({number + 1})" for number, name in enumerate("abcd")]
_IMAGES = "x = f32[2,3] parameter(0)"
_THREE = "(f32[2,3], f32[3], f32[3])"

_OPCODES = {name for name in dir(_hlo.HloOpcode) if name.startswith("k")}


def _is_installed(opcode: str) -> bool:
    return "k" + "".join(word.capitalize() for word in opcode.split("-")) in _OPCODES


_NEW = {
    **{name: _elementwise(name, 1, "f32") for name in ("exp2", "log2")},
    "collective-reduce": _collective("collective-reduce", "f32[4]", _GROUPS, "to_apply=add_", before=_ADD),
    "shuffle": _entry(_X, "r = f32[4] shuffle(x), dimensions={0}, mode=rotate, shifts={1}"),
}
"""Opcodes that a supported jaxlib may lack."""

SAMPLES: dict[str, str] = {
    **{name: text for name, text in _NEW.items() if _is_installed(name)},
    **dict(_all_elementwise()),
    **{name: _elementwise(name, 1, "f32") for name in ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh")},
    "mulhi": _elementwise("mulhi", 2, "u32"),
    "add-dependency": _entry(_X, _TOKEN, "r = f32[4] add-dependency(x, t)"),
    "after-all": _entry(_X, "a = token[] after-all()", _TOKEN, "u = token[] after-all(a, t)", "r = f32[4] negate(x)"),
    "all-gather": _collective("all-gather", "f32[8]", _GROUPS, "dimensions={0}"),
    "all-gather-start": _GATHERING,
    "all-gather-done": _GATHERING,
    "all-reduce": _collective("all-reduce", "f32[4]", _GROUPS, "to_apply=add_", before=_ADD),
    "all-reduce-start": _REDUCING,
    "all-reduce-done": _REDUCING,
    "all-to-all": _collective("all-to-all", "(f32[4], f32[4])", _GROUPS, operands="x, y"),
    "async-start": _ASYNC,
    "async-update": _ASYNC,
    "async-done": _ASYNC,
    "batch-norm-grad": _entry(
        _IMAGES,
        *_NORMS[:3],
        "g = f32[2,3] parameter(4)",
        f"r = {_THREE} batch-norm-grad(x, a, b, c, g), epsilon=0.001, feature_index=1",
    ),
    "batch-norm-inference": _entry(
        _IMAGES,
        *_NORMS[:3],
        "v = f32[3] parameter(4)",
        "w = f32[3] abs(v)",
        "r = f32[2,3] batch-norm-inference(x, a, b, c, w), epsilon=0.001, feature_index=1",
    ),
    "batch-norm-training": _entry(
        _IMAGES,
        *_NORMS[:2],
        f"r = {_THREE} batch-norm-training(x, a, b), epsilon=0.001, feature_index=1",
    ),
    "bitcast": _entry("x = f32[4,6]{1,0} parameter(0)", "r = f32[2,3,4]{0,1,2} bitcast(x)"),
    "bitcast-convert": _elementwise("bitcast-convert", 1, "f32", "s32"),
    "broadcast": _entry(_X, "r = f32[4,3] broadcast(x), dimensions={0}"),
    "call": _DOUBLE + _entry(_X, "r = f32[4] call(x), to_apply=double"),
    "cholesky": _entry(
        "x = f32[3,3] parameter(0)",
        "c = f32[3,3] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "i = s32[3,3] iota(), iota_dimension=0",
        "j = s32[3,3] iota(), iota_dimension=1",
        "e = pred[3,3] compare(i, j), direction=EQ",
        "f = f32[3,3] convert(e)",
        "s = f32[3,3] add(c, f)",
        "r = f32[3,3] cholesky(s), lower=true",
    ),
    "clamp": _elementwise("clamp", 3, "f32"),
    "collective-broadcast": _collective("collective-broadcast", "f32[4]", _GROUPS),
    "collective-permute": _collective("collective-permute", "f32[4]", "source_target_pairs={{0,1},{1,0}}"),
    "collective-permute-start": _PERMUTING,
    "collective-permute-done": _PERMUTING,
    "compare": _entry(_X, "y = f32[4] parameter(1)", "r = pred[4] compare(x, y), direction=LT"),
    "complex": _elementwise("complex", 2, "f32", "c64"),
    "concatenate": _entry(_X, "y = f32[3] parameter(1)", "r = f32[7] concatenate(x, y), dimensions={0}"),
    "conditional": _DOUBLE
    + "same { a = f32[4] parameter(0)  ROOT b = f32[4] negate(a) }\n"
    + _entry(
        _X,
        "p = pred[] parameter(1)",
        "r = f32[4] conditional(p, x, x), true_computation=double, false_computation=same",
    ),
    "constant": _entry(_X, "c = f32[4] constant({1, -2, 0.5, inf})", "r = f32[4] add(x, c)"),
    "convert": _elementwise("convert", 1, "f32", "bf16"),
    "convolution": _entry(
        "x = f32[1,6,6,2] parameter(0)",
        "w = f32[3,3,2,4] parameter(1)",
        "r = f32[1,3,3,4] convolution(x, w), window={size=3x3 stride=2x2 pad=1_1x0_1}, dim_labels=b01f_01io->b01f",
    ),
    "copy": _entry("x = f32[2,3]{1,0} parameter(0)", "r = f32[2,3]{0,1} copy(x)"),
    "copy-start": _COPYING,
    "copy-done": _COPYING,
    "custom-call": "more { a = f32[] parameter(0)  b = f32[] parameter(1)  i = s32[] parameter(2)\n"
    "  j = s32[] parameter(3)  ROOT c = pred[] compare(a, b), direction=GT }\n"
    + _entry(
        "x = f32[2,9] parameter(0)",
        'r = (f32[2,3], s32[2,3]) custom-call(x), custom_call_target="TopK", called_computations={more}',
    ),
    "divide": _elementwise("divide", 2, "f32"),
    "domain": _entry(_X, 'r = f32[4] domain(x), domain={kind="sharding", entry={replicated}, exit={replicated}}'),
    "dot": _entry(
        "x = f32[2,3,4] parameter(0)",
        "y = f32[4,2,5] parameter(1)",
        "r = f32[2,3,5] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={1}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={0}",
    ),
    "dynamic-reshape": _entry(
        "x = f32[12] parameter(0)",
        "a = s32[] constant(3)",
        "b = s32[] constant(4)",
        "r = f32[3,4] dynamic-reshape(x, a, b)",
    ),
    "dynamic-slice": _entry(_X, "i = s32[] parameter(1)", "r = f32[2] dynamic-slice(x, i), dynamic_slice_sizes={2}"),
    "dynamic-update-slice": _entry(
        _X, "y = f32[2] parameter(1)", "i = s32[] parameter(2)", "r = f32[4] dynamic-update-slice(x, y, i)"
    ),
    "fft": _entry("x = c64[2,8] parameter(0)", "r = c64[2,8] fft(x), fft_type=FFT, fft_length={8}"),
    "fusion": _DOUBLE + _entry(_X, "r = f32[4] fusion(x), kind=kLoop, calls=double"),
    "gather": _entry(
        "x = f32[5,3] parameter(0)",
        "i = s32[4] parameter(1)",
        "r = f32[4,3] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,3}",
    ),
    "get-dimension-size": _entry(_X, "r = s32[] get-dimension-size(x), dimensions={0}"),
    "get-tuple-element": _entry(_X, "t = (f32[4], f32[4]) tuple(x, x)", "r = f32[4] get-tuple-element(t), index=1"),
    "imag": _elementwise("imag", 1, "c64", "f32"),
    "infeed": _entry(_TOKEN, "i = (f32[4], token[]) infeed(t)", "r = f32[4] get-tuple-element(i), index=0"),
    "iota": _entry("r = f32[3,4] iota(), iota_dimension=1"),
    "is-finite": _elementwise("is-finite", 1, "f32", "pred"),
    "map": "square { a = f32[] parameter(0)  ROOT b = f32[] multiply(a, a) }\n"
    + _entry(_X, "r = f32[4] map(x), dimensions={0}, to_apply=square"),
    "opt-barrier": _entry(
        _X, "t = (f32[4]) tuple(x)", "b = (f32[4]) opt-barrier(t)", "r = f32[4] get-tuple-element(b), index=0"
    ),
    "outfeed": _entry(_X, _TOKEN, "o = token[] outfeed(x, t), outfeed_shape=f32[4]", "r = f32[4] negate(x)"),
    "pad": _entry(_X, "z = f32[] constant(7)", "r = f32[9] pad(x, z), padding=1_1_1"),
    "parameter": _entry(_X),
    "partition-id": _entry("r = u32[] partition-id()"),
    "ragged-all-to-all": _entry(
        _X,
        "y = f32[4] parameter(1)",
        "a = s32[2] constant({0, 1})",
        "b = s32[2] constant({1, 1})",
        "c = s32[2] constant({0, 0})",
        f"r = f32[4] ragged-all-to-all(x, y, a, b, c, b), {_GROUPS}",
    ),
    "ragged-dot": _entry(
        "x = f32[5,3] parameter(0)",
        "y = f32[2,3,4] parameter(1)",
        "g = s32[2] constant({2, 3})",
        "r = f32[5,4] ragged-dot(x, y, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
        "lhs_ragged_dims={0}, rhs_group_dims={0}",
    ),
    "real": _elementwise("real", 1, "c64", "f32"),
    "recv": _SENDING,
    "recv-done": _SENDING,
    "reduce": _ADD
    + _entry(
        "x = f32[3,4] parameter(0)", "z = f32[] constant(0)", "r = f32[3] reduce(x, z), dimensions={1}, to_apply=add_"
    ),
    "reduce-precision": _entry(_X, "r = f32[4] reduce-precision(x), exponent_bits=5, mantissa_bits=10"),
    "reduce-scatter": _collective("reduce-scatter", "f32[2]", _GROUPS, "dimensions={0}", "to_apply=add_", before=_ADD),
    "reduce-window": _ADD
    + _entry(
        "x = f32[6] parameter(0)",
        "z = f32[] constant(0)",
        "r = f32[3] reduce-window(x, z), window={size=3 stride=2 pad=1_0}, to_apply=add_",
    ),
    "replica-id": _entry("r = u32[] replica-id()"),
    "reshape": _entry("x = f32[4,3] parameter(0)", "r = f32[2,6] reshape(x)"),
    "reverse": _entry("x = f32[4,3] parameter(0)", "r = f32[4,3] reverse(x), dimensions={1}"),
    "rng": _entry("a = f32[] constant(0)", "b = f32[] constant(1)", "r = f32[4] rng(a, b), distribution=rng_uniform"),
    "rng-bit-generator": _entry(
        "s = u64[2] constant({1, 2})", "r = (u64[2], u32[4]) rng-bit-generator(s), algorithm=rng_philox"
    ),
    "rng-get-and-update-state": _entry("r = u64[2] rng-get-and-update-state(), delta=1"),
    "scaled-dot": _entry(
        "x = f8e4m3fn[2,64] parameter(0)",
        "y = f8e4m3fn[64,3] parameter(1)",
        "a = f8e8m0fnu[2,2] parameter(2)",
        "b = f8e8m0fnu[2,3] parameter(3)",
        "r = f32[2,3] scaled-dot(x, y, a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "scan": "step { x = f32[] parameter(0)  c = f32[] parameter(1)  s = f32[] add(c, x)\n"
    "  ROOT t = (f32[], f32[]) tuple(c, s) }\n"
    + _entry(
        _X,
        "z = f32[] constant(0)",
        "r = (f32[4], f32[]) scan(x, z), dimensions={0}, to_apply=step, num_carries=1",
    ),
    "scatter": _ADD
    + _entry(
        "x = f32[5,3] parameter(0)",
        "i = s32[2,1] parameter(1)",
        "u = f32[2,3] parameter(2)",
        "r = f32[5,3] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add_",
    ),
    "select": _entry(
        "p = pred[4] parameter(0)", "x = f32[4] parameter(1)", "y = f32[4] parameter(2)", "r = f32[4] select(p, x, y)"
    ),
    "select-and-scatter": _SELECT_LARGER
    + _ADD
    + _entry(
        "x = f32[6] parameter(0)",
        "y = f32[3] parameter(1)",
        "z = f32[] constant(0)",
        "r = f32[6] select-and-scatter(x, y, z), window={size=2 stride=2}, select=ge, scatter=add_",
    ),
    "send": _SENDING,
    "send-done": _SENDING,
    "set-dimension-size": _entry(_X, "n = s32[] constant(2)", "r = f32[<=4] set-dimension-size(x, n), dimensions={0}"),
    "slice": _entry("x = f32[8] parameter(0)", "r = f32[3] slice(x), slice={[1:7:2]}"),
    "sort": "lt { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }\n"
    + _entry(_X, "r = f32[4] sort(x), dimensions={0}, to_apply=lt"),
    "stochastic-convert": _entry(_X, "y = u32[4] parameter(1)", "r = s32[4] stochastic-convert(x, y)"),
    "topk": _entry("x = f32[2,9] parameter(0)", "r = (f32[2,3], s32[2,3]) topk(x), k=3, largest=true"),
    "transpose": _entry("x = f32[2,3,4] parameter(0)", "r = f32[4,2,3] transpose(x), dimensions={2,0,1}"),
    "triangular-solve": _entry(
        "x = f32[3,3] parameter(0)",
        "y = f32[3,2] parameter(1)",
        "r = f32[3,2] triangular-solve(x, y), left_side=true, lower=true, unit_diagonal=true, transpose_a=NO_TRANSPOSE",
    ),
    "tuple": _entry(_X, "r = (f32[4], f32[4]) tuple(x, x)"),
    "while": "more { s = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(s), index=0\n"
    "  n = s32[] constant(3)  ROOT c = pred[] compare(i, n), direction=LT }\n"
    "step { s = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(s), index=0\n"
    "  x = f32[4] get-tuple-element(s), index=1  one = s32[] constant(1)  j = s32[] add(i, one)\n"
    "  y = f32[4] add(x, x)  ROOT t = (s32[], f32[4]) tuple(j, y) }\n"
    + _entry(
        _X,
        "z = s32[] constant(0)",
        "t = (s32[], f32[4]) tuple(z, x)",
        "w = (s32[], f32[4]) while(t), condition=more, body=step",
        "r = f32[4] get-tuple-element(w), index=1",
    ),
}
