"""Schedules of the transform dialect as steps of a pipeline: what they make is right, and bad ones are errors.

Results are compared with numpy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stablexla as sx

HEAD = "module attributes {transform.with_named_sequence} {"
ENTRY = "transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly})"
ANY = "!transform.any_op"
FUNCTIONS = 'op<"func.func">'
MATCH = f'%0 = transform.structured.match ops{{["linalg.generic"]}} in %m : ({ANY}) -> {ANY}'
TILE = f"%1, %2 = transform.structured.tile_using_for %0 tile_sizes [2] : ({ANY}) -> ({ANY}, {ANY})"


def compiled(folder: Path, script: str, *, entry: str = "", after: str = "kernels") -> sx.Executable:
    """A row of a table, scaled and summed, with a schedule in its pipeline."""
    path = folder / "a schedule.mlir"
    path.write_text(script)
    entry = f" entry={entry}" if entry else ""
    step = sx.Step("schedule", f"stablexla-transform{{script='{path}'{entry}}},canonicalize")
    b = sx.XlaBuilder("rows")
    x = b.parameter(0, sx.f32[6, 16])
    computation = b.build(sx.reduce(sx.tanh(x) * 2, b.constant(0.0), lambda a, c: a + c, (1,)))
    return sx.compile(computation, options=sx.CompileOptions(pipeline=sx.pipeline().inserting(step, after=after)))


def test_what_a_schedule_makes_is_right(tmp_path: Path) -> None:
    script = f"{HEAD} {ENTRY} {{\n{MATCH}\n{TILE}\ntransform.yield }} }}"
    executable = compiled(tmp_path, script)
    x = np.random.default_rng(0).standard_normal((6, 16)).astype(np.float32)
    np.testing.assert_allclose(executable(x), (np.tanh(x) * 2).sum(1), rtol=1e-5, atol=1e-5)
    assert "scf.for" in executable.ir("schedule")


def test_loops_belong_into_kernels(tmp_path: Path) -> None:
    script = f"{HEAD} {ENTRY} {{\n{MATCH}\n{TILE}\ntransform.yield }} }}"
    with pytest.raises(sx.CompileError, match=r"scf\.for makes an array in main") as raised:
        compiled(tmp_path, script, after="tensor")
    assert raised.value.option.startswith("--transform-at=kernels")


def test_a_sequence_is_chosen_by_name(tmp_path: Path) -> None:
    script = f"{HEAD} {ENTRY.replace('__transform_main', 'other')} {{ transform.yield }} }}"
    assert "linalg.generic" in compiled(tmp_path, script, entry="other").ir("schedule")
    with pytest.raises(sx.CompileError, match="has no sequence @__transform_main; it has @other"):
        compiled(tmp_path, script)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("module { }", "has not the attribute transform.with_named_sequence"),
        ("nonsense", "custom op 'nonsense' is unknown"),
        (f"{HEAD} }}", "has no sequence @__transform_main; it has none"),
        (f"{HEAD} transform.named_sequence @__transform_main() {{ transform.yield }} }}", "one argument, the module"),
        (f"{HEAD} transform.named_sequence private @__transform_main({ANY} {{transform.readonly}}) }}", "have a body"),
        (
            f"{HEAD} transform.named_sequence @__transform_main(%m: {ANY} {{transform.readonly}}, "
            f"%n: {ANY} {{transform.readonly}}) {{ transform.yield }} }}",
            "one argument, the module",
        ),
        (f"{HEAD} {ENTRY.replace(ANY, '!transform.param<i64>')} {{ transform.yield }} }}", "TransformHandleType"),
        (f"{HEAD} {ENTRY.replace('any_op', FUNCTIONS)} {{ transform.yield }} }}", "incompatible payload"),
        (
            f"{HEAD} {ENTRY} {{ transform.include @__transform_main failures(propagate) (%m) : ({ANY}) -> ()\n"
            "transform.yield } }",
            "recursion not allowed",
        ),
        (f"{HEAD} {ENTRY} {{\n{MATCH}\n{TILE}\n{TILE.replace('%1, %2', '%3, %4')}\ntransform.yield }} }}", "consume"),
        (
            f"{HEAD} {ENTRY} {{\n{MATCH.replace('linalg.generic', 'func.func')}\n{TILE}\ntransform.yield }} }}",
            "only ops implementing TilingInterface are supported",
        ),
    ],
)
def test_bad_schedules(script: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(sx.CompileError, match=message) as caught:
        compiled(tmp_path, script)
    assert caught.value.stage == "schedule"
    assert str(tmp_path / "a schedule.mlir") in str(caught.value)


def test_a_schedule_needs_a_file() -> None:
    for passes in ("stablexla-transform", "stablexla-transform{script=nowhere.mlir}"):
        with pytest.raises(sx.CompileError, match=r"needs a script|there is no schedule"):
            sx.compile(
                "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }",
                options=sx.CompileOptions(pipeline=sx.pipeline().inserting(sx.Step("s", passes), after="tensor")),
            )
