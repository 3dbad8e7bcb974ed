"""The target upstream: programs of every kind have the results of their oracles, and what it has not is refused.

Catches lowering rules whose operations mean something else to upstream's passes than to the emitters.
`pytest --slice --target upstream tests/ops` runs the operations' own tests on it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.executable.running import Running
from stablexla.tools.compile import main as compile_main
from stablexla.tools.run import main as run_main
from tests.comparison import assert_same
from tests.programs import ORACLES
from tests.targets.pipeline.gate_programs import PROGRAMS

IDENTITY = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
GIVEN = np.array([1, 2], np.float32)
NEED_THE_HOST = {"bits", "cholesky", "eigenvalues"}


@pytest.mark.parametrize("part", sorted(PROGRAMS.keys() - NEED_THE_HOST))
def test_programs(part: str) -> None:
    given = PROGRAMS[part]
    program = given.build()
    results = sx.compile(program, target="upstream").execute(list(given.arguments))
    if given.expected is None:
        wanted = ORACLES[given.against](str(program), given.arguments)
    else:
        made = given.expected(*given.arguments)
        wanted = made if isinstance(made, list) else [made]
    for actual, right in zip(results, wanted, strict=True):
        assert_same(np.asarray(actual), np.asarray(right).astype(actual.dtype), scale=given.scale)


@pytest.mark.parametrize("name", ["s2", "u2", "s4", "u4", "pred", "bf16", "f8e4m3fn", "c64"])
def test_bytes_of_narrow_types(name: str) -> None:
    b = sx.XlaBuilder("moved")
    element = sx.element_type(name)
    x = b.parameter(0, sx.Shape(name, (2, 3)))
    executable = sx.compile(b.build(sx.transpose(x, (1, 0))), target="upstream")
    given = np.array([[0, 1, -1], [1, 0, 1]]).astype(element.dtype)
    assert executable(given).tobytes() == given.T.tobytes()


def test_what_it_has_not(tmp_path: Path) -> None:
    b = sx.XlaBuilder("devices")
    x = b.parameter(0, sx.f32[2])
    reduced = b.build(sx.all_reduce(x, sx.add))
    with pytest.raises(sx.UnsupportedError, match="has no runtime, which collective of @collective_0 calls"):
        sx.compile(reduced, target="upstream", num_replicas=2)
    with pytest.raises(sx.UnsupportedError, match="runs programs for one device"):
        sx.compile(IDENTITY, target="upstream", num_replicas=2)
    random = sx.rng_uniform(b.constant(0.0), b.constant(1.0), sx.f32[2])
    with pytest.raises(sx.UnsupportedError, match="has no runtime, which random_key of @random_key_0 calls") as raised:
        sx.compile(b.build(random), target="upstream")
    assert raised.value.hint == 'target="cpu"'
    executable = sx.compile(IDENTITY, target="upstream")
    with pytest.raises(ValueError, match="for the target 'cpu' or 'gpu', not 'upstream'"):
        sx.register_composite_kernel("my.moved", 1, np.copy, target="upstream")
    with pytest.raises(sx.UnsupportedError, match="the target upstream has no kernels, whose times"):
        executable.profile([np.zeros(2, np.float32)])
    with pytest.raises(sx.UnsupportedError, match="code of the target upstream stays in the process that made it"):
        executable.save(tmp_path / "moved.sxe")


def test_as_a_reference() -> None:
    """The fault is planted in the compiled program; upstream's way does not share it."""
    b = sx.XlaBuilder("compared")
    x = b.parameter(0, sx.f32[8])
    program = b.build(sx.exp(sx.neg(x)))
    given = [np.linspace(-1, 1, 8, dtype=np.float32)]
    assert sx.compile(program).compare(given, "upstream")
    wrong = sx.CompileOptions(rules=[sx.lowering_rule("stablehlo.negate", lambda ctx, x: [x])])
    found = sx.compile(program, options=wrong).compare(given, "upstream", cause=False)
    assert not found
    assert "stablehlo.negate" in str(found)


@pytest.mark.parametrize(
    "options", [{"flush_denormals": True}, {"choices": "eager"}], ids=lambda given: next(iter(given))
)
def test_options_that_it_cannot_heed(options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(sx.UnsupportedError, match=f"upstream cannot compile with {name}={value!r}") as raised:
        sx.compile(IDENTITY, target="upstream", options=sx.CompileOptions(**options))
    assert raised.value.hint == f'no {name}, or target="cpu"'
    assert sx.compile(IDENTITY, options=sx.CompileOptions(**options))(GIVEN).tolist() == [1.0, 2.0]


def test_runs_that_it_cannot_end() -> None:
    executable, usual = sx.compile(IDENTITY, target="upstream"), sx.compile(IDENTITY)
    ask: dict[str, Callable[[sx.Executable], Any]] = {
        "execute": lambda e: e.execute([GIVEN], time_limit=60),
        "start": lambda e: e.start([GIVEN], time_limit=60).result(),
        "replicated": lambda e: e.execute_replicated([[GIVEN]], time_limit=60)[0],
    }
    for name, run in ask.items():
        with pytest.raises(sx.UnsupportedError, match="time_limit: runs of programs for the target upstream") as raised:
            run(executable)
        assert raised.value.hint == 'no time_limit, or target="cpu"', name
        assert run(usual)[0].tolist() == [1.0, 2.0]
    with pytest.raises(sx.UnsupportedError, match="time_limit: runs of programs for the target upstream"):
        executable.check([GIVEN], time_limit=60)
    assert executable.start([GIVEN]).result()[0].tolist() == [1.0, 2.0]


def test_a_run_is_not_cancelled() -> None:
    going_on = Event()
    run = Running("endless", lambda: [np.array(going_on.wait())], None, "upstream")
    with pytest.raises(sx.UnsupportedError, match="cancel: runs of programs for the target upstream cannot be ended"):
        run.cancel()
    going_on.set()
    assert run.result()[0]
    run.cancel()  # it has ended


def test_the_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "moved.mlir"
    file.write_text(IDENTITY)
    assert run_main([str(file), "--target=upstream", "--input=1,2", "--time-limit=60"]) == 1
    assert "try: no --time-limit, or --target=cpu" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        compile_main([str(file), "--target=upstream", "-o", str(tmp_path / "moved.so")])
    assert "code for upstream stays in the process that made it" in capsys.readouterr().err
