"""What an executable tells of itself: fates of operations, costs that can be counted by hand, buffers, the page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.display.html_table import html_table
from stablexla.inspection.explaining.explanation import Explanation
from stablexla.inspection.explaining.explanation_page import _with_openings, without_locations
from stablexla.inspection.explaining.explanation_summary import summary_of
from stablexla.tools import run

PROGRAM = """
func.func private @scale(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %c = stablehlo.constant dense<2.0> : tensor<8x4xf32> loc("scale.py":1:1)
  %0 = stablehlo.multiply %x, %c : tensor<8x4xf32> loc("scale.py":2:1)
  return %0 : tensor<8x4xf32>
}
func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x4xf32>, %n: tensor<i32>) -> (tensor<8x4xf32>, tensor<8xf32>) {
  %product = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32> loc("model.py":1:1)
  %twice = func.call @scale(%product) : (tensor<8x4xf32>) -> tensor<8x4xf32> loc("model.py":2:1)
  %erf = stablehlo.composite "chlo.erf" %twice {decomposition = @erf} : (tensor<8x4xf32>) -> tensor<8x4xf32>
      loc("model.py":3:1)
  %same = stablehlo.composite "mine.same" %erf {decomposition = @same} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%same init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<8x4xf32>, tensor<f32>) -> tensor<8xf32> loc("model.py":4:1)
  %unread = stablehlo.exponential %sum : tensor<8xf32>
  %i = stablehlo.constant dense<0> : tensor<i32>
  %wide = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<8xf32>) -> tensor<8x4xf32>
  %r:2 = stablehlo.while(%k = %i, %v = %same) : tensor<i32>, tensor<8x4xf32>
    cond { %more = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
           stablehlo.return %more : tensor<i1> }
    do { %one = stablehlo.constant dense<1> : tensor<i32>
         %next = stablehlo.add %k, %one : tensor<i32>
         %u = stablehlo.divide %v, %wide : tensor<8x4xf32> loc("model.py":5:1)
         stablehlo.return %next, %u : tensor<i32>, tensor<8x4xf32> }
  return %r#1, %sum : tensor<8x4xf32>, tensor<8xf32>
}
func.func private @erf(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = chlo.erf %x : tensor<8x4xf32> -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}
func.func private @same(%x: tensor<8x4xf32>) -> tensor<8x4xf32> { return %x : tensor<8x4xf32> }
"""


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return sx.compile(PROGRAM).explain()


def fate_of(explanation: Explanation, name: str, occurrence: int = 0) -> tuple[str, str]:
    found = [
        (f.what, f.text)
        for op, f in zip(explanation.operations, explanation.fates, strict=True)
        if f"{op.name} {op.detail}".strip() == name
    ]
    return found[occurrence]


def test_fates(explanation):
    what = {
        "stablehlo.dot_general": "kernel",
        "stablehlo.multiply": "kernel",
        "func.call @scale": "inlined",
        "stablehlo.composite chlo.erf": "kernel",
        "stablehlo.composite mine.same": "inlined",
        "stablehlo.reduce": "kernel",
        "stablehlo.exponential": "unused",
        "stablehlo.broadcast_in_dim": "view",
        "stablehlo.while": "main",
        "stablehlo.compare": "main",
        "stablehlo.add": "main",
        "stablehlo.divide": "kernel",
    }
    assert {name: fate_of(explanation, name)[0] for name in what} == what
    assert fate_of(explanation, "stablehlo.while")[1] == "control flow of main: scf.while"


def test_operations_have_their_lines_and_depths(explanation):
    by_name = {op.name: op for op in explanation.operations}
    assert str(by_name["stablehlo.divide"].place) == "model.py:5:1"
    assert (by_name["stablehlo.divide"].depth, by_name["stablehlo.reduce"].depth) == (1, 0)
    assert (by_name["stablehlo.multiply"].function, by_name["stablehlo.while"].function) == ("scale", "main")
    assert [op.number for op in explanation.operations] == list(range(len(explanation.operations)))


def test_costs_of_a_product(explanation):
    number = next(op.number for op in explanation.operations if op.name == "stablehlo.dot_general")
    (kernel,) = (k for k in explanation.kernels if number in k.operations)
    assert kernel.kind == "contraction"
    assert kernel.cost.read == 4 * (8 * 16 + 16 * 4)
    # two for each term of each sum, and what was fused behind it, one an element
    behind = [n for n in kernel.operations if n != number]
    assert kernel.cost.flops == 2 * 8 * 16 * 4 + 8 * 4 * len(behind)


def test_calls_lie_where_the_kernels_say(explanation):
    assert [c.number for c in explanation.calls] == list(range(len(explanation.calls)))
    assert {c.kernel for c in explanation.calls} == {k.name for k in explanation.kernels}
    for kernel in explanation.kernels:
        assert kernel.calls == tuple(c.number for c in explanation.calls if c.kernel == kernel.name)
    inside = [c for c in explanation.calls if c.depth]
    assert [str(b) for c in inside for b in c.writes] == ["result 0"]
    for call in explanation.calls:
        for buffer in (*call.reads, *call.writes):
            if buffer.role == "arena":
                assert buffer.offset + buffer.bytes <= explanation.arena_bytes


def test_composites_say_why(explanation):
    ways = {note.title: (note.way, note.why) for note in explanation.composites}
    assert ways["chlo.erf v0"][0] == "kernel"
    assert "there is a kernel" in ways["chlo.erf v0"][1]
    assert ways["mine.same v0"][0] == "decomposition"
    assert "no kernel of this name" in ways["mine.same v0"][1]


def test_text(explanation):
    text = explanation.text(all=True)
    assert text.startswith(summary_of(explanation))
    assert "model.py:5:1" in text
    assert re.search(r"contraction_0 +contraction +emitted", text)
    assert "memory:" in text
    assert max(map(len, text.splitlines()[1:])) <= 140


def test_the_summary_has_twenty_lines_at_most(explanation):
    assert len(str(explanation).splitlines()) <= 20
    b = sx.XlaBuilder("many")
    x = b.parameter(0, sx.c64[4, 4])
    out = [sx.dot(x, b.constant(np.ones((4, n), np.complex64))) for n in range(1, 9)]
    lines = str(sx.compile(b.build(sx.tuple(out))).explain()).splitlines()
    assert len(lines) <= 20
    assert sum(" calls: " in line for line in lines) == 5


def test_the_summary_names_operations_and_lines(explanation):
    assert "dot_general model.py:1:1" in str(explanation)
    assert "memory:" in str(explanation)


def test_a_transpose_that_moves_nothing_is_a_view():
    b = sx.XlaBuilder("column")
    row = sx.dot(b.parameter(0, sx.f32[1, 8]), b.parameter(1, sx.f32[8, 8]))
    explanation = sx.compile(b.build(sx.transpose(row, (1, 0)))).explain()
    fates = {op.name: fate for op, fate in zip(explanation.operations, explanation.fates, strict=True)}
    assert fates["stablehlo.transpose"].what == "view"
    assert "no work" in fates["stablehlo.transpose"].text
    assert len(explanation.kernels) == 1


def test_calls_in_loops_are_marked(explanation):
    (inside,) = (k.name for k in explanation.kernels for c in k.calls if explanation.calls[c].depth)
    assert re.search(rf"{inside} .*  1, 1 nested  ", explanation.text(all=True))


def test_a_pattern_chooses_kernels(explanation):
    text = explanation.text(kernels="contraction*").removeprefix(summary_of(explanation))
    assert "contraction_0" in text
    assert "loop_0" not in text
    assert "stablehlo.while" not in text


def refusals(program: sx.Executable) -> dict[str, tuple[str, str]]:
    kernels = program.explain().kernels
    assert all((k.refusal is None) == (k.path != "general") for k in kernels)
    return {k.kind: (k.refusal.why, k.refusal.hint) for k in kernels if k.refusal is not None}


def test_a_fallback_says_why_and_what_to_try():
    b = sx.XlaBuilder("complex")
    program = sx.compile(b.build(sx.reduce(b.parameter(0, sx.c64[4, 8]), 1.0, sx.mul, (1,))))
    ((why, hint),) = refusals(program).values()
    assert "complex numbers" in why
    assert "real and imaginary parts" in hint
    text = program.explain().text(all=True)
    assert re.search(r"row_0 +row +fallback", text)
    assert "why no emitter took a kernel" in text
    page = program.explain().html()
    assert "<td>fallback</td>" in page
    assert why in page


GATHER = """
func.func @main(%x: tensor<64xf32>, %i: tensor<8x1xi32>) -> tensor<8xf32> {
  %r = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}
    : (tensor<64xf32>, tensor<8x1xi32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}
