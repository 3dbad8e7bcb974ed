"""The tool for the cache of compiled programs: `python -m stablexla cache`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from stablexla.dialects.display.tables import console, show_table
from stablexla.dialects.errors import LoadError
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import container
from stablexla.tools.common import run_tool
from stablexla.tools.parser import USAGE, Parser
from stablexla.tools.terminal import print_error

EXAMPLES = """examples:
  python -m stablexla cache                       what the cache that is on by default holds
  python -m stablexla cache --clear
  STABLEXLA_CACHE=/scratch/models python model.py       another folder: compiled once, found from then on
  python -m stablexla cache --folder /scratch/models
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; the exit code is 0, 1 after an error, 2 for wrong arguments."""
    given = parser().parse_args(arguments)
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
    what.add_argument("--clear", action="store_true", help="remove all entries")
    return made


def _by_default() -> Path | None:
    from stablexla.compiling.cache import Folder

    found = Folder.by_default()
    return None if found is None else found.path


def _run(folder: Path | None, clear: bool) -> int:
    from stablexla.compiling.cache import entries, limit, remove_unfinished

    if folder is None:
        print_error("the cache is off: give --folder, or set STABLEXLA_CACHE")
        return USAGE
    folder = folder.expanduser()
    found = entries(folder)
    total = sum(stat.st_size for _, stat in found)
    if clear:
        remove_unfinished(folder)
        print(f"{folder}: removed {limit(folder, -1)} programs, {total:,} bytes")
        return 0
    if found:
        rows = [(f"{stat.st_size:,}", _used(stat.st_mtime), _name(path)) for path, stat in found]
        _show(rows)
    print(f"{folder}: {len(found)} programs, {total:,} bytes of {knobs.cache_limit:,}")
    return 0


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
