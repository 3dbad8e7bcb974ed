"""Whether updates as JAX users write them copy the array: `python -m benchmarks.updates [--names NAMES] [--markdown]`.

An idiom is run for a number of turns, by stablexla and by XLA:CPU, on arrays of 64 KiB and of 2 MiB, in the processor's
time. What a turn takes longer on the larger ones, over what a copy of that much takes, is how many copies of an array
it makes: 0 where the update is done in place. For stablexla the copies of whole arrays in the loop are also counted in
the program. `--markdown` puts the table into docs/jax.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import jax
import jax.numpy as jnp
import mlir.ir as ir
import numpy as np
from jax import lax

import stablexla as sx
from benchmarks.report import replace_between
from stablexla.dialects.contexts import upstream_context
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.interop.jax import jit
from stablexla.lowering.support.operations import defining, main_of, walk
from stablexla.targets.codegen.sizes import bytes_of

SIZES, TURNS, ROUNDS = (1 << 14, 1 << 19), 500, 3
PAGE, BEGIN, END = Path("docs/jax.md"), "<!-- copies of updates -->", "<!-- end of copies of updates -->"


@dataclass(frozen=True)
class Idiom:
    """A function of a number of turns and arrays; a donated one makes one turn of the array that it is given."""

    run: Callable[..., Any]
    arrays: int = 1
    is_donated: bool = False


def loop(body: Callable[[Any, Any], Any], arrays: int = 1) -> Idiom:
    def run(turns: int, *given: Any) -> Any:
        return lax.fori_loop(0, turns, body, given if arrays > 1 else given[0])

    return Idiom(run, arrays)


def summed(body: Callable[[Any, Any, Any], Any]) -> Idiom:
    """A loop that carries a number beside the array."""
    return Idiom(lambda turns, x: lax.fori_loop(0, turns, lambda t, c: body(t, *c), (x, jnp.float32(0))))


def scanned(body: Callable[[Any, Any], Any]) -> Idiom:
    return Idiom(lambda turns, x: lax.scan(body, x, jnp.arange(turns)))


def while_(body: Callable[[Any, Any], Any]) -> Idiom:
    def run(turns: int, x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < turns, lambda c: (c[0] + 1, body(*c)), (0, x))[1]

    return Idiom(run)


def donated(body: Callable[[Any, Any], Any]) -> Idiom:
    return Idiom(lambda turns, x: body(turns, x), is_donated=True)


def kept(a: Any) -> Any:
    return a


def put(t: Any, a: Any) -> Any:
    return a.at[t + 1].set(1.0)


def add(t: Any, a: Any) -> Any:
    return a.at[t].add(2.0)


def part(t: Any, a: Any) -> Any:
    return lax.dynamic_update_slice(a, a[t][None] + 1, (t + 1,))


def rows(t: Any, a: Any) -> Any:
    return a.at[t % 8].set(a[t % 8 + 1] * 0.5)


def cond(t: Any, a: Any) -> Any:
    return lax.cond(a[t] > 0, lambda a: put(t, a), kept, a)


def both(t: Any, a: Any) -> Any:
    return lax.cond(a[t] > 0, lambda a: put(t, a), lambda a: add(t, a), a)


def nested(t: Any, a: Any) -> Any:
    return lax.cond(a[t] > 0, lambda a: lax.cond(a[t + 1] > 0, lambda a: put(t, a), kept, a), lambda a: add(t, a), a)


def switch(t: Any, a: Any) -> Any:
    return lax.switch(t % 4, [kept, lambda a: put(t, a), lambda a: add(t, a), lambda a: part(t, a)], a)


def one_of_two(t: Any, c: Any) -> Any:
    return lax.cond(c[0][t] > 0, lambda a, b: (put(t, a), b), lambda a, b: (a, add(t, b)), *c)


def places(t: Any, c: Any) -> Any:
    return lax.cond(t % 2 == 0, lambda a, b: (add(t, b), a), lambda a, b: (a, add(t, b)), *c)


def inner_loop(t: Any, a: Any) -> Any:
    return lax.cond(a[t] > 0, lambda a: lax.fori_loop(0, 4, lambda u, a: add(t + u, a), a), kept, a)


def exchange(t: Any, a: Any) -> Any:
    return a.at[t].set(a[t + 1]).at[t + 1].set(a[t])


def written_then_read(t: Any, a: Any, s: Any) -> Any:
    return put(t, a), s + a[t + 1]


def read_then_written(t: Any, a: Any, s: Any) -> Any:
    s = s + a[t + 1]
    return put(t, a), s


def read_after_cond(t: Any, a: Any, s: Any) -> Any:
    return lax.cond(s > 0, lambda a: put(t, a), kept, a), s + a[t + 1]


IDIOMS = {
    "loop: `a.at[t].set(v)`": loop(put),
    "loop: `a.at[t].add(v)`": loop(add),
    "loop: `dynamic_update_slice`": loop(part),
    "loop: a row of a matrix": Idiom(lambda turns, x: lax.fori_loop(0, turns, rows, x.reshape(-1, 512))),
    "loop in a loop": loop(lambda t, a: lax.fori_loop(0, 2, lambda u, a: add(t + u, a), a)),
    "scan": scanned(lambda a, t: (put(t, a), t)),
    "scan that gives the old element": scanned(lambda a, t: (put(t, a), a[t + 1])),
    "while": while_(put),
    "loop: `cond(p, update, keep)`": loop(cond),
    "loop: `cond(p, update, other_update)`": loop(both),
    "loop: `cond` in a `cond`": loop(nested),
    "loop: a loop under `cond`": loop(inner_loop),
    "loop: `switch` of 4": loop(switch),
    "scan: `cond(p, update, keep)`": scanned(lambda a, t: (cond(t, a), t)),
    "while: `cond(p, update, keep)`": while_(cond),
    "loop: `select(p, update, old)`": loop(lambda t, a: lax.select(a[t] > 0, put(t, a), a)),
    "loop: `select(p, old, update)`": loop(lambda t, a: lax.select(a[t] > 0, a, part(t, a))),
    "loop: `select(p, update, other_update)`": loop(lambda t, a: lax.select(a[t] > 0, put(t, a), add(t, a))),
    "two arrays, each updated from the other": loop(lambda t, c: (c[0].at[t].set(c[1][t]), c[1].at[t].set(c[0][t])), 2),
    "two arrays, `cond` updates one": loop(one_of_two, 2),
    "two arrays that change places": loop(lambda t, c: (put(t, c[1]), c[0]), 2),
    "two arrays that change places under `cond`": loop(places, 2),
    "one array carried twice": Idiom(
        lambda turns, x: lax.fori_loop(0, turns, lambda t, c: (put(t, c[0]), add(t, c[1])), (x, x))
    ),
    "read, then written": summed(read_then_written),
    "written, then the old one read": summed(written_then_read),
    "written under `cond`, then the old one read": summed(read_after_cond),
    "two elements that change places": loop(exchange),
    "a call, donated": donated(put),
    "a call, donated: `cond(p, update, keep)`": donated(cond),
    "a call, donated: `select(p, update, old)`": donated(lambda t, a: lax.select(a[t] > 0, put(t, a), a)),
}


# ---- copies in the program -------------------------------------------------------------------------------------------


def lowered(idiom: Idiom, arrays: Sequence[np.ndarray], turns: int) -> Any:
    """Return an idiom as JAX lowers it."""
    run = jax.jit(lambda *given: idiom.run(turns, *given), donate_argnums=0 if idiom.is_donated else ())
    return run.lower(*arrays)


def copied(program: sx.Executable, idiom: Idiom) -> int:
    """Return the bytes of whole arrays that a turn copies at most; a kernel's own work is not among them."""
    with upstream_context(), ir.Location.unknown():
        module = ir.Module.parse(program.ir("buffers"))  # operations live as long as it does
        main = main_of(module)
        if idiom.is_donated:
            return _copied(main)
        return sum(_copied(op) for op in walk(main) if op.name == "scf.while" and op.parent.name == "func.func")


