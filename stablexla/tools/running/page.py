"""`--explain=FILE` with `--profile`: the page of the explanation, with the profile's times beside the kernels."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from stablexla.executable.executable import Executable
from stablexla.inspection.profiling.profile import Profile
from stablexla.tools.running.explaining import TEXT, profile


class _Kept:
    """An executable that keeps its profile: the page has the very times that were printed."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self.found: Profile | None = None

    def profile(self, arguments: Sequence[Any], **options: Any) -> Profile:
        self.found = self._executable.profile(arguments, **options)
        return self.found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executable, name)


def profile_with_page(executable: Executable, inputs: Sequence[Any], arguments: argparse.Namespace) -> None:
    """Profile on request, and write the page again if there is one."""
    kept: Any = _Kept(executable)
    profile(kept, inputs, arguments)
    if kept.found is not None and arguments.explain not in (None, TEXT):
        kept.found.explanation.save(arguments.explain, kept.found)