"""


POWER = """
func.func @main(%x: tensor<40xi32>, %y: tensor<40xi32>) -> tensor<40xi32> {
  %0 = stablehlo.power %x, %y : tensor<40xi32>
  return %0 : tensor<40xi32>
}
"""
UPDATE = """
func.func @main(%x: tensor<9x9xf32>, %i: tensor<i32>) -> tensor<9x9xf32> {
  %s = stablehlo.slice %x [0:3, 0:3] : (tensor<9x9xf32>) -> tensor<3x3xf32>
  %u = stablehlo.exponential %s : tensor<3x3xf32>
  %0 = stablehlo.dynamic_update_slice %x, %u, %i, %i
    : (tensor<9x9xf32>, tensor<3x3xf32>, tensor<i32>, tensor<i32>) -> tensor<9x9xf32>
  return %0 : tensor<9x9xf32>
}
"""
SCAN = """
func.func @main(%x: tensor<64xbf16>) -> tensor<64xbf16> {
  %one = stablehlo.constant dense<1.0> : tensor<bf16>
  %0 = "stablehlo.reduce_window"(%x, %one) ({
  ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
    %1 = stablehlo.multiply %a, %b : tensor<bf16>
    stablehlo.return %1 : tensor<bf16>
  }) {window_dimensions = array<i64: 64>, padding = dense<[[63, 0]]> : tensor<1x2xi64>}
    : (tensor<64xbf16>, tensor<bf16>) -> tensor<64xbf16>
  return %0 : tensor<64xbf16>
}
"""
CHOLESKY = """
func.func @main(%x: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %0 = stablehlo.cholesky %x, lower = true : tensor<3x3xf32>
  return %0 : tensor<3x3xf32>
}
"""
TOP_K = """
func.func @main(%x: tensor<40xf32>) -> (tensor<3xf32>, tensor<3xi32>) {
  %0:2 = chlo.top_k(%x, k = 3) : tensor<40xf32> -> (tensor<3xf32>, tensor<3xi32>)
  return %0#0, %0#1 : tensor<3xf32>, tensor<3xi32>
}
"""


@pytest.mark.parametrize(
    ("text", "kind", "why", "target"),
    [
        (GATHER, "gather", "single elements", "cpu"),
        (POWER, "general", "a loop or a branch of its own", "cpu"),
        (POWER, "general", "a loop or a branch of its own", "gpu:sm_80"),
        (UPDATE, "general", "inserts a block", "cpu"),
        (SCAN, "scan", "sums of bf16", "cpu"),
        (SCAN.replace("<1.0>", "<(1.0, 0.0)>").replace("bf16", "complex<f32>"), "scan", "complex numbers", "cpu"),
        (CHOLESKY, "cholesky", "one small matrix", "cpu"),
        (TOP_K, "top_k", "no selection of the largest", "cpu"),
    ],
)
def test_an_emitter_that_refuses_says_why(text: str, kind: str, why: str, target: str):
    found = refusals(sx.compile(text, target=target))
    assert why in found[kind][0]
    assert found[kind][1]


def test_an_option_of_the_pipeline_is_the_reason():
    b = sx.XlaBuilder("chosen")
    computation = b.build(sx.exp(b.parameter(0, sx.f32[4])))
    for option in ("general-only=true", "general=loop_0"):
        pipeline = sx.pipeline("cpu").replacing_pass("stablexla-emit-kernels", f"stablexla-emit-kernels{{{option}}}")
        found = refusals(sx.compile(computation, options=sx.CompileOptions(pipeline=pipeline)))
        assert option.partition("=")[0] in found["loop"][0]


def test_equal_kernels_are_shared_and_both_are_known():
    b = sx.XlaBuilder("twice")
    x = b.parameter(0, sx.f32[8, 8])
    y = b.parameter(1, sx.f32[8, 8])
    explanation = sx.compile(b.build(sx.dot(sx.exp(x), sx.exp(y)))).explain()
    exps = [f for op, f in zip(explanation.operations, explanation.fates, strict=True) if "exponential" in op.name]
    assert [len(f.calls) for f in exps] == [1, 1]
    assert exps[0].calls != exps[1].calls
    assert len({explanation.kernel_of(c).name for f in exps for c in f.calls}) == 1


class Page(HTMLParser):
    """Collects the tags that are open at the end, and the text of each column."""

    VOID = ("meta", "input", "br")
    INSIDE = ("pre", "span", "i")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.columns: dict[str, str] = {}
        self.column = ""
        self.linked: dict[str, set[str]] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "section":
            self.column = given["data-stage"] or ""
        if given.get("data-ops") and self.column:
            self.linked.setdefault(self.column, set()).update((given["data-ops"] or "").split())

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.INSIDE and self.column:
            self.columns[self.column] = self.columns.get(self.column, "") + data


def test_page(explanation, tmp_path):
    explanation.save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    page = Page(text)
    assert page.open == []
    assert list(page.columns) == ["source", "stablehlo", "tensor", "kernels", "buffers", "llvm"]
    assert "src=" not in text
    assert "http" not in text
    product = str(next(op.number for op in explanation.operations if op.name == "stablehlo.dot_general"))
    assert all(product in page.linked[stage] for stage in page.columns)
    assert "loc(" not in page.columns["kernels"]


def test_page_with_times(tmp_path):
    program = sx.compile(PROGRAM)
    found = program.profile([np.ones((8, 16), np.float32), np.ones((16, 4), np.float32), np.int32(2)], runs=2)
    found.explanation.save(tmp_path / "page.html", found)
    text = (tmp_path / "page.html").read_text()
    assert Page(text).open == []
    assert '<th>kernel</th><th class="n">share</th><th class="n">us a run</th><th class="n">us a call</th>' in text
    assert re.search(r'<td>contraction_0</td><td class="n">[\d.]+%</td><td class="n">[\d.]+</td>', text)
    assert "us a run" not in found.explanation.html()


def test_the_tool_writes_the_times_into_the_page(tmp_path):
    (tmp_path / "model.mlir").write_text(PROGRAM)
    page = tmp_path / "page.html"
    given = [str(tmp_path / "model.mlir"), f"--explain={page}", "--profile=2"]
    assert run.main([*given, "--input=random:0", "--input=random:0", "--input=random:0"]) == 0
    assert "us a run" in page.read_text()


def test_numbers_are_marked_for_their_side(explanation):
    text = explanation.html()
    assert re.search(r'<td class="n">768 B</td><td class="n">128 B</td>', text)
    assert "<td>parameter 0, parameter 1</td>" in text
    assert ".n{text-align:right;white-space:nowrap" in explanation._repr_html_()  # notebooks have no style sheet


def test_what_the_page_can_do(explanation):
    text = explanation.html()
    assert '<input type="search" id="search"' in text
    assert '<meta name="viewport"' in text
    assert "@media (max-width" in text
    assert all(name in text for name in ('id="wrap"', 'id="count"', "aria-sort"))


def test_tables_scroll_in_boxes_of_their_own(explanation):
    """A page of 420 pixels is narrower than the table of kernels."""
    for text in (explanation.html(), explanation._repr_html_()):
        assert text.count("<table") == text.count('<div class="wide" tabindex="0"><table') > 2
        assert re.search(r"\.wide *{ *max-width: *100%; *overflow-x: *auto", text)
    assert html_table(["kind"], [["loop"]]).startswith('<div style="max-width:100%;overflow-x:auto"><table>')


def test_an_operation_with_regions_is_marked_as_a_whole():
    text = """\
