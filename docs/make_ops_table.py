"""Writes docs/ops.md: every section of XLA's operation semantics, every operation of the builder and of StableHLO.

For each it says how far it has come, from the registries and from what the tests speak of.

Run as `python docs/make_ops_table.py`; with `--check` it writes nothing, and says what is missing or out of date.
"""

from __future__ import annotations

import argparse
import ast
import functools
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxlib.mlir.dialects import _stablehlo_ops_gen

import stablexla as sx
import stablexla.api
import stablexla.lowering.bounded.rules
from stablexla.builder.registry import REGISTRY, Operation
from stablexla.dialects.composites import COMPOSITES
from stablexla.dialects.op_traits import TRAITS
from stablexla.lowering.bounded.bounded import EXPANSIONS
from stablexla.lowering.support.registry import RULES, load_rules

load_rules()
ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/ops.md"

# What the builder can write down and nothing can run yet. The list is checked: an entry goes when its lowering comes.
NOT_LOWERED: dict[str, str] = {}
# What an operation emits in its other form.
EMITS_ALSO = {"conditional": "stablehlo.if"}
# Operations that have no operand and no array as their result.
NO_TYPES = ("create_token", "partition_id", "replica_id")
HEADER = runpy.run_path(str(ROOT / "docs/xla_builder_functions.py"))
TESTS = ("tests/ops", "tests/test_builder.py")
# Folders of tests that are about one family.
TESTS_OF = {"collectives": "tests/distributed"}


@dataclass(frozen=True)
class Row:
    """What is known of one of the builder's operations.

    Attributes:
        lowering: how it is lowered, or "" when it is not.
        built: the test files that build it.
        run: the test files that run it.
    """

    operation: Operation
    lowering: str
    built: tuple[Path, ...]
    run: tuple[Path, ...]

    @property
    def gaps(self) -> list[str]:
        """What is missing, each as "clamp: no lowering"."""
        name = self.operation.name
        found = []
        if not self.lowering and name not in NOT_LOWERED:
            found.append(f"{name}: no lowering")
        if self.lowering and name in NOT_LOWERED:
            found.append(f"{name}: has a lowering, and is in NOT_LOWERED")
        if not self.built and not self.run:
            found.append(f"{name}: no test")
        elif not self.run and name not in NOT_LOWERED:
            found.append(f"{name}: no test that runs it")
        if self.operation.emits not in TRAITS and _has_traits(self.operation):
            found.append(f"{name}: no row of {self.operation.emits} in dialects/op_traits.py")
        return found


def _has_traits(operation: Operation) -> bool:
    """Whether it is of a family whose operations all have a row of facts, by its builder or by its rule."""
    rule = RULES.get(operation.emits)
    families = {operation.family, "" if rule is None else rule.family}
    return bool(operation.emits) and not families.isdisjoint(("elementwise", "conversion"))


def lowering_of(emits: str) -> str:
    """How an operation of that name is lowered, in Markdown; "" when it is not."""
    if emits in RULES:
        return _link(_file_of(RULES[emits].rule))
    if emits in COMPOSITES:
        return _link(_file_of(COMPOSITES[emits].rule))
    if emits.startswith("chlo."):
        return "to StableHLO"
    if emits.startswith("stablehlo.dynamic_"):  # static once the extents are known
        return _link("targets/stablehlo/imports/shapes/refinement.py")
    if emits in EXPANSIONS:
        return _link("lowering/bounded/rules.py")
    return {"": "none needed", "func.call": "inlined"}.get(emits, "")


def _file_of(function: Callable[..., object]) -> str:
    return function.__module__.removeprefix("stablexla.").replace(".", "/") + ".py"


def _link(path: str) -> str:
    return f"[{path.removesuffix('.py').removeprefix('lowering/').removeprefix('rules/')}](../{path})"


# ---- which tests speak of which operations ---------------------------------------------------------------------------


