"""Results do not depend on the number of threads: programs that are cut up differently give the same bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets import runtime


def softmax(x: sx.XlaOp) -> sx.XlaOp:
    top = sx.reduce(x, x.builder.constant(float("-inf")), sx.max, (1,))
    e = sx.exp(sx.sub(x, top, broadcast_dimensions=(0,)))
    return sx.div(e, sx.reduce(e, x.builder.constant(0.0), sx.add, (1,)), broadcast_dimensions=(0,))


PROGRAMS: dict[str, Callable[[sx.XlaOp], sx.XlaOp]] = {
    "loop": lambda x: sx.sin(x) * x,
    "rows": softmax,
    "sum of rows": lambda x: sx.reduce(x, x.builder.constant(0.0), sx.add, (1,)),
    "sum of columns": lambda x: sx.reduce(x, x.builder.constant(0.0), sx.add, (0,)),
    "sum of all": lambda x: sx.reduce(x, x.builder.constant(0.0), sx.add, (0, 1)),
    "product": lambda x: x @ sx.transpose(x, (1, 0)),
    "transpose": lambda x: sx.transpose(x, (1, 0)),
    "sort": lambda x: sx.sort(x, sx.lt, dimension=1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_number_of_threads(name: str) -> None:
    x = np.random.default_rng(3).standard_normal((531, 1037), np.float32)
    before, found = runtime.get_num_threads(), []
    for threads in (1, 2, 3, None):
        b = sx.XlaBuilder("program")
        computation = b.build(PROGRAMS[name](b.parameter(0, sx.f32[531, 1037])))
        run = sx.compile(computation, options=sx.CompileOptions(num_threads=threads, deterministic=True))
        for pool in (1, 3):
            runtime.set_num_threads(pool)
            try:
                found.append(run(x))
            finally:
                runtime.set_num_threads(before)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_a_limit_is_a_number_of_pieces() -> None:
    b = sx.XlaBuilder("program")
    computation = b.build(sx.sin(b.parameter(0, sx.f32[4096, 512])))
    grains = []
    for threads in (1, 2, 3):
        text = sx.compile(computation, options=sx.CompileOptions(num_threads=threads)).ir("buffers")
        grains += [int(part.split()[0]) for part in text.split("stablexla.grain = ")[1:]]
    items = 2 * grains[0]
    assert grains == [items // 2, -(-items // 3)]