%1 = a.generic {x} ins(%0) {
^bb0(%in: f32 loc("stablexla#4")):
  %2 = a.exp %in loc("stablexla#4")
} -> f32 loc("stablexla#4")
%3:2 = a.while(%k = %i)
cond {
  a.return %more loc("-":1:1)
} do {
  a.return %next loc("-":1:1)
} loc("stablexla#7")
return %3 loc("-":1:1)"""
    assert [*map(list, _with_openings(text.split("\n")))] == [[4], [4], [4], [4], [7], [7], [], [7], [], [7], []]


def test_the_users_own_lines_are_a_column():
    b = sx.XlaBuilder("here")
    program = sx.compile(b.build(sx.tanh(b.parameter(0, sx.f32[4]))))
    page = Page(program.explain().html())
    assert "sx.tanh(b.parameter(0, sx.f32[4]))" in page.columns["your source"]


def test_text_in_names_is_no_markup():
    b = sx.XlaBuilder("<script>alert(1)</script>")
    explanation = sx.compile(b.build(b.parameter(0, sx.f32[4]) + 1)).explain()
    assert "<script>alert" not in explanation.html()
    assert "<script>" not in explanation._repr_html_()


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("%0 = a.b %x : f32 loc(#loc3)", "%0 = a.b %x : f32"),
        ('^bb0(%x: f32 loc("a)"("f":1:2)), %y: f32 loc(unknown)):', "^bb0(%x: f32, %y: f32):"),
        ('} loc(fused["a", "b\\")"])', "}"),
        ("a.alloc(%x)", "a.alloc(%x)"),
        ("%0 = x loc(never closed", "%0 = x"),
    ],
)
def test_locations_are_left_out(line, left):
    assert without_locations(line) == left


def test_a_program_without_kernels():
    explanation = sx.compile(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
    ).explain()
    assert explanation.kernels == ()
    assert explanation.operations == ()
    assert "memory: 0 B" in str(explanation)


def test_explaining_changes_nothing():
    b = sx.XlaBuilder("plain")
    program = sx.compile(b.build(sx.exp(b.parameter(0, sx.f32[4]))))
    before = program.ir("kernels", debug_info=True)
    program.explain()
    assert program.ir("kernels", debug_info=True) == before
    np.testing.assert_allclose(program(np.zeros(4, np.float32)), np.ones(4))
