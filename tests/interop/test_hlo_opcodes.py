"""Every opcode of HLO that the installed jaxlib knows is read and run, or refused by name.

Oracle: XLA:CPU on the same HLO; numpy for opcodes that XLA:CPU does not run, and for collectives on two devices.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jaxlib import _hlo

import stablexla as sx
from tests.comparison import assert_same
from tests.interop.hlo_opcodes import ELEMENTWISE, SAMPLES, elementwise_together
from tests.interop.hlo_oracle import Arrays, arguments_of, ours, xla
from tests.versions import check_page

Of = Callable[[Arrays], Any]


def _f64(name: str) -> Of:
    return lambda a: getattr(np, name)(a[0].astype(np.float64)).astype(np.float32)


def _scaled_dot(a: Arrays) -> Any:
    x, y, s, t = (v.astype(np.float32) for v in a)
    return (x * np.repeat(s, 32, axis=1)) @ (y * np.repeat(t, 32, axis=0))


BY_NUMPY: dict[str, Of] = {
    **{name: _f64(f"arc{name[1:]}") for name in ("acos", "acosh", "asin", "asinh", "atanh")},
    **{name: _f64(name) for name in ("cosh", "exp2", "log2", "sinh") if name in SAMPLES},
    "mulhi": lambda a: (a[0].astype(np.uint64) * a[1].astype(np.uint64) >> np.uint64(32)).astype(np.uint32),
    "async-start": lambda a: a[0] * 2,
    "copy-start": lambda a: a[0],
    "bitcast": lambda a: a[0].reshape(4, 3, 2).transpose(2, 1, 0),
    "ragged-dot": lambda a: np.concatenate([a[0][:2] @ a[1][0], a[0][2:] @ a[1][1]]),
    "scaled-dot": _scaled_dot,
    "scan": lambda a: np.cumsum(a[0]) - a[0],
    "set-dimension-size": lambda a: a[0][:2],
}
"""What XLA:CPU does not run, or gives in another form."""


def _reduced_on_first(a: Arrays, b: Arrays) -> list[list[Any]]:
    return [[a[0] + b[0]], [a[0] * 0]]


ON_TWO: dict[str, Callable[[Arrays, Arrays], list[list[Any]]]] = {
    **{name: lambda a, b: [[np.concatenate([a[0], b[0]])]] * 2 for name in ("all-gather", "all-gather-start")},
    **{name: lambda a, b: [[a[0] + b[0]]] * 2 for name in ("all-reduce", "all-reduce-start")},
    **{name: lambda a, b: [b, a] for name in ("collective-permute", "collective-permute-start")},
    "all-to-all": lambda a, b: [[a[0], b[0]], [a[1], b[1]]],
    "collective-broadcast": lambda a, b: [a, a],
    **({"collective-reduce": _reduced_on_first} if "collective-reduce" in SAMPLES else {}),
    "reduce-scatter": lambda a, b: [[part] for part in np.split(a[0] + b[0], 2)],
}
"""What two devices have, by what they gave."""

EFFECTS = ("infeed", "outfeed", "recv", "recv-done", "send", "send-done")
RANDOM = ("rng", "rng-get-and-update-state")
ELSEWHERE = ("ragged-all-to-all", "shuffle")
"""Read as `ragged_all_to_all`, whose pieces overlap here: it has tests of its own. A shuffle is refused."""

TOGETHER = {opcode for opcodes in ELEMENTWISE.values() for opcode in opcodes.split()}
ALONE = {text: name for name, text in reversed(SAMPLES.items())}
"""One name of each text: a pair's first."""
COMPARED = [
    name for name in ALONE.values() if name not in {*TOGETHER, *BY_NUMPY, *ON_TWO, *EFFECTS, *RANDOM, *ELSEWHERE}
]


def module(name: str) -> str:
    return f"HloModule m\n\n{SAMPLES[name]}"


def test_every_opcode_has_a_program() -> None:
    """The installed jaxlib says which opcodes there are; a program has the one that it stands for."""
    known = {name for name in dir(_hlo.HloOpcode) if re.fullmatch(r"k[A-Z]\w*", name)}
    found = set()
    for name, text in SAMPLES.items():
        parsed = _hlo.hlo_module_from_text(f"HloModule m\n\n{text}")
        found |= {i.opcode.name for c in parsed.computations() for i in c.instructions()}
        assert re.search(rf"[\]}})] {name}\(", text), name
    assert found == known


@pytest.mark.parametrize("name", COMPARED)
def test_as_xla(name: str) -> None:
    arguments = arguments_of(sx.load(module(name)))
    for actual, right in zip(ours(module(name), arguments), xla(module(name), arguments), strict=True):
        assert_same(actual, right, ulp=4, scale=1e-6)


@pytest.mark.parametrize(("element", "operands"), ELEMENTWISE)
def test_elementwise_as_xla(element: str, operands: int) -> None:
    text = f"HloModule m\n\n{elementwise_together(element, operands)}"
    arguments = arguments_of(sx.load(text))
    for actual, right in zip(ours(text, arguments), xla(text, arguments), strict=True):
        assert_same(actual, right, ulp=4, scale=1e-6)


@pytest.mark.parametrize("name", BY_NUMPY)
def test_as_numpy(name: str) -> None:
    arguments = arguments_of(sx.load(module(name)))
    with np.errstate(invalid="ignore"):
        right = BY_NUMPY[name](arguments)
    assert_same(ours(module(name), arguments)[0], right, ulp=4, scale=1e-6)


@pytest.mark.parametrize("name", ON_TWO)
def test_on_two_devices(name: str) -> None:
    """The header names no devices: the collectives do."""
    executable = sx.compile(module(name))
    assert (executable.num_replicas, executable.num_partitions) == (2, 1)
    first, second = (arguments_of(sx.load(module(name)), seed) for seed in (1, 2))
    for actual, right in zip(executable.execute_replicated([first, second]), ON_TWO[name](first, second), strict=True):
        for a, b in zip(actual, right, strict=True):
            assert_same(a, b)


def test_effects() -> None:
    executable = sx.compile(module("infeed"))
    executable.transfer_to_infeed(np.arange(4, dtype=np.float32))
    assert_same(executable.execute([])[0], np.arange(4, dtype=np.float32))
    executable = sx.compile(module("outfeed"))
    assert_same(executable.execute([np.ones(4, np.float32)])[0], -np.ones(4, np.float32))
    assert_same(executable.transfer_from_outfeed(), np.ones(4, np.float32))
    assert {"stablehlo.send", "stablehlo.recv"} <= set(re.findall(r"stablehlo\.\w+", str(sx.load(module("send")))))


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers(name: str) -> None:
    """Numbers that nobody chose: others in each call."""
    executable = sx.compile(module(name))
    assert (executable.execute([])[0] != executable.execute([])[0]).all()


def test_what_others_run() -> None:
    assert "@ragged_all_to_all" in str(sx.load(module("ragged-all-to-all")))


@pytest.mark.skipif("shuffle" not in SAMPLES, reason="the installed jaxlib has no such opcode")
def test_shuffles_are_refused_by_name() -> None:
    with pytest.raises(sx.StablexlaError, match=r"hlo\.shuffle"):
        sx.compile(module("shuffle"))


def test_the_page_is_up_to_date() -> None:
    check_page("make_hlo_opcodes")