def words_of(file: Path) -> set[str]:
    """Names of the builder's operations that a test file speaks of: `sx.abs`, `b.iota`, or "abs" by itself."""
    found, endings = set(), set()
    for node in ast.walk(ast.parse(file.read_text())):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("sx", "b", "builder")
        ):
            found.add(node.attr)
        elif isinstance(node, ast.JoinedStr):
            endings |= set(_ending(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return (found | {f"{word}{ending}" for word in found for ending in endings}) & set(REGISTRY)


def _ending(node: ast.JoinedStr) -> Iterator[str]:
    """The end of f"{direction}_total_order"."""
    last = node.values[-1]
    if isinstance(last, ast.Constant) and isinstance(last.value, str) and last.value.startswith("_"):
        yield last.value


def test_files() -> dict[Path, set[str]]:
    """The files of tests, with the operations that each speaks of."""
    places = [ROOT / place for place in (*TESTS, *TESTS_OF.values())]
    files = [file for place in places for file in [place, *sorted(place.glob("test_*.py"))]]
    return {file.relative_to(ROOT): words_of(file) for file in files if file.is_file()}


@functools.cache
def rows() -> list[Row]:
    """All operations of the builder by family."""
    files = test_files()

    def tests(operation: Operation, build: bool) -> tuple[Path, ...]:
        """Those of the operation's own family when there are any."""
        named = [f for f, words in files.items() if operation.name in words and _builds(f) == build]
        general = [f for f in named if str(f.parent) not in TESTS_OF.values()]
        return tuple(f for f in named if _is_of(f, operation.family)) or tuple(general)

    order = {operation.family: None for operation in REGISTRY.values()}
    by_family = sorted(REGISTRY.values(), key=lambda o: (list(order).index(o.family), o.name))
    return [Row(o, lowering_of(o.emits), tests(o, True), tests(o, False)) for o in by_family]


def sections() -> list[tuple[str, str, Row | None]]:
    """Each section of XLA's operation semantics with its functions, and what is known of each of them."""
    found = {row.operation.name: row for row in rows()}
    listed = runpy.run_path(str(ROOT / "docs/specification.py"))["SECTIONS"]
    return [(section, name, found.get(name)) for section, names in listed.items() for name in names]


def is_done(row: Row | None) -> bool:
    """Built, lowered, and run by a test."""
    return row is not None and bool(row.lowering) and bool(row.built or row.run) and bool(row.run)


def _is_of(file: Path, family: str) -> bool:
    return family in file.stem or str(file.parent) == TESTS_OF.get(family)


def _builds(file: Path) -> bool:
    return file.stem.endswith(("_build", "_builder"))


def gaps() -> list[str]:
    """What is missing, as the completeness test reports it."""
    stale = [f"{name}: no such operation" for name in NOT_LOWERED if name not in REGISTRY]
    unwritten = [f"{section}: there is no function {name}" for section, name, row in sections() if row is None]
    known = [gap for row in rows() for gap in row.gaps]
    undone = [
        f"{section}: {name} is not built, lowered and run"
        for section, name, row in sections()
        if row is not None and not is_done(row) and not row.gaps
    ]
    return stale + unwritten + known + undone + HEADER["gaps"]()


# ---- the page -------------------------------------------------------------------------------------------------------


def page() -> str:
    """The text of docs/ops.md."""
    found = rows()
    ready = sum(bool(row.lowering) for row in found)
    lowered = [name for name in stablehlo_operations() if name in RULES]
    parts = [
        "# Operations\n\nMade by `python docs/make_ops_table.py` from the registries; don't edit.",
        _specification(),
        f"## The builder's operations\n\n{ready} of {len(found)} can be run. *built* and *run* are the test files that "
        "build an operation, and those that run it and compare with an oracle. Element types are those that the "
        f"builder takes: {', '.join(f'`{t.name}`' for t in sx.ELEMENT_TYPES)}.",
        *(_family(family, found) for family in dict.fromkeys(row.operation.family for row in found)),
        f"## StableHLO's operations\n\n{len(lowered)} of {len(stablehlo_operations())} have a lowering, for programs "
        "from other producers as well.",
        _stablehlo_table(lowered, found),
        "Without one, so far: " + ", ".join(f"`{n}`" for n in stablehlo_operations() if n not in RULES) + ".",
        _header(),
    ]
    return "\n\n".join(parts) + "\n"


def _specification() -> str:
    """The table of the sections of XLA's operation semantics."""
    body, last = [], ""
    for section, name, row in sections():
        done = "\N{LARGE GREEN CIRCLE}" if is_done(row) else "\N{LARGE RED CIRCLE}"
        title, last = "" if section == last else section, section
        if row is None:
            body.append([title, f"`{name}`", "", "", "", done])
        else:
            emits = f"`{row.operation.emits}`" if row.operation.emits else ""
            refusals = f"; refusals: {_files(row.built)}" if row.built else ""
            tests = _files(row.run) + refusals
            body.append([title, f"`{_spelled(row.operation)}`", emits, row.lowering, tests, done])
    count = sum(is_done(row) for _, _, row in sections())
    return (
        f"## XLA's operation semantics\n\nAll sections, in the document's order: {count} of {len(body)} functions are "
        "built, lowered and run by a test, which \N{LARGE GREEN CIRCLE} says.\n\n"
        + _table(["section", "function", "StableHLO", "lowering", "tests", ""], body)
    )


def _header() -> str:
    """The table of the functions of XLA's builder."""
    found, source = list(HEADER["functions"]()), HEADER["header"]()["source"]
    notes = HEADER["PARAMETERS_ABSENT"]
    body = [[f"`{f.name}`", f.group, f.here or f"absent: {f.reason}", notes.get(f.name, "")] for f in found]
    here = sum(bool(f.here) for f in found)
    return (
        f"## XLA's builder\n\nThe functions of [{source['path']}]({source['repository']}/blob/{source['commit']}/"
        f"{source['path']}) ([list](../third_party/xla_builder.toml)): {here} of {len(found)} are here.\n\n"
        + _table(["function", "of", "here", "without"], body)
    )


def _spelled(operation: Operation) -> str:
    """As a program writes it."""
    return f"{'sx' if hasattr(sx, operation.name) else 'b'}.{operation.name}"


def _family(family: str, found: Sequence[Row]) -> str:
    body = []
    for row in (r for r in found if r.operation.family == family):
        operation = row.operation
        lowering = row.lowering or f"not yet: {NOT_LOWERED.get(operation.name, '')}"
        emits = f"`{operation.emits}`" if operation.emits else ""
        name = f"`{_spelled(operation)}`"
        body.append([name, emits, lowering, _files(row.built), _files(row.run), _types(operation)])
    head = ["operation", "emits", "lowering", "built", "run", "element types"]
    return f"### {family}\n\n{_table(head, body)}"


def _files(files: Iterable[Path]) -> str:
    return ", ".join(f"[{f.stem.removeprefix('test_').removesuffix('_build')}](../{f})" for f in files)


def _types(operation: Operation) -> str:
    return "" if operation.name in NO_TYPES else operation.types_in_words


def _stablehlo_table(names: Sequence[str], found: Sequence[Row]) -> str:
    body = []
    for name in names:
        operations = [r.operation for r in found if name in (r.operation.emits, EMITS_ALSO.get(r.operation.name))]
        types = max((o.types_in_words for o in operations), key=len, default="")
        body.append([f"`{name}`", lowering_of(name), ", ".join(f"`{o.name}`" for o in operations), types])
    return _table(["operation", "lowering", "builder", "element types"], body)


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body]]
    return "\n".join(lines)


def stablehlo_operations() -> list[str]:
    """The names of all operations of the StableHLO dialect: of the installed one, and what is built for a later one."""
    classes = vars(_stablehlo_ops_gen).values()
    names = {c.OPERATION_NAME for c in classes if hasattr(c, "OPERATION_NAME")}
    names |= {row.emits for row in REGISTRY.values() if row.since}
    return sorted(names - {"stablehlo.return"})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when something is missing")
    if not parser.parse_args().check:
        PAGE.write_text(page())
        return 0
    found = gaps()
    if not PAGE.exists() or PAGE.read_text() != page():
        found.append("docs/ops.md is not what docs/make_ops_table.py makes")
    for gap in found:
        print(gap)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
