"""The documentation site shows every page and every public name, and links to the specification's sections.

What needs Sphinx is checked by the site's own build, `make docs`, in which every warning is an error.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import inspect
import posixpath
import re
from collections import Counter
from pathlib import Path

import pytest

import stablexla as sx
import stablexla.gpu
import stablexla.interop.jax
from stablexla.builder.registry import REGISTRY
from stablexla.lowering.support.context import LoweringContext
from stablexla.targets.codegen.kernel import CpuTarget, Emitted, Kernel, KernelArguments
from tests.loading import load_file
from tests.test_docs import PAGES, name_of

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/reference"

navigation = load_file(ROOT / "docs/site/navigation.py")
reference = load_file(ROOT / "docs/site/reference.py")
docstrings = load_file(ROOT / "docs/site/docstrings.py")


def listed() -> list[str]:
    """What the navigation names, from the root."""
    found = [re.sub(r".*<(.*)>", r"\1", page) for pages in navigation.NAVIGATION.values() for page in pages]
    for parent, pages in navigation.BELOW.items():
        found += [posixpath.join("/", posixpath.dirname(parent), page).lstrip("/") for page in pages]
    return found


def shown() -> list[str]:
    """The names on the pages of the reference."""
    texts = [page.read_text() for page in REFERENCE.glob("*.md")]
    places = [place for text in texts for block in reference.BLOCK.finditer(text) for place in block["places"].split()]
    return [name for place in places for name in reference.names_of(place)]


def test_every_page_is_in_the_navigation():
    pages = {name_of(page).removesuffix(".md") for page in PAGES} - {"README"}
    patterns = listed()
    assert [page for page in pages if not any(fnmatch.fnmatch(page, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not fnmatch.filter(pages, pattern)] == []


def test_every_public_name_is_in_the_reference_once():
    modules = [sx.gpu, stablexla.interop.jax]
    public = [f"stablexla.{name}" for name in sx.__all__]
    public += [f"{module.__name__}.{name}" for module in modules for name in module.__all__]
    found = Counter(shown())
    assert {name: found[name] for name in public if found[name] != 1} == {}


def test_the_list_of_the_reference_has_all_its_pages():
    text = (REFERENCE / "README.md").read_text()
    assert [page.name for page in REFERENCE.glob("*.md") if f"({page.name})" not in text] == ["README.md"]


def test_pages_of_the_reference_have_their_names_as_they_stand():
    """A forge shows them without the site; `python docs/make_reference.py` writes them anew."""
    made = load_file(ROOT / "docs/make_reference.py")
    stale = [page.name for page in made.PAGES if made.text_of(page) != page.read_text()]
    assert stale == [], "run python docs/make_reference.py"
    text = (REFERENCE / "order.md").read_text()
    assert "| `sx.sort` | " in text
    assert reference.with_tables(text.replace("| `sx.sort` | ", "| `sx.sorted` | ")) == text
    assert "sx.sort`" not in reference.expanded(text), "the site has summaries of its own"


HANDED = [Kernel, KernelArguments, Emitted, CpuTarget, LoweringContext]


@pytest.mark.parametrize("cls", HANDED, ids=lambda cls: cls.__name__)
def test_what_rules_and_emitters_are_handed_has_its_attributes_described(cls: type):
    if dataclasses.is_dataclass(cls):
        fields = [field.name for field in dataclasses.fields(cls)]
    else:
        fields = re.findall(r"self\.([a-z]\w*)(?:: [^=]+)?(?:, self\.\w+)* = ", inspect.getsource(cls.__init__))
    described = re.sub(r"(?s).*Attributes:", "", inspect.getdoc(cls))
    assert fields
    assert [name for name in fields if not re.search(rf"^    (\w+, )*{name}[,:]", described, re.MULTILINE)] == []


def test_what_is_no_public_name_is_no_place():
    with pytest.raises(AttributeError):
        reference.names_of("stablexla.ops.reduction.no_such_function")


def test_a_block_becomes_a_summary_and_descriptions():
    text = reference.expanded("# Sorting\n\n```{reference}\nstablexla.ops.order\n```\n")
    assert "   ~stablexla.sort\n" in text
    assert ".. autofunction:: stablexla.top_k\n" in text
    assert reference.expanded("```python\nsx.sort\n```") == "```python\nsx.sort\n```"


class TestDocstrings:
    def test_code_in_backticks(self):
        lines = ["As `reduce`, on `operand` with |x| <= `max` and *args.", ">>> a * `b`"]
        assert docstrings.to_rst(lines, ["operand", "max"]) == [
            r"As :py:obj:`reduce <stablexla.reduce>`, on ``operand`` with \|x\| <= ``max`` and \*args.",
            ">>> a * `b`",
        ]

    def test_sources_lead_to_their_sections(self):
        (_, made) = docstrings.to_rst(["Source: `Conv` of XLA's operation semantics; StableHLO `convolution`, `case`."])
        assert made == (
            "**Source**: `Conv <https://openxla.org/xla/operation_semantics#conv_convolution>`__ of XLA's operation "
            "semantics; StableHLO `convolution <https://openxla.org/stablehlo/spec#convolution>`__, ``case``."
        )

    def test_every_operation_names_its_source(self):
        things = {name: getattr(sx, name, None) or getattr(sx.XlaBuilder, name) for name in REGISTRY}
        assert [name for name, thing in things.items() if "Source: " not in (thing.__doc__ or "")] == []

    def test_operations_of_stablehlo_in_sources_exist(self):
        table = load_file(ROOT / "docs/make_ops_table.py")
        known = {name.removeprefix("stablehlo.") for name in table.stablehlo_operations()}
        texts = [getattr(sx, name).__doc__ or "" for name in sx.__all__]
        named = {name for text in texts for name in re.findall(r"Source: .*StableHLO `(\w+)`", text)}
        assert len(named) > 80
        assert named - known == set()
