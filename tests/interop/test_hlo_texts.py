"""HLO that XLA's conversion to StableHLO misreads or refuses, and texts without a header."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from jaxlib import _hlo

import stablexla as sx
from stablexla.interop.encodings.formats import Format, recognise
from stablexla.interop.hlo.proto import Devices, prepare
from tests.comparison import assert_same
from tests.interop.hlo_oracle import ours, xla

X = np.array([1.0, -2.0, 0.5, 3.0], np.float32)
NAMES = {
    "float32": "f32",
    "int32": "s32",
    "uint8": "u8",
    "int16": "s16",
    "float64": "f64",
}


def entry(*lines: str, before: str = "", header: str = "") -> str:
    *first, last = lines
    return f"HloModule m{header}\n\n{before}\nENTRY e {{\n" + "".join(f"{x}\n" for x in first) + f"ROOT {last}\n}}\n"


def shape(dtype: np.dtype, extents: list[int], order: list[int]) -> str:
    """A shape with its layout, from the slowest dimension in memory to the fastest."""
    listed = ",".join(map(str, reversed(order)))
    return f"{NAMES[dtype.name]}[{','.join(map(str, extents))}]{{{listed}}}"


class TestLayouts:
    @pytest.mark.parametrize("seed", range(12))
    def test_a_bitcast_reads_the_same_bytes(self, seed: int) -> None:
        """Random shapes, layouts and element types, against the bytes that numpy has in memory."""
        rng = np.random.default_rng(seed)
        kinds = [np.dtype(t) for t in ("float32", "int32", "uint8", "int16", "float64")]
        source, target = (kinds[i] for i in rng.integers(0, len(kinds), 2))
        given, wanted = [2, 3, 16], [6, 2, 8 * source.itemsize // target.itemsize] if seed % 2 else [4, 3, 8]
        if not seed % 2:
            target = source
        first, second = rng.permutation(3).tolist(), rng.permutation(3).tolist()
        text = entry(
            f"x = {shape(source, given, first)} parameter(0)", f"y = {shape(target, wanted, second)} bitcast(x)"
        )
        x = rng.integers(-9, 99, given).astype(source)
        memory = np.ascontiguousarray(x.transpose(first)).reshape(-1).view(target)
        expected = memory.reshape([wanted[d] for d in second]).transpose(np.argsort(second))
        actual = ours(text, [x])[0]
        assert (actual.dtype, actual.shape) == (target, expected.shape)
        assert np.ascontiguousarray(actual).tobytes() == np.ascontiguousarray(expected).tobytes()

    def test_booleans_are_bytes(self) -> None:
        x = np.array([True, False, True, True])
        text = entry("x = pred[4]{0} parameter(0)", "y = u8[2,2]{0,1} bitcast(x)")
        assert_same(ours(text, [x])[0], x.astype(np.uint8).reshape(2, 2).T)

    def test_tiles_are_refused_by_name(self) -> None:
        text = entry("x = f32[8,128]{1,0:T(8,128)} parameter(0)", "y = f32[1024]{0:T(1024)} bitcast(x)")
        with pytest.raises(sx.UnsupportedError, match=r"no StableHLO for mhlo\.bitcast[^$]*before XLA's optimisations"):
            sx.load(text)

    def test_layouts_of_parameters_results_and_copies_change_nothing(self) -> None:
        text = entry(
            "x = f32[2,3]{0,1} parameter(0)",
            "y = f32[2,3]{1,0} copy(x)",
            "z = f32[3,2]{0,1} transpose(y), dimensions={1,0}",
        )
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        assert_same(ours(text, [x])[0], x.T)


class TestFusions:
    def test_in_one_another_with_several_results(self) -> None:
        text = entry(
            "x = f32[4] parameter(0)",
            "f = (f32[4], f32[4]) fusion(x), kind=kCustom, calls=outer",
            "a = f32[4] get-tuple-element(f), index=0",
            "b = f32[4] get-tuple-element(f), index=1",
            "c = f32[4] subtract(a, b)",
            before="inner { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }\n"
            "outer { p = f32[4] parameter(0)  q = f32[4] fusion(p), kind=kLoop, calls=inner\n"
            "  r = f32[4] multiply(p, q)  ROOT t = (f32[4], f32[4]) tuple(r, q) }\n",
        )
        assert_same(ours(text, [X])[0], -X * X + X)
        assert "call" not in str(sx.load(text))

    def test_inside_of_a_loop(self) -> None:
        text = entry(
            "x = f32[4] parameter(0)",
            "z = s32[] constant(0)",
            "t = (s32[], f32[4]) tuple(z, x)",
            "w = (s32[], f32[4]) while(t), condition=more, body=step",
            "r = f32[4] get-tuple-element(w), index=1",
            before="twice { p = f32[4] parameter(0)  ROOT a = f32[4] add(p, p) }\n"
            "less { p = s32[] parameter(0)  n = s32[] constant(3)  ROOT c = pred[] compare(p, n), direction=LT }\n"
            "more { s = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(s), index=0\n"
            "  ROOT c = pred[] fusion(i), kind=kLoop, calls=less }\n"
            "step { s = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(s), index=0\n"
            "  x = f32[4] get-tuple-element(s), index=1  one = s32[] constant(1)  j = s32[] add(i, one)\n"
            "  y = f32[4] fusion(x), kind=kLoop, calls=twice  ROOT t = (s32[], f32[4]) tuple(j, y) }\n",
        )
        assert_same(ours(text, [X])[0], 8 * X)


class TestPairs:
    TWICE = "twice { p = f32[4] parameter(0)  ROOT a = f32[4] add(p, p) }\n"

    def test_several_updates(self) -> None:
        bundle = "((f32[4]), f32[4], u32[])"
        text = entry(
            "x = f32[4] parameter(0)",
            f"s = {bundle} async-start(x), calls=twice",
            f"u = {bundle} async-update(s)",
            f"v = {bundle} async-update(u)",
            "y = f32[4] async-done(v)",
            "z = f32[4] multiply(x, y)",
            before=self.TWICE,
        )
        assert_same(ours(text, [X])[0], 2 * X * X)

    def test_of_an_operation_by_its_name(self) -> None:
        text = entry(
            "x = f32[4] parameter(0)",
            "s = ((f32[4]), f32[2], u32[]) slice-start(x), slice={[1:3]}",
            "y = f32[2] slice-done(s)",
        )
        assert_same(ours(text, [X])[0], X[1:3])

    def test_a_bundle_that_goes_elsewhere_is_refused_by_name(self) -> None:
        text = entry(
            "x = f32[4] parameter(0)",
            "s = ((f32[4]), f32[4], u32[]) async-start(x), calls=twice",
            "y = f32[4] async-done(s)",
            "z = f32[4] async-done(s)",
            before=self.TWICE,
        )
        with pytest.raises(sx.UnsupportedError, match=r"mhlo\.async_done, mhlo\.async_start"):
            sx.load(text)


class TestDevices:
    SUM = "sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }\n"

    @pytest.mark.parametrize(
        ("groups", "replicas", "partitions"),
        [
            ("replica_groups={{0,1},{2,3}}", 4, 1),
            ("replica_groups=[2,2]<=[2,2]T(1,0)", 4, 1),
            ("channel_id=1, replica_groups={{0,1}}", 2, 1),
            ("channel_id=1, use_global_device_ids=true, replica_groups={{0,1,2,3,4,5}}", 1, 6),
            ("channel_id=1, use_global_device_ids=true, replica_groups=mesh['a'=2,'b'=4] {'b'}", 1, 8),
            ("replica_groups={}", 1, 1),
        ],
    )
    def test_those_that_collectives_name(self, groups: str, replicas: int, partitions: int) -> None:
        text = entry("x = f32[4] parameter(0)", f"y = f32[4] all-reduce(x), {groups}, to_apply=sum", before=self.SUM)
        executable = sx.compile(text)
        assert (executable.num_replicas, executable.num_partitions) == (replicas, partitions)

    def test_of_partitions(self) -> None:
        text = entry(
            "x = f32[4] parameter(0)",
            "y = f32[4] collective-permute(x), channel_id=1, source_target_pairs={{0,2},{1,0}}",
        )
        assert sx.compile(text).num_partitions == 3

    def test_the_header_is_believed(self) -> None:
        lines = "x = f32[4] parameter(0)", "y = f32[4] collective-permute(x), source_target_pairs={{0,1}}"
        assert sx.compile(entry(*lines, header=", replica_count=4")).num_replicas == 4
        few = entry(*lines, header=", replica_count=2").replace("{{0,1}}", "{{0,3}}")
        with pytest.raises(sx.VerificationError, match="3"):
            sx.compile(few)

    def test_what_the_caller_says_comes_first(self) -> None:
        text = entry("x = f32[4] parameter(0)", "y = f32[4] collective-permute(x), source_target_pairs={{0,1}}")
        assert sx.compile(text).num_replicas == 2
        assert sx.compile(text, num_replicas=4).num_replicas == 4

    @pytest.mark.parametrize(
        "groups",
        ["{{0,1},{2,3}}", "[2,2]<=[4]", "mesh['a'=2,'b'=2] {'b'}", "mesh['a'=4] {'a':(2)2}"],
    )
    def test_an_exchange_of_several_arrays(self, groups: str) -> None:
        text = entry(
            "x = f32[4] parameter(0)",
            "y = f32[4] parameter(1)",
            f"z = (f32[4], f32[4]) all-to-all(x, y), channel_id=1, replica_groups={groups}",
        )
        given = [[X + 10 * i, X - 10 * i] for i in range(4)]
        found = sx.compile(text).execute_replicated(given)
        for i, results in enumerate(found):
            first = i - i % 2
            assert_same(results[0], given[first][i % 2])
            assert_same(results[1], given[first + 1][i % 2])

    def test_a_partitioned_module_is_not_partitioned_again(self) -> None:
        text = entry(
            "x = f32[4] parameter(0), sharding={devices=[2]<=[2]}",
            "i = u32[] partition-id()",
            "f = f32[] convert(i)",
            "b = f32[4] broadcast(f), dimensions={}",
            "y = f32[4] add(x, b)",
            header=", num_partitions=2",
        )
        first, second = sx.compile(text).execute_replicated([[X], [X]])
        assert_same(first[0], X)
        assert_same(second[0], X + 1)

    def test_damaged_groups(self) -> None:
        text = entry(
            "x = f32[4] parameter(0)",
            "y = f32[4] all-reduce(x), replica_groups=[2,2]<=[4], to_apply=sum",
            before=self.SUM,
        )
        proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
        assert prepare(proto)[1] == Devices(replicas=4)
        at = proto.index(b"\x08\x02\x10\x02\x1a\x01\x04")  # two groups of two, of four
        with pytest.raises(sx.ParseError):
            sx.load(proto[:at] + b"\x08\x07" + proto[at + 2 :])


class TestTexts:
    def test_elements_that_were_left_out(self) -> None:
        """XLA's parser makes numbers of its own in their place."""
        text = "HloModule m\n\nENTRY e {\n  c = f32[40]{0} constant({...})\n  ROOT y = f32[40] negate(c)\n}"
        with pytest.raises(sx.ParseError, match="left out when the program was printed") as caught:
            sx.load(text)
        assert (caught.value.line, caught.value.column) == (4, 18)
        assert "xla_dump_large_constants" in str(caught.value)

    def test_origins_of_values(self) -> None:
        """Which value of the user's program one was: XLA's conversion makes attributes of MHLO of them."""
        text = entry('x = f32[4] parameter(0), origin={{"x" {1}}}', 'y = f32[4] negate(x), origin={{"y"}}')
        assert "mhlo.original_value" not in str(sx.load(text))
        assert_same(ours(text, [X])[0], -X)

    def test_a_top_k_without_comparator_is_left_to_its_target(self) -> None:
        text = entry("x = f32[9] parameter(0)", 'y = (f32[3], s32[3]) custom-call(x), custom_call_target="TopK"')
        assert "custom_call @TopK" in str(sx.load(text))

    def test_older_names(self) -> None:
        text = entry(
            "x = f32[4] parameter(0)", "y = f32[4]{0} cross-replica-sum(x), to_apply=sum", before=TestDevices.SUM
        )
        assert "stablehlo.all_reduce" in str(sx.load(text))
        assert_same(ours(text, [X])[0], X)

    def test_a_custom_call_is_refused_by_name(self) -> None:
        text = entry("x = f32[4] parameter(0)", 'y = f32[4] custom-call(x), custom_call_target="__onednn$softmax"')
        with pytest.raises(sx.CompileError, match=r"no target '__onednn\$softmax'"):
            sx.compile(text)

    @pytest.mark.parametrize(
        "compared", ["compare(a, b), direction=LT", "compare(b, a), direction=GT", "compare(m, n), direction=GT"]
    )
    def test_the_smallest_elements_are_no_top_k(self, compared: str) -> None:
        """A comparison in the other order is left alone, and refused by name where nobody has registered it."""
        text = entry(
            "x = f32[9] parameter(0)",
            'y = (f32[3], s32[3]) custom-call(x), custom_call_target="TopK", called_computations={less}',
            before="less { a = f32[] parameter(0)  b = f32[] parameter(1)  i = s32[] parameter(2)\n"
            f"  j = s32[] parameter(3)  m = f32[] negate(a)  n = f32[] negate(b)  ROOT c = pred[] {compared} }}\n",
        )
        assert "chlo.top_k" not in str(sx.load(text))


