"""A copy of the sources that tests change, and the package as it is then, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from stablexla.targets.runtime import _runtime

ROOT = Path(__file__).parents[1]
SOURCES = ("stablexla", "dialects", "lowering", "targets")
WITHOUT_THE_INSTALLED = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")
                    and "editable" not in type(finder).__module__]
"""
"""An editable install finds the modules of the checkout itself, before those of PYTHONPATH."""


class Tree:
    """A copy of the package's sources, and of whatever else a test asks for.

    Args:
        root: an empty folder.
        more: files and folders that are copied too.
    """

    def __init__(self, root: Path, *more: str) -> None:
        self.root = root
        for name in (*SOURCES, *more):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, root / name, symlinks=True)
            else:
                shutil.copy2(ROOT / name, root / name)
        library = Path(str(_runtime.__file__))
        if not (root / "targets/runtime" / library.name).exists():
            (root / "targets/runtime" / library.name).symlink_to(library)
        self.write("sitecustomize.py", WITHOUT_THE_INSTALLED)

    def write(self, path: str, text: str) -> None:
        """A file with this text."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def replace(self, path: str, old: str, new: str) -> None:
        """Another text in the place of one that stands in the file once."""
        text = (self.root / path).read_text()
        assert text.count(old) == 1, f"{path} has {old!r} {text.count(old)} times"
        self.write(path, text.replace(old, new))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Python with these arguments, for which the copy is the package."""
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=240)

    def printed(self, code: str) -> list[str]:
        """The lines that a program prints."""
        done = self.run("-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()
