"""The process in which IREE compiles, and runs for the first time on zeros; reads pickles, writes pickles.

An answer is the module and the seconds that compiling took, or a line that says what went wrong.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from time import perf_counter
from typing import Any

import ml_dtypes  # noqa: F401  (numpy knows its types by name then)
import numpy as np

COMPILE = [sys.executable, "-m", "iree.compiler.tools.scripts.iree_compile", "-"]
TYPES = {"pred": "bool", "i1": "bool", "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16"}


def compiled(text: str, choices: Sequence[Sequence[str]], patience: float) -> tuple[bytes, float]:
    """By the first flags that work, and the seconds that it took with these."""
    error = None
    begun = perf_counter()
    for flags in choices:
        start = perf_counter()
        command = [*COMPILE, *flags]
        left = patience - (start - begun)
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False, timeout=left)
        if done.returncode == 0:
            return done.stdout, perf_counter() - start
        error = error or done.stderr.decode(errors="replace")
    lines = [line for line in (error or "").splitlines() if "error:" in line]
    raise ValueError(f"compiler: {lines[0].partition('error:')[2].strip() if lines else 'no message'}")


def zeros(text: str) -> list[Any]:
    """Arguments for the first run."""
    signature = text[text.index("@main(") :].split("->")[0]
    found = re.findall(r"%\w+: tensor<((?:\d+x)*)(\w+(?:<\w+>)?)>", signature)
    return [np.zeros(tuple(map(int, shape.split("x")[:-1])), _dtype(kind)) for shape, kind in found]


def _dtype(kind: str) -> np.dtype[Any]:
    if kind.startswith("complex"):
        return np.dtype("complex64" if "f32" in kind else "complex128")
    if kind in TYPES:
        return np.dtype(TYPES[kind])
    sign, bits = ("uint", kind[2:]) if kind.startswith("ui") else ("int", kind[1:])
    return np.dtype(f"{sign}{bits}")


def answer(text: str, choices: Sequence[Sequence[str]], patience: float) -> tuple[bytes, float] | str:
    try:
        module, seconds = compiled(text, choices, patience)
        runtime = import_module("iree.runtime")
        config = runtime.Config("local-task")
        loaded = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, module), config)
        loaded.main(*(runtime.asdevicearray(config.device, a) for a in zeros(text)))
    except subprocess.TimeoutExpired:
        return f"compiling is not done after {patience:.0f} s"
    except Exception as error:
        return f"{type(error).__name__}: {[*str(error).splitlines(), ''][0]}"[:200]
    return module, seconds


def main() -> None:
    # What the runtime prints must not get between the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(answer(*request), out)
        out.flush()


if __name__ == "__main__":
    main()