PLACED = ["annotate_device_placement", "LayoutConstraint", "MoveToDevice", "MoveToHost", "PinToDevice"]
BARRIERS = ["ShardBarrierFrom", "ShardBarrierTo"]


class TestAnnotations:
    """Custom calls that say where an array lies, or how it is sharded: identities in one process."""

    STEP = """step {{ s = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(s), index=0
      x = f32[4] get-tuple-element(s), index=1  one = s32[] constant(1)  j = s32[] add(i, one)
      y = f32[4] {}  ROOT t = (s32[], f32[4]) tuple(j, y) }}
      more {{ s = (s32[], f32[4]) parameter(0)  i = s32[] get-tuple-element(s), index=0  n = s32[] constant(3)
      ROOT c = pred[] compare(i, n), direction=LT }}"""

    @pytest.mark.parametrize("sharding", ["", ", sharding={replicated}"])
    @pytest.mark.parametrize("name", [*PLACED, *BARRIERS, "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"])
    def test_on_one_device(self, name: str, sharding: str) -> None:
        call = f'custom-call(x), custom_call_target="{name}"{sharding}'
        loop = "z = s32[] constant(0)", "t = (s32[], f32[4]) tuple(z, x)", "w = (s32[], f32[4]) while(t), "
        for *lines, last in (
            ("y = f32[4] " + call,),
            ("y = f32[4] " + call + ", custom_call_has_side_effect=true, api_version=API_VERSION_STATUS_RETURNING",),
            (
                "t = (f32[4]) tuple(x)",
                "y = (f32[4]) " + call.replace("(x)", "(t)"),
                "z = f32[4] get-tuple-element(y), index=0",
            ),
            (*loop[:2], loop[2] + "condition=more, body=step", "y = f32[4] get-tuple-element(w), index=1"),
            (
                "n = s32[] constant(3)",
                "d = f32[<=4] set-dimension-size(x, n), dimensions={0}",
                "y = f32[<=4] " + call.replace("(x)", "(d)"),
            ),
        ):
            before = self.STEP.format(call) if "while" in "".join(lines) else ""
            executable = sx.compile(entry("x = f32[4] parameter(0)", *lines, last, before=before))
            assert "custom_call" not in executable.ir("stablehlo")
            assert_same(executable.execute([X])[0], X[:3] if "<=" in last else X)

    @pytest.mark.parametrize("name", [*PLACED, *BARRIERS, "Sharding"])
    def test_parts_stay_where_they_are(self, name: str) -> None:
        """On two devices nothing is gathered for them."""
        halves = "sharding={devices=[2]<=[2]}"
        text = entry(
            f"x = f32[4] parameter(0), {halves}",
            f'y = f32[4] custom-call(x), custom_call_target="{name}", {halves}',
            f"z = f32[4] negate(y), {halves}",
            header=", num_partitions=2",
        )
        executable = sx.compile(text)
        assert "-> tensor<2xf32>" in (stage := executable.ir("stablehlo"))
        assert not re.search("custom_call|all_gather", stage)
        assert_same(executable(X), -X)


