"""Choices of gates: texts, values, and that passes are given them. Catches gates that a compilation cannot choose."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.choices import GATES, Choices, chosen
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.grouping.complex_products import LEAST_WORK
from stablexla.targets.llvm import early_code, engine
from stablexla.targets.pipeline.knobs import knobs

NAME = "complex-products.least-work"


TEXTS = ["usual", "eager", "drawn:12", f"eager+{NAME}=64", f"usual+{NAME}=3+rolls.least-elements=7"]


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text: str) -> None:
    sx.pipeline("cpu")  # which imports all gates
    assert str(Choices.of(text)) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("keen", "choices are usual, eager or drawn:NUMBER, not 'keen'"),
        ("drawn:x", "not 'drawn:x'"),
        ("eager+complex-product.least-work=1", "there is no gate 'complex-product.least-work'"),
        (f"eager+{NAME}=0", f"the gate {NAME} needs a number of 1 at least, not '0'"),
        (f"eager+{NAME}", "not ''"),
    ],
)
def test_what_is_no_choice(text: str, told: str) -> None:
    with pytest.raises(sx.CompileError, match=told):
        Choices.of(text)


def test_values() -> None:
    sx.pipeline("cpu")
    assert len(GATES) > 60
    for gate in GATES.values():
        assert gate() == gate.usual
        with chosen("eager"):
            assert gate() == gate.eager
        low, high = sorted((gate.usual, gate.eager))
        drawn = [Choices.of(f"drawn:{number}").value(gate) for number in range(40)]
        assert {low, high} <= set(drawn), gate
        assert all(low <= value <= high for value in drawn), gate
    with chosen(f"eager+{NAME}=64"):
        assert LEAST_WORK() == 64


def product(n: int) -> sx.XlaComputation:
    b = sx.XlaBuilder("product")
    x = b.parameter(0, sx.c64[n, n])
    return b.build(sx.dot(x, x))


def is_split(computation: sx.XlaComputation, choices: str) -> bool:
    kernels = sx.compile(computation, options=sx.CompileOptions(choices=choices)).ir("kernels")
    return "unrealized_conversion_cast" in kernels


def test_a_pass_is_given_them() -> None:
    """On both sides of a gate, and where it is moved."""
    assert [is_split(product(n), "usual") for n in (15, 16)] == [False, True]
    assert is_split(product(3), "eager")
    assert not is_split(product(16), f"usual+{NAME}=4097")
    with knobs.scoped(choices="eager"):
        assert is_split(product(3), "")


def test_machine_code_is_given_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made after the last pass: by parts, from fewer operations on."""
    monkeypatch.setattr(engine, "host_target", lambda: CpuTarget(num_threads=4))
    monkeypatch.setattr(early_code, "PART", 10_000)
    b = sx.XlaBuilder("parts")
    x, y = (b.parameter(n, sx.f32[20, 30]) for n in range(2))
    program = b.build(sx.tuple([sx.transpose(x, (1, 0)), sx.reduce(y, b.constant(0.0), sx.add, (1,))]))
    parts = [
        len(sx.compile(program, options=sx.CompileOptions(choices=text))._function.keep_alive.object_files())
        for text in ("usual+split-module.least-operations=100000", "usual+split-module.least-operations=1")
    ]
    assert parts[0] == 1 < parts[1]


def test_they_are_in_the_pipelines_text() -> None:
    pipeline = sx.pipeline("cpu", sx.CompileOptions(choices="eager"))
    assert "stablexla-join-factors{choices=eager}" in str(pipeline)
    assert " choices=eager}" in str(pipeline)
    assert sx.Pipeline.parse(str(pipeline)) == pipeline
    x = np.complex64([[1, 2j], [3, 4]])
    executable = sx.compile(product(2), options=sx.CompileOptions(pipeline=pipeline))
    np.testing.assert_array_equal(executable(x), x @ x)


def test_in_an_option_of_the_compilation() -> None:
    with pytest.raises(sx.CompileError, match="choices are usual"):
        sx.CompileOptions(choices="keen")
    with pytest.raises(sx.CompileError, match="there is no gate"):
        sx.compile(product(2), options=sx.CompileOptions(choices="usual+none.such=1"))
