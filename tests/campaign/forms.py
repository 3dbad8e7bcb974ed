"""Other forms of a program, which have to give the same results bit for bit.

Each is a function that runs a text on arguments in the way of its name, in the child process of `watched.py`.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import stablexla as sx
from stablexla.interop.encodings.formats import Format
from stablexla.interop.encodings.writers import write
from stablexla.interop.loading import load
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import get_num_threads, set_num_threads
from tests.fuzz.program import NAME, Program, Value, module_text
from tests.kernels import execute

ENDLESS = 8.0
"""Seconds for a run, after which it is stopped."""
Arrays = list[np.ndarray[Any, Any]]
Form = Callable[[str, Arrays], Arrays]

FORMS: dict[str, Form] = {}
INEXACT_FORMS = ("hlo", "eager", "drawn", "kernels")
"""Forms in which sums of floats may be taken in another order."""


def form(function: Form) -> Form:
    """Registers a form under its function's name."""
    FORMS[function.__name__.strip("_")] = function
    return function


def _run(program: Any, arguments: Arrays, **options: Any) -> Arrays:
    return [np.asarray(r) for r in sx.compile(program, options=sx.CompileOptions(**options)).execute(list(arguments))]


# ---- the text is another ---------------------------------------------------------------------------------------------


@form
def call(text: str, arguments: Arrays) -> Arrays:
    """Behind a call of a function whose name has to be quoted."""
    return _run(behind(Program.parse(text), 'call @"the whole, of it"', '@"the whole, of it"'), arguments)


@form
def composite(text: str, arguments: Arrays) -> Arrays:
    """As the decomposition of a composite of a name that nobody knows."""
    head = 'stablehlo.composite "campaign.whole"'
    return _run(behind(Program.parse(text), head, "@whole", " {decomposition = @whole}"), arguments)


def behind(program: Program, head: str, symbol: str, attributes: str = "") -> str:
    """The module whose `main` does nothing but call the program, a private function."""
    inner = module_text(program.parameters, [s.text for s in program.statements],
                        [program.values[n] for n in program.returns])  # fmt: skip
    inner = inner.replace("func.func public @main(", f"func.func private {symbol}(", 1)
    names = ", ".join(p.name for p in program.parameters)
    types = ", ".join(p.type for p in program.parameters)
    results = [program.values[n] for n in program.returns]
    gives = ", ".join(r.type for r in results)
    bound = [f"%r#{i}" if len(results) > 1 else "%r" for i in range(len(results))]
    count = f":{len(results)}" if len(results) > 1 else ""
    operands = f" {names}" if head.startswith("stablehlo") else f"({names})"
    line = f"%r{count} = {head}{operands}{attributes} : ({types}) -> ({gives})"
    made = [Value(name, r.shape, r.element) for name, r in zip(bound, results, strict=True)]
    return module_text(program.parameters, [line], made) + inner


@form
def pieces(text: str, arguments: Arrays) -> Arrays:
    """With a run of its statements behind a call."""
    program = Program.parse(text)
    rng = random.Random(len(text))
    count = len(program.statements)
    first = rng.randrange(count)
    return _run(outlined(program, first, rng.randint(first + 1, count)), arguments)


def outlined(program: Program, first: int, last: int) -> str:
    """The module in which these statements are a function of their own."""
    piece = program.statements[first:last]
    own = {r.name for s in piece for r in s.results}
    reads = [n for n in program.values if n not in own and any(n in s.names for s in piece)]
    needed = {n for s in program.statements[last:] for n in s.names} | set(program.returns)
    gives = [program.values[r.name] for s in piece for r in s.results if r.name in needed]
    if not gives:
        return program.text
    inputs = [program.values[n] for n in reads]
    renamed = {v.name: f"%taken_{i}" for i, v in enumerate(inputs)}
    given = [Value(renamed[v.name], v.shape, v.element) for v in inputs]

    def taken(found: re.Match[str]) -> str:
        return renamed.get(found[0], found[0])

    inner = module_text(given, [NAME.sub(taken, s.text) for s in piece],
                        [Value(renamed.get(v.name, v.name), v.shape, v.element) for v in gives])  # fmt: skip
    inner = inner.replace("func.func public @main(", "func.func private @piece(", 1)
    types, made = ", ".join(v.type for v in inputs), ", ".join(v.type for v in gives)
    count = f":{len(gives)}" if len(gives) > 1 else ""
    line = f"%piece{count} = call @piece({', '.join(reads)}) : ({types}) -> ({made})"
    results = {v.name: f"%piece#{i}" if len(gives) > 1 else "%piece" for i, v in enumerate(gives)}

    def returned(found: re.Match[str]) -> str:
        return results.get(found[0], found[0])

    after = [NAME.sub(returned, s.text) for s in program.statements[last:]]
    ends = [Value(results.get(n, n), program.values[n].shape, program.values[n].element) for n in program.returns]
    before = [s.text for s in program.statements[:first]]
    return module_text(program.parameters, [*before, line, *after], ends) + inner


