"""The registries of emitters: priorities alone decide who is asked first, whatever is imported first."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import stablexla as sx
from stablexla.targets.codegen.registry import Emitters
from stablexla.targets.cpu.emitters import EMITTERS
from stablexla.targets.pipeline.steps import register_passes
from stablexla.tools.user_code import load_python

ORDER = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module("stablexla.targets." + name)
from stablexla.targets.pipeline.steps import register_passes
register_passes("cpu")
register_passes("gpu")
from stablexla.targets.cpu.emitters import EMITTERS as cpu
from stablexla.targets.gpu.emitters import EMITTERS as gpu
print([(kind, [e.__module__ for e in found]) for table in (cpu, gpu) for kind, found in sorted(table.items())])
"""


def in_order(*first: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ORDER, *first], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def test_the_order_of_imports_does_not_matter() -> None:
    reference = in_order()
    assert "stablexla.targets.cpu.reduction.arg_search" in reference
    assert in_order("gpu.elementwise.loops", "cpu.reduction.rows", "gpu.contraction.tiles") == reference


def test_the_highest_priority_is_asked_first() -> None:
    emitters: Emitters[object] = Emitters()

    @emitters.register("loop", "row")
    def low() -> None: ...

    @emitters.register("row", priority=5)
    def high() -> None: ...

    @emitters.register("row", priority=2)
    def middle() -> None: ...

    assert emitters == {"loop": [low], "row": [high, middle, low]}


def test_two_of_one_priority_are_refused() -> None:
    emitters: Emitters[object] = Emitters()

    @emitters.register("row", priority=5)
    def one() -> None: ...

    with pytest.raises(ValueError, match=r"other and .*one are emitters of 'row' with one priority, 5"):

        @emitters.register("row", priority=5)
        def other() -> None: ...

    assert emitters == {"row": [one]}


def test_a_kind_that_reads_like_another_is_warned_of() -> None:
    emitters: Emitters[object] = Emitters()
    with pytest.warns(UserWarning, match="no kernel is of kind 'lop': 'loop'\\?") as seen:

        @emitters.register("lop")
        def slip() -> None: ...

    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @emitters.register("my.own.kind", "loop")
        def fine() -> None: ...


def compiled(option: str) -> None:
    b = sx.XlaBuilder("added")
    program = b.build(b.parameter(0, sx.f32[100]) + 1)
    emit = "stablexla-emit-kernels"
    pipeline = sx.pipeline("cpu").replacing_pass(emit, f"{emit}{{{option}}}")
    sx.compile(program, options=sx.CompileOptions(pipeline=pipeline))


def test_a_kernel_that_is_not_there_is_refused() -> None:
    compiled("general=loop_0")
    with pytest.raises(sx.CompileError, match="there is no kernel 'lop_0'") as raised:
        compiled("general=lop_0")
    assert raised.value.hint == "loop_0"


def test_a_feature_that_is_not_known_is_refused() -> None:
    with pytest.raises(sx.CompileError, match="there is no feature 'avx512_bf32' of CPUs") as raised:
        compiled("vector-bits=512 features=avx512_bf32")
    assert "avx512_bf16" in raised.value.hint


USERS = """
from stablexla.targets.codegen import emission as cg
from stablexla.targets.cpu.emitters import emitter


@emitter("loop", priority=1234)
def takes_it(kernel, target):
    {body}
"""
DECLARES = """with kernel.phase(target) as arguments, arguments.items() as item:
        cg.store(cg.constant(1, arguments.results[0].element), arguments.results[0], item)
    return None"""


@pytest.fixture
def emitters_afterwards() -> Iterator[None]:
    """Take out what a test registers."""
    register_passes("cpu")
    tables = dict(EMITTERS), dict(EMITTERS._priorities)
    EMITTERS["loop"] = list(EMITTERS["loop"])
    yield
    EMITTERS.update(tables[0])
    EMITTERS._priorities = tables[1]


@pytest.mark.usefixtures("emitters_afterwards")
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return kernel.nothing", "'Kernel' object has no attribute 'nothing'"),
        ("return 7", "the emitter mine.takes_it of kernel @loop_0 gave a int, where an emitter gives Emitted or None"),
        (DECLARES, "the emitter mine.takes_it of kernel @loop_0 gave None, and has declared a function"),
    ],
    ids=["raises", "gives a number", "declares and refuses"],
)
def test_a_wrong_emitter_of_a_user(body: str, message: str, tmp_path: Path) -> None:
    """It is named, and the reproducer's command loads its file."""
    file = tmp_path / "mine.py"
    file.write_text(USERS.format(body=body))
    load_python(str(file))
    b = sx.XlaBuilder("added")
    with pytest.raises(sx.CompileError) as raised:
        sx.compile(b.build(b.parameter(0, sx.f32[100]) + 1))
    assert message in str(raised.value)
    assert f"--load={file}" in next(line for line in str(raised.value).splitlines() if "reproduce:" in line)


def test_one_table_says_which_emitter_takes_which_kernel() -> None:
    """The README of the CPU has every emitter, its kinds and its priority; those of a kind in the order of asking."""
    register_passes("cpu")
    table = (Path(sx.__file__).parent / "targets" / "cpu" / "README.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+` ?)+) \| (\d+) \| `(\w+)`, `([\w/]+)\.py` \| .+ \|$", table, re.MULTILINE)
    listed: dict[str, list[tuple[str, str]]] = {}
    for kinds, _, name, module in rows:
        for kind in re.findall(r"\w+", kinds):
            listed.setdefault(kind, []).append((name, module.replace("/", ".")))
    ours = {
        kind: [(e.__name__, e.__module__.removeprefix("stablexla.targets.cpu.")) for e in found]
        for kind, found in EMITTERS.items()
        if all(e.__module__.startswith("stablexla.") for e in found)
    }
    assert listed == ours
    assert [int(priority) for _, priority, name, _ in rows if name in ("emit_arg_search", "emit_rows")] == [40, 0]