class TestWithoutHeader:
    """Texts that do not begin with `HloModule`, as XLA's tests have them."""

    TWICE = "twice { p = f32[4]{0} parameter(0) ROOT a = f32[4]{0} add(p, p) }"
    LISTED = TWICE.replace("twice", "%twice (p: f32[4]) -> f32[4]")
    NEGATED = "n = f32[4] negate(x)"

    @pytest.mark.parametrize(
        ("text", "name", "expected"),
        [
            (f"ENTRY main {{ x = f32[4] parameter(0) ROOT {NEGATED} }}", "module_main", -X),
            (f"// first\n/* second\n*/ ENTRY e\n{{ x = f32[4] parameter(0) // third\n {NEGATED} }}", "module_e", -X),
            ("ENTRY %e.1 (x: f32[4]) -> f32[4] { ROOT %x = f32[4]{0:T(4)} parameter(0) }", "module_e.1", X),
            (
                f"{TWICE}\nENTRY e {{ x = f32[4] parameter(0) ROOT y = f32[4] call(x), to_apply=twice }}",
                "module_e",
                2 * X,
            ),
            (
                f"{LISTED}\nENTRY e {{ x = f32[4] parameter(0) ROOT y = f32[4] call(x), to_apply=twice }}",
                "module",
                2 * X,
            ),
            (
                f"{TWICE}\nlast {{ x = f32[4] parameter(0) ROOT y = f32[4] call(x), to_apply=twice }}",
                "module_last",
                2 * X,
            ),
            (f"/* first */ {LISTED}", "module", 2 * X),
            (f"%module /* MLIR's word */ {{ /* first */ %x = f32[4] parameter(0)\n {NEGATED} }}", "module_module", -X),
            ("// first\n /* second */ (f32[4]) tuple(f32[4] x)", "_", X),
            ("ROOT y = f32[4]{0} negate(f32[4]{0} %x)", "_", -X),
            ("f32[4] add(f32[4] x, f32[4] x)", "_", 2 * X),
            (
                "f32[4]{0} fusion(f32[4]{0} x), kind=kLoop, calls={ p = f32[4] parameter(0) ROOT n = f32[4] abs(p) }",
                "_",
                abs(X),
            ),
        ],
    )
    def test_as_xla_reads_them(self, text: str, name: str, expected: np.ndarray, tmp_path: Path) -> None:
        file = tmp_path / "program"
        file.write_text(text)
        for program in (text, text.encode(), file):
            assert f"module @{name} " in str(sx.load(program)).split("\n")[0]
        assert_same(sx.compile(text).execute([X])[0], expected)

    @pytest.mark.parametrize(
        "text",
        [
            "module { func.func @main() { return } }",
            "// f32[4] negate(x)\nmodule\n{ func.func @main() { return } }",
            "builtin.module { func.func @main() { return } }",
            "#map = affine_map<(d0) -> (d0)>\nfunc.func @main() { return }",
            '"builtin.module"() ({ func.func @main() { return } }) : () -> ()',
        ],
    )
    def test_mlir_is_none(self, text: str) -> None:
        assert recognise(text.encode()) is Format.TEXT
        sx.load(text)

    @pytest.mark.parametrize(
        ("text", "place", "said"),
        [
            ("ENTRY e { x = f32[4] parameter(0) }\nENTRY f { x = f32[4] parameter(0) }", (2, 1), "only one ENTRY"),
            (LISTED.replace("add", "ad"), (1, 77), "Unknown opcode: ad"),
            ("x = f32[4] parameter(0)\ny = f32[4] negate(x)", (2, 1), "one instruction is a program[^$]*ENTRY main"),
            ("y = f32[4] negate(f32[4] x", (1, 18), "cannot parse as an instruction name"),
            ("e { x = f32[4] parameter(0), y }", (1, 29), "expects"),
            ("just words", (1, 1), "read as MLIR text: custom op 'just'[^$]*HloModule, ENTRY"),
            ("// first\n{'x': [1, 2]}", (2, 1), "read as MLIR text: [^$]*HloModule, ENTRY"),
        ],
    )
    def test_errors(self, text: str, place: tuple[int, int], said: str) -> None:
        with pytest.raises(sx.ParseError, match=said) as caught:
            sx.load(text)
        assert (caught.value.line, caught.value.column) == place

    @pytest.mark.parametrize("part", [" ", "(", "/*", "/**/", "// x\n", "a ", "a(", "f32[1] ", "n()->", "x=(", "a.b"])
    def test_what_is_none_is_seen_in_linear_time(self, part: str) -> None:
        """Each pattern gives up at its first mismatch: with backtracking, one of these takes minutes."""
        assert recognise(part.encode() * (60000 // len(part))) is Format.TEXT


class TestStochasticConvert:
    @pytest.mark.parametrize("result", ["s8", "s16", "s32"])
    @pytest.mark.parametrize("element", ["f32", "f16", "bf16"])
    def test_as_xla(self, element: str, result: str) -> None:
        values = [
            0.0,
            -0.0,
            0.25,
            -0.25,
            0.5,
            1.75,
            -1.75,
            127.5,
            -128.5,
            3e4,
            -6e4,
            np.inf,
            -np.inf,
            2.0,
            -1e-8,
            99.99,
        ]
        x = np.repeat(np.array(values, {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[element]), 8)
        word = np.uint32 if element == "f32" else np.uint16
        random = np.random.default_rng(0).integers(0, np.iinfo(word).max, x.size, dtype=word)
        text = entry(
            f"x = {element}[{x.size}] parameter(0)",
            f"u = u{word().itemsize * 8}[{x.size}] parameter(1)",
            f"y = {result}[{x.size}] stochastic-convert(x, u)",
        )
        assert_same(ours(text, [x, random])[0], xla(text, [x, random])[0])

    def test_the_mean_is_the_number(self) -> None:
        x = np.full(4096, -2.3, np.float32)
        random = np.random.default_rng(1).integers(0, 2**32, x.size, dtype=np.uint32)
        text = entry(
            "x = f32[4096] parameter(0)", "u = u32[4096] parameter(1)", "y = s32[4096] stochastic-convert(x, u)"
        )
        found = ours(text, [x, random])[0]
        assert set(found.tolist()) == {-3, -2}
        assert abs(found.mean() + 2.3) < 0.03

    def test_to_floats_it_has_no_meaning(self) -> None:
        text = entry("x = f32[4] parameter(0)", "u = u32[4] parameter(1)", "y = bf16[4] stochastic-convert(x, u)")
        with pytest.raises(sx.UnsupportedError, match=re.escape("mhlo.stochastic_convert")):
            sx.load(text)
