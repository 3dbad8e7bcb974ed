"""The documentation holds: programs on its pages print what stands below them, links lead somewhere, and the list of
operations is complete and what the script makes. Examples with `>>>` are in test_doctests.py."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import linecache
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

import stablexla as sx
from tests.loading import load_file

ROOT = Path(__file__).parents[1]
SKIPPED = ("build", ".venv")


def _pages() -> Iterator[Path]:
    """Every page of the repository; the links to layers inside of stablexla/ are not followed."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
        yield from (Path(folder, name) for name in files if name.endswith(".md"))


PAGES = sorted(_pages())
# A line of code and, in the block after it, what it prints.
PROGRAM = re.compile(r"```python\n(?P<code>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)
# Code that is quoted from a file, whose path stands in its first line.
QUOTED = re.compile(r"```python\n# (?P<path>\S+\.py)\n(?P<code>.*?)```", re.DOTALL)
# Code, and whether its output stands in the block after it.
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?P<printed>\n```text\n)?", re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)|<(?:img|source)[^>]*(?:src|srcset)=\"(?P<image>[^\"]+)\"")


def programs(page: Path) -> Iterator[tuple[str, str]]:
    for found in PROGRAM.finditer(page.read_text()):
        yield found["code"], found["output"]


def run_program(code: str, name: str, namespace: dict[str, object]) -> str:
    """What a program prints; the lines that errors quote are found under `name`."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), namespace)
    return printed.getvalue()


def test_the_readmes_programs_print_what_it_says():
    namespace: dict[str, object] = {"__name__": "__main__"}
    found = list(programs(ROOT / "README.md"))
    assert len(found) >= 4
    for code, output in found:
        assert run_program(code, "README.md", namespace) == output


# Pages with code that neither quotes a file nor shows what it prints, and what has to stand before it.
FRAGMENTS = {
    "docs/reliability.md": "",
    "docs/ahead_of_time.md": """
b = sx.XlaBuilder("page")
program = b.build(b.parameter(0, sx.f32[4]) * 2)
executable = sx.compile(program)
from pathlib import Path
weight, model = np.ones(4, np.float32), sx.XlaBuilder("model")
scaled = model.parameter(0, sx.f32[4]) * model.parameter(1, sx.f32[4], "weight")
Path("model.mlir").write_text(model.build(scaled).text(locations=True))
""",
    "docs/distributed.md": """
b = sx.XlaBuilder("page")
program = b.build(sx.all_reduce(b.parameter(0, sx.f32[2]), sx.add))
arguments = [[np.ones(2, np.float32)]] * 4
""",
    "docs/security.md": """
import secrets
b = sx.XlaBuilder("page")
program = b.build(b.parameter(0, sx.f32[4]) * 2)
executable = sx.compile(program)
""",
    "docs/gpu.md": """
from tests.targets.gpu.runtime import simulated

driver = simulated(chip=80)
driver.__enter__()
b, x = sx.XlaBuilder("page"), np.ones(4, np.float32)
program = b.build(b.parameter(0, sx.f32[4]) * 2)
""",
    "docs/jax.md": """
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

numbers = np.arange(8, dtype=np.float32)
x, w = np.ones((4, 2), np.float32), np.ones((2, 8), np.float32)
""",
}
# Pages whose code is run by a test of their own, or cannot be: the library is the reader's.
ELSEWHERE = {
    "docs/pipelines.md": "tests/test_pages.py",
    "docs/custom_calls.md": "tests/interop/test_ffi.py",
    "docs/tensorflow.md": "tests/interop/test_tensorflow.py",
}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def fragments(page: Path) -> list[str]:
    blocks = [found["code"] for found in BLOCK.finditer(page.read_text()) if not found["printed"]]
    return [code for code in blocks if not code.startswith(">>> ") and not QUOTED.match(f"```python\n{code}```")]


PAGES_WITH_PROGRAMS = [name_of(page) for page in PAGES if PROGRAM.search(page.read_text())]


@pytest.mark.parametrize("page", sorted({*PAGES_WITH_PROGRAMS} - {"README.md"} - ELSEWHERE.keys()))
def test_a_pages_programs_print_what_it_says(page: str):
    namespace: dict[str, object] = {"__name__": "__main__"}
    for code, output in programs(ROOT / page):
        assert run_program(code, page, namespace) == output


def test_all_code_on_pages_is_run():
    found = {name_of(page) for page in PAGES if fragments(page)}
    assert found == FRAGMENTS.keys() | ELSEWHERE.keys()
    assert all((ROOT / test).is_file() for test in ELSEWHERE.values())


@pytest.mark.parametrize("page", FRAGMENTS)
def test_code_that_prints_nothing_runs(page: str, tmp_path: Path):
    if page == "docs/gpu.md" and shutil.which("g++") is None:
        pytest.skip("no g++, with which the simulated driver is built")
    code = "\n".join(["import numpy as np", "import stablexla as sx", FRAGMENTS[page], *fragments(ROOT / page)])
    settings = {"PYTHONPATH": str(ROOT), "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=tmp_path, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_the_readmes_first_program_is_short():
    code, _ = next(programs(ROOT / "README.md"))
    assert len([line for line in code.splitlines() if line.strip()]) <= 10


def test_the_readme_lists_all_extras_and_pages():
    text = (ROOT / "README.md").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    table = text.partition("| extra | for |")[2].partition("\n\n")[0]
    listed = [name for row in table.splitlines() if row for name in re.findall("`([a-z]+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(extras)
    pages = text.partition("| page | about |")[2]
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"(docs/{page.name})" not in pages] == []


PROMISES = ("docs/reliability.md", "docs/security.md", "docs/numerics.md", "SECURITY.md")
NAMED_TEST = re.compile(r"`(?:tests/)?([\w/]+\.py)::(\w+)`")
NOT_PROMISED = ("ends the process", "does what the process may", "where they were asked for", "talk by `socketpair`")
FIGURES = ("a program is | made of", "found | how")
"""Heads of tables that say what was done, not what is promised."""


def _tables(text: str) -> Iterator[tuple[str, list[list[str]]]]:
    """The tables of a page: the section before each, up to it, and its rows, the head first."""
    lines, section = text.splitlines(), ""
    for is_row, group in itertools.groupby(lines, lambda line: line.startswith("|")):
        rows = list(group)
        if is_row:
            yield section, [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows if "---" not in row]
        for line in () if is_row else rows:
            section = "" if line.startswith("#") else f"{section}\n{line}"


def test_each_promise_has_a_test():
    """Tables of promises have a column of tests; those of figures stand below the command that makes or holds them."""
    tests = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    faults, counted = [], 0
    for page in PROMISES:
        text = (ROOT / page).read_text()
        for file, name in NAMED_TEST.findall(text):
            found = [source for path, source in tests.items() if path.endswith(f"/{file}")]
            if len(found) != 1 or not re.search(rf"(def|class) {name}\b", found[0]):
                faults.append(f"{page}: there is no test {file}::{name}")
        for section, (head, *rows) in _tables(text):
            if head[-1].rstrip(" |") not in ("test", "tests"):
                if " | ".join(head) not in FIGURES and not re.search("python -m|tests/", section):
                    faults.append(f"{page}: {head} has no column of tests")
                continue
            for row in rows:
                counted += 1
                said = " ".join(row)
                if not NAMED_TEST.search(row[-1]) and not any(words in said for words in NOT_PROMISED):
                    faults.append(f"{page}: no test holds {row[0]}")
    assert faults == []
    assert counted > 50


def test_quoted_code_stands_in_its_file():
    found = list(QUOTED.finditer((ROOT / "CONTRIBUTING.md").read_text()))
    assert len(found) >= 7
    for quoted in found:
        assert quoted["code"] in (ROOT / quoted["path"]).read_text(), f"{quoted['path']} has changed: {quoted['code']}"


@functools.cache
def anchors(page: Path) -> set[str]:
    return anchors_of(page.read_text())


def anchors_of(text: str) -> set[str]:
    """What GitHub, and the site, call the headings of a page in links."""
    found: set[str] = set()
    for title in re.findall(r"^#+ +(.*?) *$", FENCED.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(next(name for n in itertools.count() if (name := f"{slug}-{n}" if n else slug) not in found))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path):
    for found in LINK.finditer(page.read_text()):
        target, _, heading = unquote(found["target"] or found["image"]).partition("#")
        if "://" in target:
            continue
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), f"{target} of {name_of(page)} does not exist"
        assert not heading or heading in anchors(place), f"{target}#{heading} of {name_of(page)}: no such heading"