@form
def hlo(text: str, arguments: Arrays) -> Arrays:
    """By way of HLO's text, with every array in another layout than the usual one."""
    made = write(load(text), Format.HLO_TEXT).decode()
    return _run(relaid(made, len(text)), arguments)


_LAID = re.compile(r"\[(\d+(?:,\d+)+)\]\{(\d+(?:,\d+)*)\}")


def relaid(text: str, seed: int) -> str:
    """HLO's text with the dimensions of arrays in any order in memory; arrays of equal shapes have equal layouts."""

    def layout(found: re.Match[str]) -> str:
        order = found[2].split(",")
        random.Random(f"{seed} {found[1]}").shuffle(order)
        return f"[{found[1]}]{{{','.join(order)}}}"

    return _LAID.sub(layout, text)


@form
def bytecode(text: str, arguments: Arrays) -> Arrays:
    return _run(write(load(text), Format.BYTECODE), arguments)


@form
def artifact(text: str, arguments: Arrays) -> Arrays:
    return _run(write(load(text), Format.ARTIFACT, target="minimum" if len(text) % 2 else "current"), arguments)


# ---- the compilation is another --------------------------------------------------------------------------------------


@form
def repeats(text: str, arguments: Arrays) -> Arrays:
    """Equal parts compiled one by one."""
    return _run(text, arguments, find_repeats=False)


@form
def threads(text: str, arguments: Arrays) -> Arrays:
    before = get_num_threads()
    set_num_threads(4 if before < 4 else 1)
    try:
        return _run(text, arguments)
    finally:
        set_num_threads(before)


@form
def saved(text: str, arguments: Arrays) -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.sxe"
        sx.compile(text).save(file)
        return [np.asarray(r) for r in sx.load_executable(file).execute(list(arguments))]


@form
def cached(text: str, arguments: Arrays) -> Arrays:
    """From the cache, which the first of two compilations has filled."""
    from stablexla.compiling import cache

    with tempfile.TemporaryDirectory() as folder, knobs.scoped(cache=Path(folder)):
        sx.compile(text)
        before = cache.counts.hits
        found = _run(text, arguments)
        assert cache.counts.hits == before + 1, "the second compilation did not find the first one's program"
        return found


@form
def eager(text: str, arguments: Arrays) -> Arrays:
    """With every rewrite, strategy and emitter from the smallest sizes on."""
    return _run(text, arguments, choices="eager")


@form
def drawn(text: str, arguments: Arrays) -> Arrays:
    """With sizes at which they begin that are drawn."""
    return _run(text, arguments, choices=f"drawn:{len(text)}")


@form
def kernels(text: str, arguments: Arrays) -> Arrays:
    """With each kernel that an emitter took computed by the general path too, and compared."""
    return [np.asarray(r) for r in execute(text, arguments, ENDLESS)]


@form
def guarded(text: str, arguments: Arrays) -> Arrays:
    """With guard pages behind all arrays."""
    with knobs.scoped(guard="ends"):
        return _run(text, arguments)


# ---- the run is another ----------------------------------------------------------------------------------------------


@form
def donated(text: str, arguments: Arrays) -> Arrays:
    """With arguments that the run may write into."""
    given = [np.array(a) for a in arguments]
    return [np.asarray(r) for r in sx.compile(text).execute(given, donate=True)]


@form
def started(text: str, arguments: Arrays) -> Arrays:
    """In a thread of its own."""
    return [np.asarray(r) for r in sx.compile(text).start(list(arguments)).result(120)]


def names_for(seed: int, count: int) -> Sequence[str]:
    """Some of the forms."""
    return random.Random(seed).sample(sorted(FORMS), count)
