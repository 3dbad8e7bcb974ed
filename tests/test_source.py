"""The user's line: where tracebacks of errors end, where warnings point to, and calls that do not fit a signature."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.caller import warn
from stablexla.targets.pipeline.knobs import knobs
from tests.test_tracing import counted


def frames_of(use: Callable[[sx.XlaOp], Any]) -> list[traceback.FrameSummary]:
    """The frames of the error that `use` raises, from its own on."""
    x = sx.XlaBuilder("b").parameter(0, sx.f32[2, 3])
    with pytest.raises(sx.StablexlaError) as raised:
        use(x)
    return list(traceback.extract_tb(raised.value.__traceback__))[1:]


def body(a: sx.XlaOp) -> sx.XlaOp:
    return a + a.builder.constant([1, 2])


class TestTracebacks:
    @pytest.mark.parametrize(
        "use",
        [
            lambda x: x + x.builder.constant(1),
            lambda x: 1.5 // x,
            lambda x: sx.reduce(x, 0.0, sx.add, (7,)),
            lambda x: sx.select(x, x, x),
            lambda x: x[9],
            lambda x: float(x),
            lambda x: np.exp(x),
            lambda x: list(x),
            lambda x: x.builder.parameter(0, sx.f32[2]),
            lambda x: x.builder.build(3),  # type: ignore[arg-type]
            lambda x: sx.while_(sx.neg, sx.neg, x),
            lambda x: sx.reduce(x, 0.0, sx.add, axis=0),  # type: ignore[call-arg]
            lambda x: sx.f32[None, 3],  # type: ignore[index]
            lambda x: sx.s8[-1],
            lambda x: sx.pred["<=2147483648"],
        ],
    )
    def test_they_end_at_the_users_line(self, use: Callable[[sx.XlaOp], Any]) -> None:
        assert [(each.filename, each.name) for each in frames_of(use)] == [(__file__, "<lambda>")]

    def test_errors_of_shapes_name_the_line(self) -> None:
        """As those of operations do; where no function of the builder is called, there is none to name."""
        with pytest.raises(sx.ShapeError) as raised:
            sx.f32[2, None]  # type: ignore[index]
        assert raised.value.source is not None
        assert str(raised.value).splitlines()[1] == (
            f"  at {__file__}:{raised.value.source.line} in test_errors_of_shapes_name_the_line:  "
            "sx.f32[2, None]  # type: ignore[index]"
        )
        with pytest.raises(sx.ShapeError) as raised:
            sx.Shape.parse("f32[")
        assert raised.value.source is None

    def test_lines_of_functions_inside_stay(self) -> None:
        """Those of a loop's body, without the frames of the loop that calls it."""
        frames = [(each.filename, each.name) for each in frames_of(lambda x: sx.while_(lambda _: body(x), body, x))]
        assert frames == [(__file__, "<lambda>"), (__file__, "<lambda>"), (__file__, "body")]

    @pytest.mark.parametrize(
        "use",
        [
            lambda x: sx.compile("no program"),
            lambda x: sx.compile(x.builder.build(x), target="cuda"),
            lambda x: sx.compile(x.builder.build(sx.all_reduce(x, sx.add, ((0, 1),)))),
        ],
    )
    def test_of_the_compiler(self, use: Callable[[sx.XlaOp], Any]) -> None:
        assert [each.name for each in frames_of(use) if "tombstones" not in each.filename] == ["<lambda>"]
        with knobs.scoped(full_tracebacks=True):
            assert frames_of(use)[1].name == "compile"

    def test_of_what_is_wrong_in_this_package_all_is_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from stablexla.interop import jax

        def wrong(*_: object) -> None:
            raise KeyError("of ours")

        wrong.__code__ = wrong.__code__.replace(co_filename=sx.__file__)
        function = jax.jit(lambda a: a)
        monkeypatch.setattr(type(function), "lower", wrong)
        with pytest.raises(KeyError, match="of ours") as raised:
            function(1.0)
        assert [each.name for each in traceback.extract_tb(raised.value.__traceback__)][-2:] == ["_compile", "wrong"]

    def test_all_frames_where_they_are_asked_for(self) -> None:
        with knobs.scoped(full_tracebacks=True):
            frames = frames_of(lambda x: sx.select(x, x, x))
        assert frames[-1].filename.endswith("checking.py")

    def test_an_error_of_the_users_own(self) -> None:
        x = sx.XlaBuilder("b").parameter(0, sx.f32[2])

        def broken(a: sx.XlaOp) -> sx.XlaOp:
            raise TypeError("mine")

        with pytest.raises(TypeError, match="mine"):
            counted(2, x, broken)


