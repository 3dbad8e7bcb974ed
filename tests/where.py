"""The tests of a module: `python -m tests.where targets/cpu/scan/strided.py` prints the files to run, nearest first.

A file of tests is one of a module's when it has its path or its name, stands in its family's folder, has the name of
its family of operations, is the text of one of its passes, or imports it. When there is none, the tests that have its
name in theirs are; then those of the modules that import it, and so on; in the end the tests of its subject.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOTS = ("stablexla", "dialects", "lowering", "targets")
# Where families are tested whose modules nobody imports by name, as registries find them.
_SUBJECTS = {
    "dialects/builds": "targets/runtime/test_private_libraries.py",
    "dialects/mhlo": "interop/test_foreign*.py",
    "lowering/bounded": "ops/test_dynamic*.py",
    "lowering/math": "numerics/test_*.py",
    "lowering": "ops/test_*.py",
    "stablexla/interop": "interop/test_*.py",
    "stablexla/pjrt": "interop/test_pjrt*.py",
    "stablexla": "test_*.py",
    "targets/codegen/match": "targets/cpu/*/test_*.py",
    "targets/codegen": "targets/cpu/*/test_*.py",
    "targets/gpu": "targets/gpu/test_*.py",
    "targets/stablehlo/partition": "interop/test_partition*.py",
    "targets/stablehlo": "interop/test_*.py",
}
_PASS = re.compile(r'@module_pass\(\s*"stablexla-([\w-]+)"')
_TEST = re.compile(r"^ *def test_(\w+)", re.MULTILINE)
_IMPORT = re.compile(r"^ *(?:from ([\w.]+) )?import (\((?:[^)#]|#.*)*\)|[\w., *]+)", re.MULTILINE)
"""An import by its text, as to parse all files takes ten times as long; `_TEXT` are those that only look like one."""
_TEXT = re.compile(r"(\"{3}|'{3}).*?\1", re.DOTALL)
_NAME = re.compile(r"#.*|\bas \w+|([\w.]+)")


def modules() -> list[Path]:
    """All modules of the package that hold code, relative to the root of the repository."""
    found = (path for root in ROOTS for path in (ROOT / root).rglob("*.py"))
    links = [ROOT / "stablexla" / root for root in ROOTS[1:]]
    own = (p for p in found if p.name != "__init__.py" and not any(p.is_relative_to(link) for link in links))
    return sorted(p.relative_to(ROOT) for p in own)


def tests_of(module: Path) -> list[Path]:
    """The files of tests of a module, nearest first; all are relative to the root of the repository."""
    own = [*_by_path(module), *_by_name(module), *_of_operations(module), *_of_passes(module)]
    asked, waiting = {module}, [module]
    while waiting:
        users = [user for one in waiting for user in sorted(_users().get(one, ()))]
        own += filter(_is_test, users)
        if not own and waiting == [module]:
            own += _by_mention(module)
        if own:
            break
        waiting = [user for user in dict.fromkeys(users) if user not in asked]
        asked.update(waiting)
    return list(dict.fromkeys(own or _of_subject(module)))


def _is_test(file: Path) -> bool:
    return file.parts[0] == "tests" and file.name.startswith("test_")


def _by_name(module: Path) -> list[Path]:
    """`test_<module>.py` and `test_<module>_*.py` wherever they are."""
    stem = re.escape(module.stem)
    return [file for file in _named() if re.fullmatch(rf"test_{stem}(_\w+)?\.py", file.name)]


def _by_mention(module: Path) -> list[Path]:
    """The files with tests that have the module's name in theirs."""
    return [file for file, names in _named().items() if any(module.stem in name for name in names)]


@functools.cache
def _named() -> dict[Path, list[str]]:
    """The files of tests and the names of these."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return {file.relative_to(ROOT): _TEST.findall(file.read_text()) for file in files}


def _by_path(module: Path) -> list[Path]:
    """`tests/<path>/test_<module>.py`; or all tests of `tests/<path>/`, its family's."""
    parts = module.parent.parts[1:] if module.parts[0] == "stablexla" else module.parent.parts
    folder = Path("tests", *parts)
    exact = folder / f"test_{module.name}"
    if (ROOT / exact).is_file():
        return [exact]
    return sorted(p.relative_to(ROOT) for p in (ROOT / folder).glob("test_*.py")) if len(parts) > 1 else []


def _of_operations(module: Path) -> list[Path]:
    """The tests of a family of operations, where a module is their builder, rule or kernel."""
    if module.parts[:2] not in (("stablexla", "ops"), ("lowering", "rules"), ("lowering", "kernels")):
        return []
    names = {module.stem, module.parent.name} - {"ops", "rules", "kernels"}
    files = (file for name in names for file in (ROOT / "tests/ops").glob(f"test_{name}*.py"))
    return sorted(file.relative_to(ROOT) for file in files)


def _of_subject(module: Path) -> list[Path]:
    """The tests of the nearest folder above that has a subject."""
    for folder in map(str, module.parents):
        if folder in _SUBJECTS:
            return sorted(p.relative_to(ROOT) for p in (ROOT / "tests").glob(_SUBJECTS[folder]))
    return []


def _of_passes(module: Path) -> list[Path]:
    """The texts before and after the passes that a module defines, and what they refuse."""
    folder = ROOT / "tests/filecheck/passes"
    names = _PASS.findall((ROOT / module).read_text())
    files = (file for name in names for file in (*folder.glob(f"{name}.mlir"), *folder.glob(f"{name}_*.mlir")))
    return sorted(file.relative_to(ROOT) for file in files)


@functools.cache
def _users() -> dict[Path, set[Path]]:
    """The modules and tests that import a module."""
    users: dict[Path, set[Path]] = {}
    for user in [*modules(), *sorted(p.relative_to(ROOT) for p in (ROOT / "tests").rglob("*.py"))]:
        for module in _imported(user):
            users.setdefault(module, set()).add(user)
    return users


def _imported(user: Path) -> Iterator[Path]:
    for module, names in _IMPORT.findall(_TEXT.sub("", (ROOT / user).read_text())):
        words = filter(None, _NAME.findall(names))
        paths = [module, *(f"{module}.{word}" for word in words)] if module else words
        yield from filter(None, map(_file_of, paths))


@functools.cache
def _file_of(name: str) -> Path | None:
    """The file of a module by its dotted name."""
    parts = name.split(".")
    if parts[0] == "stablexla" and parts[1:2] and parts[1] in ROOTS[1:]:
        parts = parts[1:]
    path = Path(*parts).with_suffix(".py")
    return path if parts[0] in (*ROOTS, "tests") and (ROOT / path).is_file() else None


def main() -> int:
    """Print the tests of the modules given."""
    parser = argparse.ArgumentParser(prog="python -m tests.where", description=__doc__)
    parser.add_argument("module", nargs="+", type=Path, help="a file of the package, as targets/cpu/scan/strided.py")
    for given in parser.parse_args().module:
        path = given.resolve()
        module = path.relative_to(ROOT) if path.is_relative_to(ROOT) else given
        if module not in modules():
            print(f"error: {given} is no module of {', '.join(ROOTS)}", file=sys.stderr)
            return 2
        print(*tests_of(module), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
