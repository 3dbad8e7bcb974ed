"""Modules that are odd: in encodings, names, functions, nesting, size. Each runs, or is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.bracket_depth import DEEPEST, too_deep, without_elements
from stablexla.dialects.errors import ParseError, UnsupportedError, VerificationError
from stablexla.interop.encodings.formats import Format
from stablexla.interop.encodings.writers import write
from stablexla.interop.loading import parse_text
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.printing import Form

X = np.array([1.0, 2.0], np.float32)
BODY = "(%x: tensor<2xf32>) -> tensor<2xf32> { %0 = stablehlo.add %x, %x : tensor<2xf32> return %0 : tensor<2xf32> }"
TEXT = f"func.func @main{BODY}\n"


def call(name: str, callee: str) -> str:
    """A private function that calls another one."""
    return (
        f"func.func private @{name}(%x: tensor<2xf32>) -> tensor<2xf32> {{\n"
        f"  %0 = func.call @{callee}(%x) : (tensor<2xf32>) -> tensor<2xf32>\n  return %0 : tensor<2xf32>\n}}\n"
    )


def doubles(program: sx.XlaComputation | str | bytes | Path) -> None:
    np.testing.assert_array_equal(sx.compile(program)(X), X + X)


class TestEncodings:
    def test_byte_order_mark(self, tmp_path: Path) -> None:
        doubles("\ufeff" + TEXT)
        doubles(b"\xef\xbb\xbf" + TEXT.encode())
        path = tmp_path / "marked.mlir"
        path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
        doubles(path)

    def test_ends_of_lines(self, tmp_path: Path) -> None:
        text = TEXT.replace("{ ", "{\r\n").replace("%0 return", "%0\r\nreturn")
        doubles(text)
        path = tmp_path / "lines.mlir"
        path.write_bytes(text.encode())
        doubles(path)

    def test_errors_in_text_with_such_ends(self) -> None:
        with pytest.raises(ParseError) as caught:
            sx.load("func.func @main() {\r\n  nonsense\r\n}")
        assert (caught.value.line, caught.value.column) == (2, 3)
        assert "\r" not in str(caught.value)

    def test_latin_1(self) -> None:
        with pytest.raises(ParseError, match="byte 0xE9 is no UTF-8") as caught:
            sx.load(f"// caf\xe9\n{TEXT}".encode("latin-1"))
        assert (caught.value.line, caught.value.column) == (1, 7)

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
    def test_wide_characters(self, encoding: str) -> None:
        with pytest.raises(ParseError, match=r"UTF-16|neither text nor"):
            sx.load(TEXT.encode(encoding))

    @pytest.mark.parametrize("empty", ["", " \n\t", b"", b"\n", b"\xef\xbb\xbf"])
    def test_nothing(self, empty: str | bytes, tmp_path: Path) -> None:
        with pytest.raises(ParseError, match="is empty"):
            sx.load(empty)
        path = tmp_path / "empty.mlir"
        path.write_bytes(empty.encode() if isinstance(empty, str) else empty)
        with pytest.raises(ParseError, match=r"empty\.mlir: is empty"):
            sx.load(path)

    @pytest.mark.parametrize("at", [0, 30, 600])
    def test_null_bytes(self, at: int) -> None:
        text = f"// {'-' * 700}\n{TEXT}" if at == 600 else TEXT
        for program in (text[:at] + "\0" + text[at:], (text[:at] + "\0" + text[at:]).encode()):
            try:
                doubles(program)  # in a comment it is nothing
            except ParseError as error:
                assert at != 600 or "expected" in str(error)  # noqa: PT017

    @pytest.mark.parametrize("data", [b"PK\x03\x04" + bytes(60), b"\x7fELF\x02\x01" + bytes(60), bytes(1000), b"\xff"])
    def test_other_files(self, data: bytes) -> None:
        with pytest.raises(ParseError, match=r"neither text nor bytes|no UTF-8"):
            sx.load(data)


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            "we \\22 ird",
            "ünï cödé",
            "a\\0Ab",
            "tab\\09",
            "x" * 5000,
            "..",
            "/../../etc/x",
            "%s{}%n",
            "🎉",
            " main",
            "-o",
        ],
    )
    def test_of_modules_and_functions(self, name: str, tmp_path: Path) -> None:
        text = f'module @"{name}" {{\n{call("start", "f")}func.func private @f{BODY} }}'
        program = text.replace("@f", f'@"{name}_f"').replace("private @start", "@main")
        with knobs.scoped(dump=tmp_path / "inner"):
            doubles(program)
        assert [path.name for path in tmp_path.iterdir()] == ["inner"]
        doubles(str(sx.load(program)))

    def test_of_arguments_attributes_and_places(self) -> None:
        text = TEXT.replace("%x: tensor<2xf32>", '%x: tensor<2xf32> {odd.attr = "é\\00\\FF"} loc("a \\22 b\\0A é")', 1)
        doubles(text)

    def test_operation_of_a_long_name(self) -> None:
        with pytest.raises(ParseError) as caught:
            sx.load("y" * 100_000)
        assert len(str(caught.value)) < 2000


class TestFunctions:
    def test_none_is_main(self) -> None:
        text = f"func.func @f{BODY}\nfunc.func @g{BODY}"
        with pytest.raises(VerificationError, match=r'no function @main; it has @f, @g\n +try: sx\.compile.*entry="f"'):
            sx.compile(text)
        doubles(sx.load(text, entry="g"))  # type: ignore[arg-type]

    def test_another_one_than_main(self) -> None:
        identity = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
        module = sx.load(f"{identity}\nfunc.func private @f{BODY}", entry="f")
        doubles(module)  # type: ignore[arg-type]
        assert "@main_0" in str(module)

    def test_no_such_function(self) -> None:
        with pytest.raises(VerificationError, match="no function @g; it has @main"):
            sx.load(TEXT, entry="g")
        with pytest.raises(VerificationError, match="no function @g; it has no functions"):
            sx.load("module {}", entry="g")

    def test_private_main(self) -> None:
        doubles(TEXT.replace("@main", "private @main"))

    @pytest.mark.parametrize("text", ["module {}", f"module {{ module {{ {TEXT} }} }}"])
    def test_no_functions(self, text: str) -> None:
        with pytest.raises(VerificationError, match="no function @main; it has no functions"):
            sx.compile(text)

    @pytest.mark.parametrize(
        ("text", "circle"),
        [
            (call("main", "main"), "main -> main"),
            (call("main", "f") + call("f", "g") + call("g", "f"), "f -> g -> f"),
        ],
    )
    def test_circles(self, text: str, circle: str) -> None:
        with pytest.raises(UnsupportedError, match=f"call each other in a circle: {circle}"):
            sx.compile(text)

    def test_circle_that_main_does_not_need(self) -> None:
        doubles(TEXT + call("f", "f"))

    @pytest.mark.parametrize("first", [True, False])
    def test_without_a_body(self, first: bool) -> None:
        outside = "func.func private @f(tensor<2xf32>) -> tensor<2xf32>\n"
        text = outside + call("main", "f") if first else call("main", "f") + outside
        with pytest.raises(UnsupportedError, match="@f has no body"):
            sx.compile(text)

    def test_a_long_chain_of_calls(self) -> None:
        chain = "".join(call(f"f{i}", f"f{i + 1}") for i in range(1200))
        doubles(f"{call('main', 'f0')}{chain}func.func private @f1200{BODY}")

    def test_calls_that_double_at_every_level(self) -> None:
        """Two calls of one function are a loop; of two functions that double, both are made."""
        levels = "".join(self._calls(f"f{i}", f"f{i + 1}", f"f{i + 1}") for i in range(60))
        executable = sx.compile(f"{call('main', 'f0')}{levels}func.func private @f60{BODY}")
        assert executable.ir("stablehlo").count("while") < 100
        pairs = ((f"{name}{i}", f"f{i + 1}", f"g{i + 1}") for i in range(60) for name in "fg")
        levels = "".join(self._calls(*names) for names in pairs)
        with pytest.raises(UnsupportedError, match="more than 4,000,000 operations"):
            sx.compile(f"{call('main', 'f0')}{levels}func.func private @f60{BODY}func.func private @g60{BODY}")

    @staticmethod
    def _calls(name: str, first: str, second: str) -> str:
        return (
            f"func.func private @{name}(%x: tensor<2xf32>) -> tensor<2xf32> {{\n"
            f"  %0 = func.call @{first}(%x) : (tensor<2xf32>) -> tensor<2xf32>\n"
            f"  %1 = func.call @{second}(%0) : (tensor<2xf32>) -> tensor<2xf32>\n  return %1 : tensor<2xf32>\n}}\n"
        )


class TestNesting:
    @pytest.mark.parametrize(
        "text",
        [
            "module {\n" * 10_000 + "}\n" * 10_000,
            f"module attributes {{a.b = {'[' * 10_000}{']' * 10_000}}} {{}}",
            f"module attributes {{a.b = {'{c = ' * 10_000}1{'}' * 10_000}}} {{}}",
            f"func.func private @f({'tuple<' * 10_000}f32{'>' * 10_000})",
            f"module {{}} loc({'fused[' * 10_000}{']' * 10_000})",
            f"module attributes {{a.b = affine_map<(d0) -> ({'(' * 10_000}d0{')' * 10_000})>}} {{}}",
            "module @m {" + "(" * 10_000,
            f'// "0x\nmodule attributes {{a.b = {"[" * 60_000}{"]" * 60_000}}} {{}}',
        ],
        ids=["regions", "arrays", "dictionaries", "types", "places", "maps", "nonsense", "behind a quote mark"],
    )
    def test_too_deep(self, text: str) -> None:
        with pytest.raises(ParseError, match=f"nested more than {DEEPEST} deep"):
            sx.load(text)

    def test_aliases_nest_without_brackets(self) -> None:
        links = "".join(f"#l{i + 1} = loc(callsite(#l{i} at #l0))\n" for i in range(3000))
        doubles(f'#l0 = loc("x")\n{links}{TEXT[: TEXT.rindex("}") + 1]} loc(#l3000)\n')

    @pytest.mark.parametrize(("digits", "is_left_out"), [(4094, False), (4096, True)])
    def test_digits_of_large_constants_are_not_searched(self, digits: int, is_left_out: bool) -> None:
        data = "0x" + "00" * (digits // 2)
        text = f'dense<"{data}"> : tensor<1xi8> // {"." * 10_000}'
        assert without_elements(text) == (text.replace(data, "0x") if is_left_out else text)

    def test_what_is_deep_enough(self) -> None:
        assert too_deep("[" * DEEPEST + "]" * DEEPEST) is None
        assert too_deep("[" * (DEEPEST + 1)) == (1, DEEPEST + 1)

    def test_brackets_that_are_none(self) -> None:
        text = "\n".join([f'"{"[" * 5000}" // {"(" * 5000}', "->" * 5000, "(", "[>" * 5000])
        assert too_deep(text) is None

    def test_operations_within_one_another(self) -> None:
        def ifs(levels: int) -> str:
            opened = "".join(f'%r{i} = "stablehlo.if"(%p) ({{\n' for i in range(levels))
            closed = "".join(
                f'"stablehlo.return"(%{f"r{i + 1}" if i + 1 < levels else "p"}) : (tensor<i1>) -> () }}, {{\n'
                '"stablehlo.return"(%p) : (tensor<i1>) -> () }) : (tensor<i1>) -> tensor<i1>\n'
                for i in reversed(range(levels))
            )
            return f"func.func @main(%p: tensor<i1>) -> tensor<i1> {{\n{opened}{closed}return %r0 : tensor<i1>\n}}"

        assert sx.compile(ifs(40))(np.array(True))
        with pytest.raises(UnsupportedError, match="regions nested more than 100 deep"):
            sx.compile(ifs(400))


class TestResources:
    """Constants whose elements stand behind the program, as some producers write their weights."""

    TEXT = """func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2x2xbf16>, tensor<3xi1>) {
  %a = stablehlo.constant dense_resource<weights> : tensor<2xf32>
  %b = stablehlo.constant dense_resource<"odd: name"> : tensor<2x2xbf16>
  %c = stablehlo.constant dense_resource<flags> : tensor<3xi1>
  %0 = stablehlo.add %x, %a : tensor<2xf32>
  return %0, %b, %c : tensor<2xf32>, tensor<2x2xbf16>, tensor<3xi1>
}
{-#
  dialect_resources: {
    builtin: {
      weights: "0x040000000000803F0000C0BF",
      "odd: name": "0x02000000803F0040403F8040",
      flags: "0x01000000010001"
    }
  }
#-}
"""

    @pytest.mark.parametrize("form", [Format.TEXT, Format.BYTECODE])
    def test_are_put_in_their_places(self, form: Format) -> None:
        text = parse_text(self.TEXT)
        assert "dense_resource" in str(text)
        first, second, third = sx.compile(write(text, form)).execute([X])
        np.testing.assert_array_equal(first, [2.0, 0.5])
        np.testing.assert_array_equal(second.astype(np.float32), [[1.0, 2.0], [0.75, 4.0]])
        np.testing.assert_array_equal(third, [True, False, True])

    def test_left_out(self) -> None:
        text = write(sx.load(self.TEXT), Format.TEXT, text=Form(elide_above=1)).decode()
        with pytest.raises(UnsupportedError, match="left out when the program was printed"):
            sx.load(text)

    def test_of_another_size(self) -> None:
        with pytest.raises(ParseError, match=r"'weights\w*' has 4 bytes"):
            sx.load(self.TEXT.replace("0000803F0000C0BF", "0000803F"))

    def test_missing(self) -> None:
        with pytest.raises(ParseError, match="no elements of the name 'weights"):
            sx.load(self.TEXT.replace("      weights:", "      waits:"))


class TestSize:
    """Texts of a few megabytes here; of a hundred, it takes as long for each megabyte."""

    def test_constant_of_many_numbers(self) -> None:
        count = 300_000
        numbers = ", ".join(["1.5"] * count)
        module = sx.load(
            f"func.func @main() -> tensor<{count}xf32> {{\n"
            f"  %0 = stablehlo.constant dense<[{numbers}]> : tensor<{count}xf32>\n  return %0 : tensor<{count}xf32>\n}}"
        )
        assert (sx.compile(module)() == 1.5).all()

    def test_constant_in_hexadecimal(self) -> None:
        count = 1_000_000
        text = "0000C03F" * count
        module = sx.load(
            f"func.func @main() -> tensor<{count}xf32> {{\n"
            f'  %0 = stablehlo.constant dense<"0x{text}"> : tensor<{count}xf32>\n  return %0 : tensor<{count}xf32>\n}}'
        )
        assert (sx.compile(module)() == 1.5).all()

    def test_error_at_the_end_of_many_operations(self) -> None:
        lines = "".join(f"%{i + 1} = stablehlo.add %{i}, %{i} : tensor<f32>\n" for i in range(20_000))
        text = f"func.func @main(%0: tensor<f32>) -> tensor<f32> {{\n{lines}return %y : tensor<f32>\n}}"
        with pytest.raises(ParseError, match="undeclared SSA value") as caught:
            sx.load(text)
        assert caught.value.line == 20_002

    def test_a_type_larger_than_any_memory(self) -> None:
        huge = "tensor<9223372036854775807x9223372036854775807xf32>"
        with pytest.raises(sx.StablexlaError):
            sx.compile(f"func.func @main(%x: {huge}) -> {huge} {{ return %x : {huge} }}")
