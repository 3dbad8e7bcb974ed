"""The checklist for a release refuses what must not be released. Builds are tested in runtime/test_packaging.py."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.loading import load_file

ROOT = Path(__file__).parents[1]
release = load_file(ROOT / "releasing/release.py")
PROJECT = """
[project]
version = "1.2.0"
urls.Repository = "https://host.org/us/stablexla"
"""


@pytest.fixture
def ready(tmp_path: Path) -> release.Release:  # type: ignore[name-defined]
    """A repository that can be released."""
    (tmp_path / "stablexla").mkdir()
    (tmp_path / "docs/releases").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "stablexla/version.py").write_text('VERSION = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (2026-11-30)\n\n## 1.1.0 (2026-10-01)\n")
    (tmp_path / "docs/releases/1.2.0.md").write_text("# 1.2.0\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "remote", "add", "origin", "git@host.org:us/stablexla.git")
    commit(tmp_path)
    return release.Release(tmp_path, tmp_path / "dist")


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=all")


def test_ready(ready):
    for step in (release.clean_tree, release.one_version, release.notes, release.addresses):
        step(ready)


def refuses(ready, step: Callable[..., None], message: str) -> None:
    with pytest.raises(release.Refused, match=message):
        step(ready)


def test_what_is_not_committed(ready):
    (ready.root / "new.py").touch()
    refuses(ready, release.clean_tree, r"not committed:\n\?\? new\.py")


def test_versions_that_differ(ready):
    (ready.root / "stablexla/version.py").write_text('VERSION = "1.1.0"\n')
    refuses(ready, release.one_version, r"pyproject\.toml has 1\.2\.0, stablexla/version\.py 1\.1\.0")


def test_a_version_that_was_released(ready):
    git(ready.root, "tag", "v1.2.0")
    refuses(ready, release.one_version, "v1.2.0 is tagged already")


@pytest.mark.parametrize("head", ["1.2.0 (not released)", "1.1.0 (2026-10-01)", "1.2.0"])
def test_a_changelog_without_the_version(ready, head):
    (ready.root / "CHANGELOG.md").write_text(f"# Changelog\n\n## {head}\n")
    refuses(ready, release.notes, "CHANGELOG.md begins with .*; needed: '## 1.2.0")


def test_no_release_notes(ready):
    (ready.root / "docs/releases/1.2.0.md").unlink()
    refuses(ready, release.notes, "docs/releases/1.2.0.md is missing")


def test_another_origin(ready):
    git(ready.root, "remote", "set-url", "origin", "https://host.org/others/stablexla")
    refuses(ready, release.addresses, "names https://host.org/us/stablexla, git's origin is https://host.org/others")
    git(ready.root, "remote", "remove", "origin")
    refuses(ready, release.addresses, "git's origin is not set")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), ""),
        (("targets/__init__.py",), "the wheel holds .*'targets'"),
        (("stablexla/tests/test_all.py",), "stablexla/ holds .*'tests'"),
    ],
)
def test_contents_of_a_wheel(ready, more, message):
    files = ("stablexla/py.typed", "stablexla/dialects/a.py", "stablexla/lowering/a.py", "stablexla/targets/a.py")
    ready.dist.mkdir()
    with zipfile.ZipFile(ready.dist / "stablexla-1.2.0-py3-none-any.whl", "w") as wheel:
        for name in (*files, *more, "stablexla-1.2.0.dist-info/METADATA"):
            wheel.writestr(name, "")
    if message:
        refuses(ready, release.contents, message)
    else:
        release.contents(ready)


def test_the_checklist_stops_at_the_first_refusal(ready, monkeypatch, capsys):
    monkeypatch.setattr(release, "ROOT", ready.root)
    shutil.rmtree(ready.root / "docs/releases")
    commit(ready.root)
    assert release.main([]) == 1
    printed = capsys.readouterr().out
    assert printed.endswith("refused: docs/releases/1.2.0.md is missing\n")
    assert printed.count("refused") == 1


def test_release_notes_of_this_version():
    version = release.Release(ROOT, ROOT / "dist").version
    assert (ROOT / f"docs/releases/{version}.md").read_text().startswith(f"# stablexla {version}\n")
