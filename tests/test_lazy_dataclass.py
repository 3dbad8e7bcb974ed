"""`dialects/lazy_dataclass.py`: classes that are the standard decorator's, only later."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading
from typing import Any, Generic, TypeVar

import pytest

from stablexla.dialects.lazy_dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True)
class Point:
    """A point."""

    x: int
    y: int = 0

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("left of zero")


@dataclass(frozen=True)
class Named(Point, Generic[T]):
    name: str = ""
    tags: list[T] = dataclasses.field(default_factory=list, hash=False, compare=False)


FIELDS = [
    ("x", "int"),
    ("y", "int", 0),
    ("name", "str", ""),
    ("tags", "list[T]", dataclasses.field(default_factory=list)),
]


@dataclass
class Counter:
    count: int = 0


class Doubled(Counter):
    def __init__(self, count: int) -> None:
        super().__init__(2 * count)


def test_fields_complete_a_class():
    @dataclass(frozen=True)
    class Late:
        a: int
        b: str = "b"

    assert not isinstance(vars(Late)["__dataclass_fields__"], dict)
    assert [f.name for f in dataclasses.fields(Late)] == ["a", "b"]
    assert isinstance(vars(Late)["__dataclass_fields__"], dict)
    assert Late.__match_args__ == ("a", "b")


def test_signature():
    @dataclass
    class Late:
        a: int = 1

    class Derived(Late):
        def __init__(self, b: int) -> None:
            super().__init__(b)

    assert str(inspect.signature(Derived)) == "(b: 'int') -> 'None'"
    assert str(inspect.signature(Late)) == "(a: 'int' = 1) -> None"
    assert "__signature__" not in vars(Late)
    assert str(inspect.signature(Named)) == str(inspect.signature(dataclasses.make_dataclass("Named", FIELDS)))


def test_it_does_what_the_standard_one_does():
    one = Point(1)
    assert (one, hash(one), repr(one)) == (Point(1, 0), hash(Point(x=1)), "Point(x=1, y=0)")
    assert dataclasses.replace(one, y=3) == Point(1, 3)
    assert dataclasses.astuple(one) == (1, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 2  # type: ignore[misc]
    with pytest.raises(ValueError, match="left of zero"):
        Point(-1)
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    assert not hasattr(Point, "__setstate__")


def test_derived_classes():
    named: Named[int] = Named(1, 2, "p")
    assert repr(named) == "Named(x=1, y=2, name='p', tags=[])"
    assert named.tags is not Named(1, 2, "p").tags
    assert named == Named(1, 2, "p", [1])
    assert named != Point(1, 2)
    assert repr(Doubled(3)) == "Doubled(count=6)"


def test_the_first_instance_may_be_unpickled():
    code = (
        "import pickle; from tests import test_lazy_dataclass as t;"
        f"p = pickle.loads({pickle.dumps(Named(1, 2, 'p'))!r});"
        "print(p, p == t.Named(1, 2, 'p'), {p: 1}[t.Named(1, 2, 'p')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Named(x=1, y=2, name='p', tags=[]) True 1"


def test_threads_meet_in_a_class():
    for _ in range(20):

        @dataclass(frozen=True)
        class Late:
            a: int
            b: list[int] = dataclasses.field(default_factory=list)

        made: list[Late] = []
        barrier = threading.Barrier(4)

        def make(cls: Any = Late, made: list[Any] = made, barrier: Any = barrier) -> None:
            barrier.wait()
            made.append(cls(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [Late(1)] * 4
