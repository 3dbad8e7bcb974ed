"""Representations in notebooks: fragments of HTML that are closed, escaped, and need nothing from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import stablexla as sx

NAME = "<script>alert(1)</script>"


class Fragment(HTMLParser):
    """Collects the tags that are open at the end, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "script"
        assert not {"src", "href"} & {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def computation() -> sx.XlaComputation:
    b = sx.XlaBuilder(NAME)
    return b.build(sx.exp(b.parameter(0, sx.f32[64])) + b.constant(np.arange(64, dtype=np.float32)))


@pytest.fixture(scope="module")
def program(computation: sx.XlaComputation) -> sx.Executable:
    return sx.compile(computation)


def shown(value: Any) -> str:
    found = Fragment(value._repr_html_())
    assert found.open == []
    return found.text


def test_computation(computation: sx.XlaComputation) -> None:
    text = shown(computation)
    assert text.startswith(f"{NAME} (f32[64]) -> f32[64]")
    assert "stablehlo.exponential %arg0 : tensor<64xf32>" in text
    assert "3.000000e+00" not in text  # large constants are left out


def test_pipeline(program: sx.Executable) -> None:
    text = shown(program.pipeline)
    assert all(name in text for name in program.pipeline.names)
    assert "stablexla-lower-to-tensor" in text
    assert "a<b" in shown(sx.Pipeline("a<b", []))


def test_kernel_summary(program: sx.Executable) -> None:
    (kernel,) = program.kernels
    assert shown(kernel) == f"kernelkindpathitemscalls{kernel.name}{kernel.kind}{kernel.path}{kernel.items}1"


def test_profile(program: sx.Executable) -> None:
    text = shown(program.profile([np.ones(64, np.float32)], runs=3))
    assert text.startswith(f"{NAME} 3 runs, ")
    assert program.kernels[0].name in text
    assert "outside" in text
