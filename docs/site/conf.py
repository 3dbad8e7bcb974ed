"""The documentation site: the repository's Markdown pages as they are, and a reference made of docstrings.

Built by `make docs` into build/site; why by these tools is docs/decisions/0030-documentation-site.md.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

import docstrings
import reference
from navigation import BELOW, NAVIGATION

from stablexla.version import VERSION

project = "stablexla"
release = version = VERSION
project_copyright = "the authors of stablexla"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "links"]

root_doc = "README"
include_patterns = ["*.md", "**/*.md"]
# The links in stablexla/ are the layers beside it once more.
exclude_patterns = [
    "build",
    "dist",
    ".*",
    "**/.*",
    *(f"stablexla/{layer}" for layer in ("dialects", "lowering", "targets")),
]

myst_heading_anchors = 6
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 72
napoleon_custom_sections = [("Attributes", "params_style")]  # else each of them looks for a target of its name
toc_object_entries_show_parents = "hide"
add_module_names = False
smartquotes_action = "D"  # dashes; "cpu" in prose is what is written in code
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "stablexla"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_permalinks_icon = "#"


# What doctest needs behind an example, before the end of its block.
_LAST_LINES = re.compile(r"^(```python\n.*?\n)\n+```$", re.MULTILINE | re.DOTALL)


def setup(app: Sphinx) -> None:
    app.add_config_value("stablexla_public_names", reference.real_names(), "env")
    app.connect("source-read", prepare)
    app.connect("autodoc-process-docstring", write_docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", leave_out_signature)
    app.connect("build-finished", write_index)


def prepare(app: Sphinx, docname: str, content: list[str]) -> None:
    """Puts the navigation behind the pages that have it, and what they show into the pages of the reference."""
    content[0] = _LAST_LINES.sub(r"\1```", reference.expanded(content[0]))
    if docname == root_doc:
        content[0] += "".join(toctree(pages, f":caption: {caption}") for caption, pages in NAVIGATION.items())
    elif docname in BELOW:
        content[0] += toctree(BELOW[docname])


def toctree(pages: list[str], *options: str) -> str:
    shown = ":titlesonly:" if any("*" in page for page in pages) else ":hidden:"  # no page lists what a pattern matches
    return "\n".join(["", "```{toctree}", shown, ":glob:", *options, "", *pages, "```", ""])


def write_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = docstrings.to_rst(lines, docstrings.parameters_of(obj))
    if what in ("attribute", "property"):  # else napoleon takes what stands before a colon for a type
        lines[:1] = lines[0].replace(": ", ":\n", 1).split("\n")


def leave_out_signature(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Of classes that users are given and do not make."""
    is_made = dataclasses.is_dataclass(obj) or any(title in (obj.__doc__ or "") for title in ("Args:", "Raises:"))
    return ("", None) if what == "class" and signature and not is_made else None


def write_index(app: Sphinx, exception: Exception | None) -> None:
    """The first page is called README, as its file is; servers look for index.html."""
    if exception is None and app.builder.name == "html":
        shutil.copy(app.outdir / "README.html", app.outdir / "index.html")
