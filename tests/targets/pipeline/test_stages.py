"""Every stage can be written to a file and gone on from: the text gives the same code as going on at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

import stablexla as sx
from stablexla.dialects.errors import StablexlaError
from stablexla.interop.loading import load, parse_text
from stablexla.targets.pipeline.driver import copy_of, run_pipeline, side_after
from stablexla.targets.pipeline.dump import assembly
from stablexla.tools import opt
from tests.fuzz.generate import draw

HERE = Path(__file__).parents[2]
PARTS = 12

VALUES = """
func.func public @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<6xi4>, tensor<3xf64>, tensor<i32>,
    tensor<3xbf16>, tensor<4xf8E4M3FN>, tensor<2xcomplex<f32>>, tensor<4xui2>) {
  %special = stablehlo.constant dense<[0x7FC00001, 0xFF800000, 0x00000001, 0x80000000]> : tensor<4xf32>
  %denormal = stablehlo.constant dense<[4.9406564584124654E-324, 0x7FF8000000000001, -0.0]> : tensor<3xf64>
  %brain = stablehlo.constant dense<[0x7FC1, 0x0001, 0xFF80]> : tensor<3xbf16>
  %narrow = stablehlo.constant dense<[0x7F, 0x01, 0x80, 0x7E]> : tensor<4xf8E4M3FN>
  %nibbles = stablehlo.constant dense<[-8, 7, -1, 0, 1, 3]> : tensor<6xi4>
  %crumbs = stablehlo.constant dense<[0, 1, 2, 3]> : tensor<4xui2>
  %pairs = stablehlo.constant dense<[(0x7FC00001, 0x00000001), (1.5, -0.0)]> : tensor<2xcomplex<f32>>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %sum = stablehlo.add %x, %special : tensor<4xf32>
  %twice = stablehlo.add %nibbles, %nibbles : tensor<6xi4>
  %count = stablehlo.while(%i = %zero) : tensor<i32>
    cond {
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j : tensor<i32>
    }
  %sorted = "stablehlo.sort"(%sum) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %sorted, %twice, %denormal, %count, %brain, %narrow, %pairs, %crumbs : tensor<4xf32>, tensor<6xi4>,
    tensor<3xf64>, tensor<i32>, tensor<3xbf16>, tensor<4xf8E4M3FN>, tensor<2xcomplex<f32>>, tensor<4xui2>
}
"""


def programs() -> Iterator[tuple[str, str]]:
    """Names and texts: by hand, those of the text tests, examples, and drawn at random."""
    yield "values", VALUES
    yield "example", (HERE.parent / "examples" / "mlp_jax.mlir").read_text()
    texts = (*sorted((HERE / "filecheck").glob("[!o]*.mlir")), *sorted((HERE / "filecheck" / "passes").glob("*.mlir")))
    for file in (*texts, *sorted((HERE / "fuzz" / "corpus").glob("*.mlir"))):
        for number, part in enumerate(file.read_text().split("// -----\n")):
            if re.search(r"\b(stablehlo|chlo)\.", part):
                yield f"{file.stem} {number}", part
    for seed in range(90, 110):
        yield f"random {seed}", draw(seed).program.text


def without_places(text: str) -> str:
    """Calls of Python carry the line of the file that was read, which differs from file to file."""
    return re.sub(r'place = "[^"]*"', "", text)


@pytest.mark.parametrize("part", range(PARTS))
def test_files_between_the_steps_change_nothing(part: int) -> None:
    pipeline = sx.pipeline("cpu", sx.CompileOptions(num_threads=2, vector_bits=256))
    compared = 0
    for name, text in islice(programs(), part, None, PARTS):
        try:
            source = load(text)
            at_once = run_pipeline(copy_of(source), pipeline)
        except StablexlaError:
            continue  # parts of text tests need not be programs
        module = source
        for step in pipeline.names:
            made = run_pipeline(copy_of(module), pipeline.from_step(step).up_to(step))
            module = parse_text(assembly(made, debug_info=False), "<stdin>", side=side_after(pipeline, step))
        wanted = without_places(assembly(at_once, debug_info=False))
        assert without_places(assembly(module, debug_info=False)) == wanted, name
        compared += 1
    assert compared >= 100 // PARTS


def test_the_tool_goes_on_from_its_own_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = tmp_path / "values.mlir"
    first.write_text(VALUES)
    stages = sx.pipeline().names
    before = first
    for stage in stages:
        after = tmp_path / f"{stage}.mlir"
        assert opt.main([str(before), f"--stage={stage}", "-o", str(after)]) == 0
        before = after
    assert opt.main([str(first), "--stage=llvm"]) == 0
    assert capfd.readouterr().out.splitlines()[1:] == before.read_text().splitlines()[1:]


def test_stages_of_the_tool_are_those_of_an_executable(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "values.mlir"
    path.write_text(VALUES)
    executable = sx.compile(path)
    for stage in executable.stages:
        assert opt.main([str(path), f"--stage={stage}"]) == 0
        head, program, text = capfd.readouterr().out.split("\n", 2)
        assert head.startswith(f"// stage {stage}: stablexla-opt ")
        assert program.startswith("// program: {")
        assert text.rstrip("\n") == executable.ir(stage)
