"""Links that work on the site as they do in the repository: to files beside the pages, and to names in code.

A file or a folder that a page links to gets a page of its own here, so that the site needs no other place to show it.
"""

from __future__ import annotations

import ast
import builtins
import html
import os
import re
from pathlib import Path
from string import Template

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, find_lexer_class_for_filename
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "source"
PAGE = Template((Path(__file__).parent / "source.html").read_text())
# `sx.name`, `stablexla.gpu.put(x)`, `Executable`, `Executable.name`, and methods of what is called so on all pages
_NAME = re.compile(r"(?:(?P<home>sx|stablexla|b|executable|computation)\.|(?=[A-Z]))(?P<name>\w+(?:\.\w+)*)(?:\(.*\))?")
_CLASSES = {"b": ".XlaBuilder", "executable": ".Executable", "computation": ".XlaComputation"}


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", link_files, priority=400)  # before Sphinx collects downloads
    app.connect("doctree-read", link_names)
    app.connect("missing-reference", find_public_name)
    app.connect("build-finished", write_source_pages)


# ---- files and folders ----------------------------------------------------------------------------------------------


def link_files(app: Sphinx, tree: nodes.document) -> None:
    """Makes links to files that are no pages of the site links to their pages under source/."""
    for link in list(tree.findall(addnodes.download_reference)) + list(tree.findall(addnodes.pending_xref)):
        if link["refdomain"] or link.get("reftype") != "myst":
            continue
        docname = app.env.current_document.docname
        path = Path(os.path.normpath(Path(docname).parent / link["reftarget"].partition("#")[0]))
        if (ROOT / path / "README.md").is_file():
            link["refdomain"], link["reftarget"], link["reftargetid"] = "doc", str(path / "README"), None
        elif (ROOT / path).exists():
            _linked(app.env).add(path)
            address = app.builder.get_relative_uri(docname, _page_of(path))
            link.replace_self(nodes.reference("", "", *link.children, refuri=address, internal=True))


def write_source_pages(app: Sphinx, exception: Exception | None) -> None:
    """A page for each file that was linked to, and for each folder and the files that it lists."""
    if exception is not None or app.builder.name != "html":
        return
    folders = {path for path in _linked(app.env) if (ROOT / path).is_dir()}
    listed = {path: _files_of(path) for path in folders}
    files = {file for found in listed.values() for file in found} | (_linked(app.env) - folders)
    for path in folders:
        _write(app, path, _listing(path, listed[path]))
    for path in files:
        _write(app, path, _highlighted(path))


def _write(app: Sphinx, path: Path, body: str) -> None:
    page = app.outdir / f"{_page_of(path)}.html"
    top = os.path.relpath(app.outdir, page.parent)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(PAGE.substitute(top=top, path=path, body=body))


def _linked(env: BuildEnvironment) -> set[Path]:
    if not hasattr(env, "stablexla_linked"):
        env.stablexla_linked = set()
    found: set[Path] = env.stablexla_linked
    return found


def _page_of(path: Path) -> str:
    return f"{FOLDER}/{path}" if (ROOT / path).is_file() else f"{FOLDER}/{path}/index"


def _files_of(folder: Path) -> list[Path]:
    """The files of a folder itself that hold code or text."""
    files = [path for path in sorted((ROOT / folder).iterdir()) if path.is_file() and not path.name.startswith(".")]
    return [path.relative_to(ROOT) for path in files if find_lexer_class_for_filename(path.name)]


def _listing(folder: Path, files: list[Path]) -> str:
    rows = (
        f'<tr><td><a href="{file.name}.html">{file.name}</a></td><td>{html.escape(_sentence(file))}</td></tr>'
        for file in files
    )
    return f"<table>{''.join(rows)}</table>"


def _sentence(file: Path) -> str:
    """The first line of what a module says of itself."""
    said = ast.get_docstring(ast.parse((ROOT / file).read_text())) if file.suffix == ".py" else None
    return (said or "").partition("\n")[0]


def _highlighted(file: Path) -> str:
    lexer = find_lexer_class_for_filename(file.name) or TextLexer
    return highlight((ROOT / file).read_text(), lexer(), HtmlFormatter())


# ---- names -----------------------------------------------------------------------------------------------------------


def link_names(app: Sphinx, tree: nodes.document) -> None:
    """Makes names in code, as `sx.name`, links to the reference, and lets Python's own types lead nowhere."""
    for link in list(tree.findall(addnodes.pending_xref)):
        if link["refdomain"] == "py" and hasattr(builtins, link["reftarget"]):
            link.replace_self(link.children)
    for literal in list(tree.findall(nodes.literal)):
        name = _NAME.fullmatch(literal.astext())
        if isinstance(literal.parent, nodes.entry | nodes.paragraph) and _is_in_a_table(literal):
            _let_break(literal)
        if name is None or isinstance(literal.parent, nodes.reference | addnodes.pending_xref | nodes.title):
            continue
        home = f"stablexla{_CLASSES.get(name['home'], '')}"
        link = addnodes.pending_xref("", refdomain="py", reftype="obj", reftarget=f"{home}.{name['name']}")
        link["refdoc"], link["refexplicit"], link["refwarn"] = app.env.current_document.docname, True, False
        literal.replace_self(link)
        link += literal


def _is_in_a_table(node: nodes.Node) -> bool:
    return isinstance(node.parent, nodes.entry) or isinstance(node.parent.parent, nodes.entry)


def _let_break(literal: nodes.literal) -> None:
    """Long names in tables may go on in the next line after their dots and underscores."""
    parts = re.split(r"(?<=[._,])(?=\w)", literal.astext())
    literal.children.clear()
    for part in parts:
        literal += [nodes.Text(part), nodes.raw("", "<wbr>", format="html")]


def find_public_name(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Resolves `stablexla.builder.op.XlaOp`, as types are called in signatures, to `stablexla.XlaOp`."""
    public = app.config.stablexla_public_names.get(node.get("reftarget"))
    if node.get("refdomain") != "py" or public is None:
        return None
    return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "obj", public, node, content)
