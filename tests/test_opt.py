"""`stablexla-opt`: what it refuses, and its options where files in filecheck/ do not show them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import stablexla as sx
from stablexla.dialects import rules
from stablexla.targets.pipeline.pass_list import all_passes, parse_listing
from stablexla.targets.pipeline.passes import PASSES
from stablexla.tools import opt, run
from stablexla.tools.optimizing.expected import expectations
from stablexla.tools.optimizing.options import HINTS, parser

HERE = Path(__file__).parent
SCHEDULE = HERE / "filecheck" / "inputs" / "tile.transform"
PASSES_FILE = HERE / "filecheck" / "inputs" / "my_passes.py"
PROGRAM = """module @affine {
  func.func public @main(%x: tensor<16xf32>) -> tensor<16xf32> {
    %0 = stablehlo.tanh %x : tensor<16xf32>
    return %0 : tensor<16xf32>
  }
}
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "affine.mlir"
    path.write_text(PROGRAM)
    return str(path)


@pytest.fixture
def loaded() -> object:
    """What a file that is loaded registers goes again."""
    yield None
    PASSES.pop("my-rename", None)
    rules.unregister("stablehlo.tanh")
    sys.modules.pop("my_passes", None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pass-pipeline=cse,(", ""], "the pipeline ends before its ')': 'cse,('"),
        ([f"--pass-pipeline={'cse,' * 20}("], "the pipeline ends before its ')': ...'se,cse"),
        ([f"--pass-pipeline={'cse,' * 20}cse)"], "do not match at ...'cse,cse"),
        (["--pass-pipeline=builtin.module(linalg-fuse-elementwise)"], "try: linalg-fuse-elementwise-ops"),
        (["--pass-pipeline=cse{max=1}"], "no such option max"),
        (["--canonicalize=max-iterations=x"], "the option max-iterations: 'x' value invalid for long argument"),
        (["--pass-pipeline=func.func(stablexla-lower-to-tensor)"], "stablexla-lower-to-tensor beside the nest"),
        (["--pass-pipeline=stablexla-lower-to-tensor,stablehlo-refine-shapes"], "it is a pass of stablehlo's MLIR"),
        (["--pass-pipeline=one-shot-bufferize"], "it is a pass of upstream's MLIR"),
        (["--pass-pipeline=stablexla-emit-kernels"], "works on a module of upstream's context"),
        (["-stablexla-emit-kernels=vector-bits=x"], "vector-bits=x is not of type int"),
        (["--stage=tensor", f"--transform-script={SCHEDULE}:none"], "no sequence @none; it has @__transform_main"),
        (["--stage=tensor", "--transform-script=nowhere.mlir"], "there is no schedule"),
        (["--pass-pipeline=stablexla-transform"], "works on a module of upstream's context"),
        (["--load=nowhere.py"], "nowhere.py: is no Python file that can be loaded"),
        (["--load=pyproject.toml"], "pyproject.toml: is no Python file that can be loaded"),
        (["--pass-pipeline=stablexla-python{function=nowhere:f}"], "try: --load=nowhere.py"),
        (["--rule=stablehlo.tanh=nowhere:f", "--stage=tensor"], "there is no function 'nowhere:f'"),
        (["--rule=tanh=stablexla.tools.opt:main", "--stage=tensor"], "try: 'stablehlo.tanh'"),
        (["--pass-pipeline=stablexla-lower-to-tensor", "--leaves=func"], "left over: tensor.empty"),
        (["--show-passes=canonicalise"], "no pass is called like 'canonicalise'; canonicalize"),
        (["--show-passes=("], "--show-passes=("),
    ],
)
def test_refusals_end_with_1(
    arguments: list[str], message: str, program: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert opt.main([*filter(None, arguments), program]) == 1
    captured = capfd.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-cse", "--stage=tensor"], "passes are given as options or by --stage, not both"),
        (["-cse", "--run-reproducer"], "passes are given as options or by --run-reproducer, not both"),
        (["--run-reproducer"], "the first line of a reproducer holds its command"),
        (["--stage=tensor", f"--transform-script={SCHEDULE}", "--transform-at=llvm"], "the steps that are run are"),
        (["--stage=tensor", f"--transform-script={SCHEDULE}", "--transform-at=tensr"], "no step 'tensr'; tensor?"),
        (["--emit-bytecode", "-split-input-file"], "bytecode holds one module"),
        (["-cse", "--mlir-print-ir-after=cs"], "--mlir-print-ir-after=cs: no such pass is run; cse?"),
        (["--stage=tensor", "--mlir-print-ir-before=zzz"], "no such pass is run; --dump-pass-pipeline shows"),
    ],
)
def test_wrong_usage_ends_with_2(
    arguments: list[str], message: str, program: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert opt.main([program, *arguments]) == 2
    assert message in capfd.readouterr().err


def test_bytecode_does_not_say_its_stage(program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "tensor.mlirbc")
    assert opt.main([program, "--stage=tensor", "--emit-bytecode", "-o", file]) == 0
    assert opt.main([file, "--stage=kernels"]) == 2
    assert "is no StableHLO and does not say which stage it is: --from-stage=NAME" in capfd.readouterr().err
    with pytest.raises(sx.UnsupportedError, match=r"bytecode of other dialects(?s:.)*try: .*--from-stage=NAME"):
        sx.compile(Path(file))
    assert opt.main([file, "--from-stage=tensor", "--stage=kernels"]) == 0
    assert capfd.readouterr().out.startswith("// stage kernels: ")
    damaged = tmp_path / "damaged.mlirbc"
    damaged.write_bytes(Path(file).read_bytes().replace(b"linalg", b"linarg"))
    assert opt.main([str(damaged), "--from-stage=tensor", "--stage=kernels"]) == 1
    assert f"{damaged}: " in capfd.readouterr().err


def test_a_pass_that_there_is_not_is_no_option(program: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        opt.main([program, "-csee"])
    assert caught.value.code == 2
    assert "-csee" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("option", "there_is"),
    [
        ("--debug-only=greedy-rewriter", "--mlir-print-ir-after-change"),
        ("-debug-only=greedy-rewriter", "--mlir-print-ir-after-change"),
        ("--mlir-print-ir-tree-dir=folder", "STABLEXLA_DUMP=DIR"),
        ("--show-dialects", "all are known"),
    ],
)
def test_options_of_mlir_opt_alone(option: str, there_is: str, program: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        opt.main([program, option])
    assert caught.value.code == 2
    said = capfd.readouterr().err
    assert f"there is no option {option}\n  try: " in said
    assert there_is in said


def test_what_hints_name_is_there() -> None:
    known = {name for action in parser()._actions for name in action.option_strings}
    named = {name for hint in HINTS.values() if "translate" not in hint for name in re.findall(r"--[a-z-]+[a-z]", hint)}
    assert named <= known
    assert not known & set(HINTS)


def test_mlirs_inliner_says_that_it_left_calls(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "calls.mlir"
    path.write_text("""func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = call @other(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func private @other(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
    """)
    assert opt.main([str(path), "--pass-pipeline=builtin.module(cse,inline)"]) == 0
    assert "stablexla-inline-calls inlines them" in capfd.readouterr().err
    assert opt.main([str(path), "-stablexla-inline-calls", "--inline"]) == 0
    assert opt.main([str(path), "-stablexla-inline-calls", "-stablexla-lower-to-tensor", "--inline"]) == 0
    assert capfd.readouterr().err == ""


def test_unregistered_operations_are_taken_on_request(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "foreign.mlir"
    path.write_text('module { "foo.bar"() : () -> () }\n')
    assert opt.main([str(path)]) == 1
    assert "allow-unregistered-dialect" in capfd.readouterr().err
    for context in ("stablehlo", "upstream"):
        assert opt.main([str(path), "--allow-unregistered-dialect", f"--context={context}", "-cse"]) == 0
        assert '"foo.bar"()' in capfd.readouterr().out
    assert opt.main([str(path)]) == 1


def test_only_expected_diagnostics_may_be_asked_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.mlir"
    path.write_text("func.func @f(%x: f32) {\n  %0 = arith.nothing %x : f32\n  return\n}\n")
    assert opt.main([str(path), "-verify-diagnostics"]) == 1
    assert f"{path}:2:8: error: unexpected error: custom op 'arith.nothing'" in capfd.readouterr().err
    assert opt.main([str(path), "-verify-diagnostics=only-expected"]) == 0
    assert capfd.readouterr().err == ""


def test_a_broken_pipeline_is_no_diagnostic(program: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert opt.main([program, "-verify-diagnostics", "--pass-pipeline=csee"]) == 1
    assert "'csee' does not refer to a registered pass" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("option", "way_out"),
    [
        ("-cannonicalize", "-canonicalize"),
        ("--stablehlo-refine-shape", "-stablehlo-refine-shapes"),
        ("--stge=tensor", "--stage"),
        ("-my-own=a=1", "stablexla-opt --show-passes, or --load=FILE.py for a pass of your own"),
    ],
)
def test_a_pass_that_there_is_not(option: str, way_out: str, program: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        opt.main([program, option])
    assert capfd.readouterr().err == f"stablexla-opt: there is no option {option}\n  try: {way_out}\n"


def test_places_of_expectations() -> None:
    text = "\n".join(
        [
            "// expected-error@below {{a}}",
            "// expected-note-re@+2 {{b{{[0-9]+}}}}",
            "one // expected-warning {{c}}",
            "// expected-remark@above {{d}}",
            "// expected-error@unknown {{e}}",
            "two",
        ]
    )
    found = sorted((e.text, e.kind, e.line, e.at) for e in expectations(text))
    assert found == [
        ("a", "error", 6, 1),
        ("b{{[0-9]+}}", "note", 4, 2),
        ("c", "warning", 3, 3),
        ("d", "remark", 0, 4),
        ("e", "error", 0, 5),
    ]


def test_a_loaded_file_brings_passes_and_rules(loaded: object, program: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert opt.main([program, "--load", str(PASSES_FILE), "--stage=tensor"]) == 0
    assert "arith.negf" in capfd.readouterr().out
    assert (
        opt.main([program, f"--load={PASSES_FILE}", "--pass-pipeline=stablexla-python{function=my_passes:fails}"]) == 1
    )
    assert "ValueError: on purpose  (my_passes.py:" in capfd.readouterr().err


def test_rules_without_effect_are_told_of(tmp_path: Path, program: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Those that a loaded file registers as well: a tool has one program."""
    path = tmp_path / "sines.py"
    path.write_text("import stablexla as sx\n@sx.lowers('stablehlo.sine')\ndef sine(ctx, x):\n    return x\n")
    try:
        for tool, arguments in ((opt, ["--stage=tensor"]), (opt, ["-stablexla-lower-to-tensor"]), (run, [])):
            assert tool.main([program, f"--load={path}", *arguments]) == 0
            assert "the lowering rule stablehlo.sine: sines:sine" in capfd.readouterr().err
        assert opt.main([program, f"--load={path}", "--stage=stablehlo"]) == 0
        assert capfd.readouterr().err == ""
    finally:
        rules.unregister("stablehlo.sine")
        sys.modules.pop("sines", None)


def test_a_loaded_file_that_fails_is_an_error_with_its_line(
    tmp_path: Path, program: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.py"
    path.write_text("x = 1\ny = x / 0\n")
    assert opt.main([program, f"--load={path}"]) == 1
    assert f"error: {path}:2: ZeroDivisionError: division by zero" in capfd.readouterr().err
    sys.modules.pop("broken", None)


def test_a_reproducer_does_not_load_a_file_by_itself(
    loaded: object, tmp_path: Path, program: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a folder" / "repro.mlir"
    path.parent.mkdir()
    passes = "--pass-pipeline=builtin.module(stablexla-python{function=my_passes:fails})"
    arguments = [f"--load={PASSES_FILE}", passes, f"--mlir-pass-pipeline-crash-reproducer={path}"]
    assert opt.main([program, *arguments]) == 1
    command = re.search("reproduce: stablexla-opt (.*)", capfd.readouterr().err)[1]
    sys.modules.pop("my_passes")
    assert opt.main(shlex.split(command)) == 1  # as it stands
    assert "ValueError: on purpose" in capfd.readouterr().err
    sys.modules.pop("my_passes")
    assert opt.main(["--run-reproducer", str(path)]) == 2
    assert f"the reproducer needs --load={PASSES_FILE}" in capfd.readouterr().err
    assert opt.main(["--run-reproducer", str(path), f"--load={PASSES_FILE}"]) == 1
    assert "ValueError: on purpose" in capfd.readouterr().err


class TestPassList:
    def test_has_the_passes_of_all_sides(self) -> None:
        known = all_passes()
        assert {known[name].origin for name in ("cse", "canonicalize")} == {"both"}
        assert known["stablehlo-refine-shapes"].side == "stablehlo"
        assert known["one-shot-bufferize"].side == "upstream"
        assert known["stablexla-lower-to-tensor"].origin == "python"
        assert [name for name, info in known.items() if not info.summary and info.origin != "upstream"] == []

    def test_every_pass_is_one_that_a_pipeline_may_name(self) -> None:
        from stablexla.targets.pipeline.driver import sides_of_pass

        for name, info in all_passes().items():
            if info.origin != "python":
                wanted = {"both": ("stablehlo", "upstream")}.get(info.side, (info.side,))
                assert sides_of_pass(name) == wanted, name

    def test_a_listing_without_passes(self) -> None:
        assert parse_listing("nothing\n    --x - an option of nothing\n    =a - b\n") == {}


def test_a_name_that_somebody_gave_llvms_options_is_left_out(program):
    """XLA gives the process a name when it reads its flags, and LLVM's messages begin with it from then on."""
    code = (
        "import jax; jax.jit(lambda x: x + 1)(1.0); from stablexla.tools import opt; import sys;"
        f"sys.exit(opt.main(['--canonicalize=max-iterations=x', {program!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("max-iterations: 'x' value invalid") == 1
    assert not [line for line in done.stderr.splitlines() if "for the --" in line]