def _copied(op: ir.Operation) -> int:
    if op.name == "memref.copy":
        return bytes_of(op.operands[0].type)
    if op.name == "func.call":
        callee = str(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
        return int(callee.split("_")[1]) if callee.startswith("copy_") else 0
    inside = [sum(_copied(v.operation) for block in region.blocks for v in block.operations) for region in op.regions]
    if op.name != "scf.if":
        return sum(inside)
    return 0 if _compares_addresses(op) else max(inside)


def _compares_addresses(op: ir.Operation) -> bool:
    """Whether a branch is for callers who do not donate."""
    condition = defining(op.operands[0])
    makers = map(defining, condition.operands) if condition is not None else ()
    return any(m is not None and m.name == "memref.extract_aligned_pointer_as_index" for m in makers)


# ---- time ------------------------------------------------------------------------------------------------------------


def drawn(idiom: Idiom, size: int) -> list[np.ndarray]:
    """Return arguments of an idiom."""
    return [np.random.default_rng(seed).standard_normal(size, np.float32) for seed in range(idiom.arrays)]


def seconds(idiom: Idiom, size: int, engine: Callable[..., Any]) -> float:
    """Return the processor's time of a turn in the best round."""
    arrays = drawn(idiom, size)
    if idiom.is_donated:
        run = engine(lambda x: idiom.run(1, x), donate_argnums=0)
    else:
        run = engine(lambda *given: idiom.run(TURNS, *given))
    state = run(*map(jnp.asarray, arrays))  # compiled, and memory that the engine may write over
    times = []
    for _ in range(ROUNDS):
        begin = process_time()
        if idiom.is_donated:
            for _ in range(TURNS):
                state = run(state)
        else:
            state = run(*arrays)
        jax.block_until_ready(state)
        times.append(process_time() - begin)
    return min(times) / TURNS


def copy_seconds() -> float:
    """Return what it takes longer to copy the larger array than the smaller."""
    return -float(np.subtract(*(min(_timed_copy(size) for _ in range(ROUNDS)) for size in SIZES)))


def _timed_copy(size: int) -> float:
    source, target = np.ones(size, np.float32), np.zeros(size, np.float32)
    begin = process_time()
    for _ in range(TURNS):
        np.copyto(target, source)
    return (process_time() - begin) / TURNS


def lines(names: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the table as they are measured."""
    yield "| update | copies in the program | copies | XLA's copies | µs a turn, 64 KiB and 2 MiB | XLA's |"
    yield "|---|---:|---:|---:|---:|---:|"
    copy = copy_seconds()
    for name in names:
        idiom = IDIOMS[name]
        ours, others = ([seconds(idiom, size, engine) for size in SIZES] for engine in (jit, jax.jit))
        copies = (f"{max(0.0, (large - small) / copy):.1f}" for small, large in (ours, others))
        times = (" ".join(f"{each * 1e6:.2f}" for each in row) for row in (ours, others))
        program = sx.compile(lowered(idiom, drawn(idiom, SIZES[1]), TURNS).as_text())
        in_program = copied(program, idiom) / (4 * SIZES[1])
        yield f"| {name} | {in_program:.0f} | {' | '.join(copies)} | {' | '.join(times)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", default="", help="only idioms whose names hold this")
    parser.add_argument("--markdown", action="store_true", help=f"put the table into {PAGE}")
    options = parser.parse_args()
    made = []
    for line in lines([name for name in IDIOMS if options.names in name]):
        print(line, flush=True)
        made.append(line)
    if options.markdown:
        replace_between(PAGE, BEGIN, END, "\n".join(made))


if __name__ == "__main__":
    main()