def test_headings_are_called_as_github_does():
    assert {"2-d", "2-d-1", "opt_level", "a-b--c"} <= anchors_of("# 2-D\n## 2-D\n### `opt_level`\n# [A](b.md) B & C\n")
    assert anchors_of("```sh\n# no heading\n```\n") == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_speaks_of_one_machine(page: Path):
    """Absolute paths of whoever wrote a page help nobody else; `/path/to` and `/proc` would."""
    found = re.findall(r"(?<![\w.\])>}])/(?:home|work|opt|root|Users)/[\w./-]*", page.read_text())
    assert not found


LAYERS = ("stablexla", "dialects", "lowering", "targets")
CODE = (".py", ".pyi", ".h", ".cpp")


def _folders_of_code() -> Iterator[Path]:
    for layer in LAYERS:
        for folder, folders, files in os.walk(ROOT / layer):
            folders[:] = [name for name in folders if name != "__pycache__" and not Path(folder, name).is_symlink()]
            if any(name.endswith(CODE) for name in files):
                yield Path(folder).relative_to(ROOT)


@pytest.mark.parametrize("folder", [*map(str, _folders_of_code()), "tests", "benchmarks", "third_party", "examples"])
def test_every_folder_has_a_page(folder: str):
    assert (ROOT / folder / "README.md").read_text().startswith(f"# {Path(folder).name}")


