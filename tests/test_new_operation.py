"""An operation is a builder's function, a lowering rule, a test and a row of `dialects/op_traits.py`, and nothing else.

`stablehlo.popcnt` is taken out of a copy of the sources in these four places: there it is unknown. With the four put
in again it compiles, is cut over devices, takes sizes at run time, is compared, drawn by the fuzzer and listed in the
docs.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tree import ROOT, Tree

BUILDER = ("stablexla/ops/elementwise.py", re.compile(r'@operation\("stablehlo\.popcnt".*?\n\n\n', re.DOTALL))
EXPORT = ("stablexla/ops/elementwise.py", re.compile(r'"population_count", '))
RULE = ("lowering/support/scalars.py", re.compile(r'    "popcnt": .*\n'))
ROW = ("dialects/op_traits.py", re.compile(r'    "stablehlo\.popcnt": .*\n'))
TEST = """
import stablexla as sx


def test_population_count():
    assert sx.population_count
"""
PROGRAMS = """
import numpy as np
import stablexla as sx

def program(shape, sharding=None):
    b = sx.XlaBuilder("program")
    with b.scoped_sharding(sharding):
        return b.build(sx.population_count(b.parameter(0, shape)))

def answer(title, of):
    try:
        print(title, of())
    except sx.StablexlaError as error:
        print(title, "refused:", str(error).splitlines()[0])

x = np.arange(8, dtype=np.int32)
plain = sx.compile(program(sx.s32[8]))
answer("plain", lambda: plain(x))
answer("compared", lambda: plain.compare([x], "interpreter").equal)
sharded = sx.compile(program(sx.s32[8], "{devices=[2]<=[2]}"), num_partitions=2)
answer("sharded", lambda: sharded(x))
answer("cut", lambda: "popcnt %" in sharded.ir("stablehlo") and "tensor<8xi32>" not in sharded.ir("stablehlo"))
answer("bounded", lambda: sx.compile(program(sx.s32["<=8"]))(x[:5]))

from tests.fuzz.generate import draw
drawn = [draw(seed, ["elementwise", "conversion"], 12).program for seed in range(40)]
answer("drawn", lambda: any("stablehlo.popcnt" in str(one) for one in drawn))
"""
GAPS = 'import runpy\nprint(*runpy.run_path("docs/make_ops_table.py")["gaps"](), sep="\\n")\n'


class Operation:
    """The copy, with the four places that can be filled one by one."""

    def __init__(self, root: Path) -> None:
        pages = ("docs", "third_party", "tests/__init__.py", "tests/fuzz", "tests/ops", "tests/distributed")
        self.tree = Tree(root, *pages, "tests/test_builder.py", "tests/loading.py", "tests/oracles.py")
        self.texts = {path: (self.tree.root / path).read_text() for path, _ in (BUILDER, RULE, ROW)}
        for file in (root / "tests/ops").glob("test_elementwise*.py"):
            file.write_text(file.read_text().replace("population_count", "nothing"))

    def with_places(self, *places: tuple[str, re.Pattern[str]], test: bool = True) -> Tree:
        """The copy, of which only these places know the operation."""
        for path, text in self.texts.items():
            for own, pattern in (BUILDER, EXPORT, RULE, ROW):
                if own == path and (own, pattern) not in places:
                    assert len(pattern.findall(text)) == 1, (own, pattern)
                    text = pattern.sub("", text)
            self.tree.write(path, text)
        file = self.tree.root / "tests/ops/test_elementwise_new.py"
        file.write_text(TEST) if test else file.unlink(missing_ok=True)
        return self.tree


@pytest.fixture(scope="module")
def operation(tmp_path_factory: pytest.TempPathFactory) -> Operation:
    return Operation(tmp_path_factory.mktemp("tree"))


def test_four_places_are_enough(operation: Operation) -> None:
    tree = operation.with_places(BUILDER, EXPORT, RULE, ROW)
    assert tree.printed(PROGRAMS) == [
        "plain [0 1 1 2 1 2 2 3]",
        "compared True",
        "sharded [0 1 1 2 1 2 2 3]",
        "cut True",
        "bounded [0 1 1 2 1]",
        "drawn True",
    ]


def test_the_table_of_operations_knows_it(operation: Operation) -> None:
    tree = operation.with_places(BUILDER, EXPORT, RULE, ROW)
    assert tree.run("docs/make_ops_table.py").returncode == 0
    done = tree.run("docs/make_ops_table.py", "--check")
    assert (done.stdout, done.returncode) == ("", 0)
    listed = re.search(r"\| `sx\.population_count` .*", (tree.root / "docs/ops.md").read_text())
    assert listed is not None
    assert "(../tests/ops/test_elementwise_new.py)" in listed[0]


def test_without_its_row_it_is_on_whole_arrays_alone(operation: Operation) -> None:
    tree = operation.with_places(BUILDER, EXPORT, RULE)
    assert tree.printed(PROGRAMS + GAPS) == [
        "plain [0 1 1 2 1 2 2 3]",
        "compared True",
        "sharded [0 1 1 2 1 2 2 3]",
        "cut False",
        "bounded refused: stablehlo.popcnt: it takes no array with a dynamic dimension",
        "drawn False",
        "population_count: no row of stablehlo.popcnt in dialects/op_traits.py",
    ]
    done = tree.run("docs/make_ops_table.py", "--check")
    assert "population_count: no row of stablehlo.popcnt" in done.stdout
    assert done.returncode == 1


def test_without_rule_or_test_the_table_names_it(operation: Operation) -> None:
    tree = operation.with_places(BUILDER, EXPORT, ROW, test=False)
    assert tree.printed(GAPS) == ["population_count: no lowering", "population_count: no test"]


def test_without_any_of_them_it_is_unknown(operation: Operation) -> None:
    tree = operation.with_places()
    done = tree.run("-c", f"{GAPS}import stablexla as sx\nsx.population_count")
    assert "Element-wise unary functions: there is no function population_count" in done.stdout.splitlines()
    assert "has no attribute 'population_count'" in done.stderr


def test_the_copy_is_the_package(operation: Operation) -> None:
    """Not the checkout, whose modules an editable install finds first."""
    code = "import stablexla, stablexla.targets.codegen.kernel as k\nprint(stablexla.__file__, k.__file__, sep='\\n')"
    found = operation.tree.printed(code)
    assert all(line.startswith(str(operation.tree.root)) for line in found), found
    assert ROOT not in map(Path, found)
