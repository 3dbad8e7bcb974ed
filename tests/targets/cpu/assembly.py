"""Assembly of emitted kernels for processors other than this one, by the command-line tools of the same build."""

from __future__ import annotations

import subprocess
from pathlib import Path

import llvm
import mlir
import mlir.ir as ir

from tests.targets.cpu.harness import lower


def assembly_for(module: ir.Module, cpu: str, triple: str = "") -> str:
    """Lowers a module that holds emitted kernels and compiles it for `cpu`, of this machine's kind or the triple's."""
    lower(module)
    return compiled_for(module, cpu, triple)


def compiled_for(module: ir.Module, cpu: str, triple: str = "") -> str:
    """Compiles a module in LLVM's dialect for `cpu`."""
    translate = Path(mlir.__path__[0]) / "bin" / "mlir-translate"
    llc = Path(llvm.__path__[0]) / "bin" / "llc"
    translated = _run([str(translate), "--mlir-to-llvmir"], str(module))
    return _run([str(llc), *([f"-mtriple={triple}"] if triple else []), f"-mcpu={cpu}", "-O2"], translated)


def _run(command: list[str], text: str) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr
    return done.stdout