@pytest.mark.parametrize("folder", [*map(str, _folders_of_code())])
def test_a_folders_page_names_its_files(folder: str):
    text = (ROOT / folder / "README.md").read_text()
    files = {p.name for p in (ROOT / folder).iterdir() if p.suffix in CODE and p.name != "__init__.py"}
    folders = {f"{p.name}/" for p in (ROOT / folder).iterdir() if p.joinpath("README.md").is_file()}
    cells = "".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    named = {name for name in re.findall(r"`([^`]+)`", cells) if name.endswith((*CODE, "/"))}
    assert files <= named
    assert named <= files | folders


@pytest.fixture(scope="module")
def table() -> ModuleType:
    return load_file(ROOT / "docs/make_ops_table.py")


def test_every_operation_is_lowered_and_tested(table: ModuleType):
    assert table.gaps() == []


def test_a_gap_is_named(table: ModuleType):
    row = next(row for row in table.rows() if row.operation.name == "clamp")
    assert row.gaps == []
    assert table.Row(row.operation, "", row.built, row.run).gaps == ["clamp: no lowering"]
    assert table.Row(row.operation, row.lowering, row.built, ()).gaps == ["clamp: no test that runs it"]


def test_every_section_of_the_semantics_is_done(table: ModuleType):
    """Built, lowered and run by a test: XLA's operation semantics have 62 sections with 115 functions."""
    found = table.sections()
    assert len({section for section, _, _ in found}) == 62
    assert len(found) == 115
    assert [name for _, name, row in found if not table.is_done(row)] == []
    row = next(row for _, name, row in found if name == "clamp")
    assert not table.is_done(table.Row(row.operation, "", row.built, row.run))
    assert not table.is_done(table.Row(row.operation, row.lowering, row.built, ()))
    assert not table.is_done(None)


def test_the_list_of_operations_is_up_to_date(table: ModuleType):
    assert table.PAGE.read_text() == table.page(), "run python docs/make_ops_table.py"


@pytest.fixture(scope="module")
def header() -> ModuleType:
    return load_file(ROOT / "docs/xla_builder_functions.py")


