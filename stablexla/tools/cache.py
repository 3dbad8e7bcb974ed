"""The tool for the cache of compiled programs, and for the library beside it: `python -m stablexla cache`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stablexla.dialects.display.tables import console, show_table
from stablexla.dialects.errors import LoadError
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import container
from stablexla.tools.common import run_tool
from stablexla.tools.parser import USAGE, Parser
from stablexla.tools.terminal import print_error

if TYPE_CHECKING:
    from stablexla.builder.computation import XlaComputation

EXAMPLES = """examples:
  python -m stablexla cache                       what the cache that is on by default holds
  python -m stablexla cache --clear
  python -m stablexla cache --fill                in the image of a container: its first programs compile sooner
  STABLEXLA_CACHE=/scratch/models python model.py       another folder: compiled once, found from then on
  python -m stablexla cache --folder /scratch/models
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; the exit code is 0, 1 after an error, 2 for wrong arguments."""
    given = parser().parse_args(arguments)
    if given.fill and given.folder is not None:
        print_error("--fill has the library's folder: set STABLEXLA_LIBRARY, not --folder")
        return USAGE
    if given.fill:
        return run_tool(_fill)
    return run_tool(lambda: _run(given.folder or knobs.cache or _by_default(), given.clear))


def parser() -> Parser:
    """Return the parser of all options."""
    description = "Lists the compiled programs that are kept in the cache's folder, or removes them."
    made = Parser("python -m stablexla cache", description, EXAMPLES)
    made.add_argument(
        "--folder", type=Path, help="the folder (default: what STABLEXLA_CACHE or STABLEXLA_KERNEL_CACHE says)"
    )
    what = made.add_mutually_exclusive_group()
    what.add_argument("--info", action="store_true", help="list the entries (default)")
    what.add_argument("--clear", action="store_true", help="remove all entries; without --folder the library's, too")
    what.add_argument(
        "--fill",
        action="store_true",
        help="compile what products, convolutions, elementary functions, sorts and pads usually need, for this machine",
    )
    return made


def _by_default() -> Path | None:
    from stablexla.compiling.cache import Folder

    found = Folder.by_default()
    return None if found is None else found.path


def _run(folder: Path | None, clear: bool) -> int:
    from stablexla.compiling.cache import Folder, entries, limit, remove_unfinished

    if folder is None:
        print_error("the cache is off: give --folder, or set STABLEXLA_CACHE")
        return USAGE
    folder = folder.expanduser()
    found = entries(folder)
    total = sum(stat.st_size for _, stat in found)
    if clear:
        remove_unfinished(folder)
        print(f"{folder}: removed {limit(folder, -1)} programs, {total:,} bytes")
        library = Folder.of_library()
        if library is not None and folder == _by_default() and (functions := entries(library.path)):
            size = sum(stat.st_size for _, stat in functions)
            print(f"{library.path}: removed {limit(library.path, -1)} entries, {size:,} bytes")
        return 0
    if found:
        rows = [(f"{stat.st_size:,}", _used(stat.st_mtime), _name(path)) for path, stat in found]
        _show(rows)
    print(f"{folder}: {len(found)} programs, {total:,} bytes of {knobs.cache_limit:,}")
    return 0


def _fill() -> int:
    from stablexla.compiling.cache import Folder, entries
    from stablexla.compiling.compiler import compile

    folder = Folder.of_library()
    if folder is None:
        print_error("the library is off: set STABLEXLA_LIBRARY to a folder of your own")
        return USAGE
    before = len(entries(folder.path))
    with knobs.scoped(kernel_cache="off", cache=None):  # the programs themselves are of no use
        for program in _usual_programs():
            compile(program)
            print(f"{program.name}: {len(entries(folder.path)) - before} functions by now")
    found = entries(folder.path)
    print(f"{folder.path}: {len(found)} entries, {sum(stat.st_size for _, stat in found):,} bytes")
    return 0


def _usual_programs() -> Iterator[XlaComputation]:
    """Yield programs that together use the functions that most programs use."""
    import stablexla as sx

    def program(name: str, *shapes: sx.Shape) -> tuple[sx.XlaBuilder, list[sx.XlaOp]]:
        b = sx.XlaBuilder(name)
        return b, [b.parameter(number, shape) for number, shape in enumerate(shapes)]

    for type_ in (sx.f32, sx.f64, sx.bf16, sx.f16):
        b, (x, y, z, row) = program(f"product, {type_}", type_[300, 500], type_[500, 400], type_[500, 400], type_[400])
        yield b.build(sx.tuple([x @ y, sx.max(sx.add(x @ z, row, broadcast_dimensions=(1,)), 0)]))
    for type_ in (sx.f32, sx.f64):
        b, (x, y) = program(f"product of short k, {type_}", type_[200, 200], type_[200, 250])
        yield b.build(x @ y)
        widths = (8, 16, 20, 32, 48, 100)
        b, (x, *all_y) = program(f"small products, {type_}", type_[16, 20], *(type_[20, width] for width in widths))
        products = [x @ y for y in all_y]
        layers = [sx.max(sx.add(x @ y, 1.0), 0.0) for y in all_y]
        yield b.build(sx.tuple([sx.transpose(x[:12, :], (1, 0)) @ x[:12, :], *products, *layers]))
    b, (x, y) = program("product, s8", sx.s8[300, 500], sx.s8[500, 400])
    yield b.build(sx.dot(x, y, preferred_element_type=sx.s32))
    for type_ in (sx.f32, sx.f64, sx.bf16):
        for size, features, groups, stride in ((3, 32, 1, 1), (1, 32, 1, 1), (7, 3, 1, 2), (3, 32, 32, 1)):
            title = f"convolution {size}x{size}{' by channel' if groups > 1 else ''}, {type_}"
            weights = type_[size, size, features // groups, 64]
            b, (x, w, v, row) = program(title, type_[1, 56, 56, features], weights, weights, type_[64])
            numbers = "NHWC", "HWIO", "NHWC"
            y, z = (sx.conv_general(x, each, (stride, stride), "SAME", numbers, groups) for each in (w, v))
            yield b.build(sx.tuple([y, sx.max(sx.add(z, row, broadcast_dimensions=(3,)), 0)]))
    for type_ in (sx.f32, sx.f64):
        b, (x,) = program(f"elementary functions, {type_}", type_[37])
        unary = (sx.sin, sx.cos, sx.tan, sx.exp, sx.expm1, sx.log, sx.log1p, sx.tanh, sx.logistic, sx.cbrt, sx.erf)
        yield b.build(sx.tuple([sx.pow(x, x), sx.rem(x, x), *(function(x) for function in unary)]))
    for type_ in (sx.f32, sx.f64, sx.s32, sx.s64):
        for shape, dimension in (((40, 20), 1), ((20, 40), 0), ((4, 5000), 1), ((200_000,), 0)):
            title = f"sort, {type_[shape]}{' of columns' if dimension + 1 < len(shape) else ''}"
            b, (x,) = program(title, type_[shape])
            yield b.build(sx.sort(x, sx.lt, dimension))
        b, (x,) = program(f"pad, {type_}", type_[100])
        yield b.build(sx.pad(x, 0, [(3, 4, 0)]))


def _show(rows: Sequence[tuple[str, str, str]]) -> None:
    where = console()
    if where.is_terminal:
        show_table(where, ("bytes", "last used", "program"), rows, numbers=("bytes",))
    else:  # lines for other programs, without a header
        print("\n".join(f"{size:>12}  {used}  {name}" for size, used, name in rows))


def _used(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _name(path: Path) -> str:
    """Return the contents of an entry, in a word."""
    with contextlib.suppress(LoadError, KeyError):
        described = container.read(path).description
        return f"{described['name']}({', '.join(described['parameters'])}) -> ({', '.join(described['results'])})"
    return f"{path.name}: damaged, it will be replaced"


if __name__ == "__main__":
    sys.exit(main())
