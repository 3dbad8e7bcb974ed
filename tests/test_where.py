"""The tests of a module are found: `python -m tests.where`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import where


def test_every_module_has_tests() -> None:
    assert [str(module) for module in where.modules() if not where.tests_of(module)] == []


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        ("targets/cpu/scan/prefix_scan.py", "tests/targets/cpu/scan/test_prefix_scan.py"),
        ("targets/cpu/scan/strided.py", "tests/targets/cpu/scan/test_general.py"),
        ("targets/grouping/group.py", "tests/filecheck/passes/group.mlir"),
        ("lowering/rules/window.py", "tests/ops/test_window.py"),
        ("lowering/math/hyperbolic.py", "tests/numerics/test_pass.py"),
        ("stablexla/compiling/cache.py", "tests/targets/runtime/test_cache.py"),
    ],
)
def test_where_they_are(module: str, wanted: str) -> None:
    assert Path(wanted) in where.tests_of(Path(module))


def test_only_files_of_tests_are_named() -> None:
    named = {file for module in where.modules() for file in where.tests_of(module)}
    helpers = [f for f in named if not f.name.startswith("test_") and not f.is_relative_to("tests/filecheck")]
    assert helpers == []
    assert all(f.suffix == ".mlir" for f in named if f.is_relative_to("tests/filecheck"))


@pytest.mark.parametrize(
    ("module", "nearest"),
    [
        ("stablexla/tools/opt.py", "tests/test_opt.py"),
        ("lowering/rules/associative_scan.py", "tests/interop/test_associative_scan.py"),
        ("lowering/rules/calls/tridiagonal.py", "tests/interop/test_jax_lapack.py"),
    ],
)
def test_the_nearest_are_named_first(module: str, nearest: str) -> None:
    assert where.tests_of(Path(module))[0] == Path(nearest)


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["where", "targets/cpu/sort/merge.py"])
    assert where.main() == 0
    assert "tests/targets/cpu/sort/test_sort.py" in capsys.readouterr().out.splitlines()
    monkeypatch.setattr("sys.argv", ["where", "targets/cpu/sort/marge.py"])
    assert where.main() == 2
    assert "targets/cpu/sort/marge.py is no module of stablexla" in capsys.readouterr().err