class TestXlaBuildersFunctions:
    """Each function of XLA's header is here or absent for a reason."""

    def test_each_has_a_state(self, header: ModuleType):
        assert header.gaps() == []
        found = list(header.functions())
        assert len(found) > 250
        assert all(bool(f.here) != bool(f.reason) for f in found)
        assert re.fullmatch(r"[0-9a-f]{40}", header.header()["source"]["commit"])

    def test_names_here_exist(self, header: ModuleType):
        """In the text of a state: `sx.name`, `b.name`, `op.name`."""
        b = sx.XlaBuilder("test")
        places = {"sx": sx, "b": b, "op": b.constant(1)}
        for function in header.functions():
            for place, name in re.findall(r"`?\b(sx|b|op)\.(\w+)", function.here):
                assert hasattr(places[place], name), function

    def test_a_function_without_a_state_is_named(self, header: ModuleType, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.delitem(header.ABSENT, "SetOriginalValue")
        monkeypatch.setitem(header.ABSENT, "AllToAllTuple", "no")
        monkeypatch.setitem(header.HERE, "NoSuchFunction", "`b.constant`")
        assert header.gaps() == [
            "SetOriginalValue of xla_builder.h: neither here nor absent for a reason",
            "AllToAllTuple is here as `sx.all_to_all_tuple`; the form that splits its operand is `sx.all_to_all`, and "
            "has a reason why not",
            "NoSuchFunction: no function of xla_builder.h",
        ]


@pytest.fixture(scope="module")
def differences() -> ModuleType:
    return load_file(ROOT / "docs/make_differences.py")


def test_the_page_of_differences_is_up_to_date(differences: ModuleType):
    assert differences.PAGE.read_text() == differences.page(), "run python docs/make_differences.py"


def test_each_difference_has_a_test(differences: ModuleType):
    rows = [*differences.FROM_XLA, *differences.FROM_THE_INTERPRETER]
    assert [row.test for row in rows if not (ROOT / row.test).is_file()] == []


class TestGlossary:
    """Each word has a meaning, a place that exists, and a source that is listed."""

    PAGE = ROOT / "docs/glossary.md"
    ROOTS = ("stablexla", "dialects", "lowering", "targets")
    ROW = re.compile(r"^\| (?P<word>.+?) \| (?P<meaning>.+?) \| (?P<places>.+?) \| (?P<sources>.+?) \|$", re.MULTILINE)
    CODE = re.compile(r"`([^`]+)`")

    @classmethod
    def rows(cls) -> list[re.Match[str]]:
        found = cls.ROW.finditer(cls.PAGE.read_text())
        return [row for row in found if row["word"] != "word" and not row["word"].startswith("-")]

    @staticmethod
    @functools.cache
    def files() -> dict[str, str]:
        """The texts of the sources, by their paths from the root."""
        found = itertools.chain.from_iterable((ROOT / root).rglob("*") for root in TestGlossary.ROOTS)
        return {str(path.relative_to(ROOT)): path.read_text() for path in found if path.suffix in (".py", ".cpp", ".h")}

    @classmethod
    def stands_in(cls, name: str, file: str) -> bool:
        """Whether a file defines a class or function, or registers a pass."""
        text = cls.files().get(file, "")
        if name.startswith("stablexla-"):
            return bool(re.search(rf'\(\s*"{name}"', text))
        *classes, last = name.split(".")
        return bool(re.search(rf"^ *(?:def|class) {last}\b", text, re.MULTILINE)) and all(
            re.search(rf"^class {outer}\b", text, re.MULTILINE) for outer in classes
        )

    def test_each_line_of_a_table_is_a_word(self):
        lines = [line for line in self.PAGE.read_text().splitlines() if line.startswith("| ")]
        words = [row["word"] for row in self.rows()]
        assert len(words) == len([line for line in lines if not line.startswith("| word |")])
        assert len(words) > 100
        assert [word for word in words if words.count(word) > 1] == []

    def test_places_exist(self):
        missing = []
        for row in self.rows():
            for group in row["places"].split("; "):
                *names, file = self.CODE.findall(group)
                if file not in self.files():
                    missing.append(f"{row['word']}: no file {file}")
                missing += [f"{row['word']}: no {name} in {file}" for name in names if not self.stands_in(name, file)]
        assert missing == []

    def test_a_place_that_is_gone_is_found(self):
        loops, group = "targets/cpu/elementwise/loops.py", "targets/grouping/group.py"
        assert self.stands_in("emit_loop", loops)
        assert self.stands_in("stablexla-group", group)
        assert not self.stands_in("no_such_function", loops)
        assert not self.stands_in("stablexla-no-such-pass", group)
        assert not self.stands_in("emit_loop", "loops.py")

    def test_code_in_meanings_exists(self):
        text = "".join(self.files().values())
        named = {name for row in self.rows() for name in self.CODE.findall(row["meaning"] + row["word"])}
        assert len(named) > 5
        assert sorted(name for name in named if name not in text) == []

    def test_every_word_has_a_source(self):
        _, _, below = self.PAGE.read_text().partition("\n## Sources\n")
        listed = re.findall(r"^- \*\*(.+?)\*\*: \S", below, re.MULTILINE)
        cited = {source for row in self.rows() for source in row["sources"].split("; ")}
        assert sorted(cited) == sorted(listed, key=str)
        assert listed == sorted(listed, key=str.lower)
