"""The checklist for a release, as a program: `make release`. It uploads nothing, and sets no tag.

Each step refuses by raising `Refused`. `--rehearse` goes on after that, and tells at the end what was refused.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
IN_THE_PACKAGE = {"dialects", "lowering", "targets"}


class Refused(Exception):
    """Something that a release must not be made with."""


@dataclass(frozen=True)
class Release:
    """A checkout, and the folder for what is built of it."""

    root: Path
    dist: Path

    @property
    def project(self) -> dict[str, Any]:
        project: dict[str, Any] = tomllib.loads((self.root / "pyproject.toml").read_text())["project"]
        return project

    @property
    def version(self) -> str:
        return str(self.project["version"])

    @property
    def wheel(self) -> Path:
        [wheel] = self.dist.glob("*.whl")
        return wheel


def clean_tree(release: Release) -> None:
    """The tree is as it was committed."""
    changed = _output(release, "git", "status", "--porcelain")
    _require(not changed, f"not committed:\n{changed}")


def one_version(release: Release) -> None:
    """pyproject.toml and stablexla/version.py have one version, which no tag has yet."""
    other = re.search(r'VERSION = "(.*)"', (release.root / "stablexla/version.py").read_text())
    _require(
        other is not None and other[1] == release.version,
        f"pyproject.toml has {release.version}, stablexla/version.py {other and other[1]}",
    )
    _require(
        not _output(release, "git", "tag", "--list", f"v{release.version}"), f"v{release.version} is tagged already"
    )


def notes(release: Release) -> None:
    """CHANGELOG.md has the version with a date, and docs/releases/ its release notes."""
    heads = re.findall(r"^## (.*)$", (release.root / "CHANGELOG.md").read_text(), re.MULTILINE)
    dated = rf"{re.escape(release.version)} \(\d{{4}}-\d\d-\d\d\)"
    _require(
        bool(heads) and re.fullmatch(dated, heads[0]) is not None,
        f"CHANGELOG.md begins with {heads[:1]}; needed: '## {release.version} (year-month-day)'",
    )
    page = release.root / f"docs/releases/{release.version}.md"
    _require(page.exists(), f"{page.relative_to(release.root)} is missing")


def addresses(release: Release) -> None:
    """The repository that the metadata names is git's origin."""
    named = str(release.project["urls"]["Repository"])
    origin = _output(release, "git", "config", "--default", "", "--get", "remote.origin.url").removesuffix(".git")
    origin = re.sub(r"^git@([^:]+):", r"https://\1/", origin)
    _require(origin == named, f"pyproject.toml names {named}, git's origin is {origin or 'not set'}")


def built(release: Release) -> None:
    """An sdist, a wheel built from it, and the wheel's tag by what it needs of the system."""
    shutil.rmtree(release.dist, ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        _run(release, sys.executable, "-m", "build", f"--outdir={place}", ".")
        [wheel], [sdist] = Path(place).glob("*.whl"), Path(place).glob("*.tar.gz")
        _run(release, sys.executable, "-m", "auditwheel", "repair", f"--wheel-dir={release.dist}", str(wheel))
        shutil.copy(sdist, release.dist)


def metadata(release: Release) -> None:
    """A package index takes the metadata and shows the README."""
    _run(release, sys.executable, "-m", "twine", "check", "--strict", *map(str, release.dist.iterdir()))


def contents(release: Release) -> None:
    """The wheel holds one import package with its layers in it, its types, and no tests."""
    names = zipfile.ZipFile(release.wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    info = f"stablexla-{release.version}.dist-info"
    _require(tops == {"stablexla", info}, f"the wheel holds {sorted(tops)}")
    inside = {name.split("/")[1] for name in names if name.startswith("stablexla/")}
    _require(inside >= {"py.typed", *IN_THE_PACKAGE} and "tests" not in inside, f"stablexla/ holds {sorted(inside)}")


def installs(release: Release) -> None:
    """In a new environment, without a compiler, pip installs it and the README's program runs."""
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        python = f"{place}/bin/python"
        search = {"PATH": f"{place}/bin"}  # no compiler
        _run(release, python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", str(release.wheel), **search)
        _run(release, python, str(release.root / "releasing/try_installed.py"), **search)


CHECKLIST: Sequence[Callable[[Release], None]] = (
    clean_tree,
    one_version,
    notes,
    addresses,
    built,
    metadata,
    contents,
    installs,
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rehearse", action="store_true", help="go on after a step that refuses")
    rehearse = parser.parse_args(arguments).rehearse
    release = Release(ROOT, ROOT / "dist")
    refused = 0
    for step in CHECKLIST:
        print(f"-- {step.__doc__}", flush=True)
        try:
            step(release)
        except (Refused, OSError, ValueError) as error:
            print(f"   refused: {error}", flush=True)
            refused += 1
            if not rehearse:
                return 1
    _print_result(release, refused)
    return 1 if refused else 0


def _print_result(release: Release, refused: int) -> None:
    for file in sorted(release.dist.glob("*")):
        print(f"{file.stat().st_size:>10,}  {file.relative_to(release.root)}")
    print(f"{refused} steps refused." if refused else "Ready. Nothing was uploaded: releasing/README.md has the rest.")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Refused(otherwise)


def _run(release: Release, *command: str, **environment: str) -> None:
    """Run a tool of this Python's environment, and show what it says."""
    search = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=release.root, env=os.environ | search | environment, check=False)
    _require(done.returncode == 0, f"{' '.join(command[:4])} ... failed with exit code {done.returncode}")


def _output(release: Release, *command: str) -> str:
    return subprocess.run(command, cwd=release.root, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
