"""Positions in a factor: numbers for every iteration and lane, or a refusal. Oracle: divmod."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stablexla.targets.grouping.factors import Coordinate, Unreadable


def positions(base: int, x: Coordinate) -> np.ndarray:
    """The positions of all lanes."""
    return (x.base + np.arange(max(1, x.lanes))) * x.multiple + x.start if x.lanes else np.array([number(x)])


def number(x: Coordinate) -> int:
    return int(x.base * x.multiple + x.start)


FORMS = [
    (multiple, start, lanes)
    for multiple, start, lanes in itertools.product((1, 2, 4, 8), (0, 1, 3, 64, 67), (0, 8, 16))
    if start % 64 < multiple or not lanes
]


@pytest.mark.parametrize(("multiple", "start", "lanes"), FORMS)
@pytest.mark.parametrize("by", [2, 3, 8, 32, 64, 96])
def test_quotient_and_remainder(multiple: int, start: int, lanes: int, by: int):
    for step in (0, 1, 5, 8):
        x = Coordinate(step * max(1, lanes), multiple, start, 256 * multiple, lanes)
        try:
            quotient, remainder = x.divided(by)
        except Unreadable:
            assert lanes
            continue
        wanted = np.divmod(positions(0, x), by)
        for found, expected in zip((quotient, remainder), wanted, strict=True):
            if found.lanes == lanes:
                np.testing.assert_array_equal(positions(0, found), expected)
            else:
                assert set(expected) == {number(found)}
            assert all(expected < max(found.end + max(0, lanes - 1) * found.multiple, found.end))
        assert quotient.joined(remainder, by) is x


def test_lanes_of_one_group_have_one_scale():
    quotient, remainder = Coordinate(96, 1, 0, 256, 16).divided(32)
    assert (quotient.lanes, number(quotient)) == (0, 3)
    assert (remainder.lanes, number(remainder)) == (16, 0)


def test_lanes_of_several_groups_are_refused():
    with pytest.raises(Unreadable):
        Coordinate(96, 1, 0, 256, 16).divided(24)


@pytest.mark.parametrize(("outer", "inner"), [(3, 5), (0, 7), (4, 0)])
def test_positions_are_joined(outer: int, inner: int):
    x, y = Coordinate(outer, 2, 1, 16), Coordinate(inner, 1, 0, 8)
    assert number(x.joined(y, 8)) == (2 * outer + 1) * 8 + inner
    assert x.joined(y, 8).end > (2 * outer + 1) * 8 + inner


def test_lanes_that_begin_anywhere_are_refused():
    """Vectors of 16 begin at multiples of 16; rows of 24 do not."""
    with pytest.raises(Unreadable):
        Coordinate(1, 1, 0, 4).joined(Coordinate(0, 1, 0, 24, 16), 24)
