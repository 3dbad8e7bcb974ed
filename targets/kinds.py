"""Facts about a kind of target that are known without its passes: its folder states them."""

from __future__ import annotations

import difflib
import functools
from importlib import import_module
from pathlib import Path
from typing import Literal

from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Kind:
    """Facts about all targets of a kind, as `KIND` in `targets/<name>/__init__.py`.

    Attributes:
        summary: a line for `--list-targets`.
        composites: kernels of composite operations that a user may register for it alone: "functions", which it can
            call, besides lowering rules; "rules" alone; "" for none.
        files: what `stablexla-compile` writes: "library" for C, "kernels" of a GPU; "" for nothing.
        is_known_by_options: its own pipeline follows from its name, the options and the package, so that a program in
            the cache is found without making the pipeline.
        ends_runs: a run ends at its time limit, and when it is cancelled.
    """

    summary: str
    composites: Literal["functions", "rules", ""] = ""
    files: Literal["library", "kernels", ""] = ""
    is_known_by_options: bool = False
    ends_runs: bool = True


PACKAGE = "stablexla.targets"


@functools.cache
def target_names() -> tuple[str, ...]:
    """The names of all targets: the folders of `targets/` that have a file `target.py`."""
    folders = import_module(PACKAGE).__path__
    return tuple(sorted({file.parent.name for folder in folders for file in Path(folder).glob("*/target.py")}))


def kind_of(name: str) -> Kind:
    """The facts about the kind of a target: those of `gpu` for `gpu:sm_90`.

    Raises:
        CompileError: there is none.
    """
    kind = str(name).partition(":")[0]
    if kind not in target_names():
        raise no_target(name)
    found: Kind = getattr(import_module(f"{PACKAGE}.{kind}"), "KIND", Kind(kind))
    return found


def no_target(name: str) -> CompileError:
    """The error of a text that names no target."""
    near = difflib.get_close_matches(str(name), target_names(), n=1) or target_names()
    return CompileError(f"there is no target {name!r}", hint=" or ".join(f'target="{n}"' for n in near))