class TestSignatures:
    @pytest.mark.parametrize(
        ("use", "keyword", "meant"),
        [
            (lambda x: sx.reduce(x, 0.0, sx.add, axis=0), "axis", "dimensions"),
            (lambda x: sx.reduce(x, 0.0, sx.add, dims=(0,)), "dims", "dimensions"),
            (lambda x: sx.concatenate((x, x), axis=0), "axis", "dimension"),
            (lambda x: sx.convert_element_type(x, dtype="s32"), "dtype", "new_element_type"),
            (lambda x: sx.reduce(x, initial=0.0), "initial", "init_values"),
            (lambda x: sx.while_(sx.neg, boddy=sx.neg), "boddy", "body"),
        ],
    )
    def test_keywords_of_other_libraries(self, use: Callable[[sx.XlaOp], Any], keyword: str, meant: str) -> None:
        x = sx.XlaBuilder("b").parameter(0, sx.f32[2, 3])
        with pytest.raises(sx.ShapeError, match=f"there is no parameter '{keyword}'") as raised:
            use(x)
        assert raised.value.hint.startswith(f"{meant}=, in sx.{raised.value.operation}(")
        assert raised.value.source is not None

    def test_other_calls_that_do_not_fit(self) -> None:
        b = sx.XlaBuilder("b")
        x = b.parameter(0, sx.f32[2, 3])
        with pytest.raises(sx.ShapeError, match=r"reduce: missing 3 .*'dimensions'") as raised:
            sx.reduce(x)  # type: ignore[call-arg]
        assert raised.value.hint == "sx.reduce(operands, init_values, computation, dimensions)"
        with pytest.raises(sx.ShapeError, match="parameter: there is no parameter 'colour'") as raised:
            b.parameter(1, sx.f32[2], colour="red")  # type: ignore[call-arg]
        assert raised.value.hint == "b.parameter(number, shape, name)"
        with pytest.raises(sx.ShapeError, match="neg: takes 1 positional argument but 2 were given"):
            sx.neg(x, x)  # type: ignore[call-arg]


class TestWarnings:
    def test_they_point_to_the_line_outside_of_the_package(self) -> None:
        names = {"__name__": "stablexla.somewhere", "warn": warn}
        exec("def inner(): warn('seen', RuntimeWarning)\ndef outer(): inner()", names)
        with pytest.warns(RuntimeWarning, match="seen") as seen:
            names["outer"]()  # type: ignore[operator]
        assert seen[0].filename == __file__

    def test_an_array_that_every_device_computes(self) -> None:
        """The warning is at the call of `compile`, and names the line of the operation."""
        b = sx.XlaBuilder("b")
        with b.scoped_sharding("{devices=[4]<=[4]}"):
            x = b.parameter(0, sx.f32[8])
        y = sx.sort(x, lambda a, c: a < c, 0)
        computation = b.build(y)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            sx.compile(computation, num_partitions=4)
        (warning,) = seen
        assert warning.filename == __file__
        assert issubclass(warning.category, sx.ReplicationWarning)
        assert re.search(r"stablehlo\.sort: each of 4 devices .*test_source\.py:\d+", str(warning.message), re.DOTALL)
