"""`python -m stablexla.pjrt`: where JAX's programs run, and the PJRT plugin for programs in other languages."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stablexla.targets import runtime

NAME = "libstablexla_pjrt.so"
_EPILOG = """\
A program in C, Rust, Go or another language opens the library and calls GetPjrtApi, as for any plugin of XLA's:

  lib=$(python -m stablexla.pjrt --library)

Programs are compiled by a process of the Python that the library is installed in, or of the one that STABLEXLA_PYTHON
names; running them, and those that stablexla-compile or JAX saved, takes no Python.
docs/other_languages.md has an example.
"""


def library() -> Path:
    """Return the path of `libstablexla_pjrt.so`, which has the function `GetPjrtApi`.

    Raises:
        FileNotFoundError: this installation lacks it.

    >>> from stablexla.pjrt.__main__ import library
    >>> library().name
    'libstablexla_pjrt.so'
    """
    for folder in runtime.__path__:
        if (path := Path(folder) / NAME).is_file():
            return path
    places = ", ".join(runtime.__path__)
    raise FileNotFoundError(f"{NAME} is in none of {places}: install stablexla anew")


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(
        "python -m stablexla.pjrt",
        description=__doc__.split(": ", 1)[1],
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--library", action="store_true", help="print the path of the plugin's shared library")
    if not parser.parse_args(arguments).library:
        parser.print_help()
        return 0
    try:
        print(library())
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
