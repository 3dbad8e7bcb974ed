"""The target upstream: programs of every kind have the results of their oracles, and what it has not is refused.

Catches lowering rules whose operations mean something else to upstream's passes than to the emitters.
`pytest --slice --target upstream tests/ops` runs the operations' own tests on it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stablexla as sx
from tests.comparison import assert_same
from tests.programs import ORACLES
from tests.targets.pipeline.gate_programs import PROGRAMS

IDENTITY = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
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
