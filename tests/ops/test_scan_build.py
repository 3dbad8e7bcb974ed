"""What scan refuses."""

from __future__ import annotations

import stablexla as sx
from tests.ops.building import build, refused


def both(a, c):
    return a + c, a + c


def test_shapes():
    made = build(lambda x, z: sx.scan(x, z, both, 1), sx.f32[2, 8], sx.f32[2])
    assert made.result_shape == sx.Shape.tuple((sx.f32[2, 8], sx.f32[2]))


def test_sizes():
    error = refused("", lambda x, y, z: sx.scan((x, y), z, lambda a, c, d: (a, d), 0), sx.f32[2], sx.f32[3], sx.f32[()])
    assert "the same, not [2, 3]" in error.summary
    refused("", lambda x, z: sx.scan(x, z, both, 0, 3), sx.f32[2], sx.f32[()])
    refused("", lambda z: sx.scan((), z, lambda c: c, 0), sx.f32[()])
    refused("", lambda z: sx.scan((), z, lambda c: c, 0, -1), sx.f32[()])


def test_dimensions():
    refused("", lambda x, z: sx.scan(x, z, both, 1), sx.f32[2], sx.f32[()])
    refused("", lambda x, z: sx.scan(x, z, both, -1), sx.f32[2], sx.f32[()])
    refused("", lambda z: sx.scan((), z, lambda c: (c, c), 2, 3), sx.f32[2])


def test_computations():
    refused("", lambda x, z: sx.scan(x, z, build(sx.neg, sx.f32[()]), 0), sx.f32[2], sx.f32[()])
    refused("", lambda x, z: sx.scan(x, z, lambda a, c: (a, sx.lt(a, c)), 0), sx.f32[2], sx.f32[()])
    refused("", lambda x, z: sx.scan(x, (z, z), lambda a, c, d: c, 0), sx.f32[2], sx.f32[()])
    refused("", lambda x, z: sx.scan(x, z, build(sx.add, sx.f64[()], sx.f64[()]), 0), sx.f32[2], sx.f32[()])
    refused("", lambda x: sx.scan((), (), lambda: x, 0, 3), sx.f32[2])
