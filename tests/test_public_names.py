"""What the package shows of itself: its public names, whichever of them were used already."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import stablexla as sx
from stablexla import api

MODULES = ("distributed", "gpu", "interop", "kernel_cache")


def test_public_names_alone() -> None:
    assert set(dir(sx)) == {*api.__all__, *MODULES, "__version__"}
    assert dir(sx) == sorted(set(dir(sx)))
    assert all(getattr(sx, name) is not None for name in dir(sx))


@pytest.mark.parametrize(
    "before",
    ["", "sx.f32", "sx.load_executable", "import stablexla.builder.source, stablexla.dialects.errors, stablexla.gpu"],
)
def test_the_names_do_not_depend_on_what_was_imported(before: str) -> None:
    script = f"import stablexla as sx\n{before}\nprint(*dir(sx))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == dir(sx)


@pytest.mark.parametrize("name", ["Any", "import_module", "private_libraries", "_missing"])
def test_names_of_the_implementation_are_no_attributes(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'stablexla' has no attribute '{name}'"):
        getattr(sx, name)


def test_modules_that_are_not_listed_can_be_imported() -> None:
    modules = "stablexla.builder.source, stablexla.ops.fft as fft, stablexla.targets.pipeline.options"
    script = f"import {modules}\nprint(fft.fft.__name__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "fft\n"


def test_parts_of_interop_are_imported_at_their_first_use() -> None:
    script = (
        "import sys\nimport stablexla as sx\n"
        "print(*dir(sx.interop), *({'jax', 'tensorflow', 'torch', 'stablexla.interop.torch'} & sys.modules.keys()))\n"
        "print(sx.interop.torch.__name__, sx.interop.jax.jit.__name__, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["jax load tensorflow torch", "stablexla.interop.torch jit False"]
    with pytest.raises(AttributeError, match=r"module 'stablexla.interop' has no attribute 'onnx'"):
        _ = sx.interop.onnx


@pytest.mark.parametrize(
    "before", ["", "import stablexla as sx; sx.load; sx.interop.load", "import stablexla.interop.jax"]
)
def test_load_is_a_function_whatever_was_imported(before: str) -> None:
    lines = (
        before,
        "from stablexla.interop import load",
        "import stablexla as sx",
        "load('module {}')",
        "sx.load is load",
    )
    script = "\n".join([*lines[:-1], f"assert {lines[-1]}"])
    subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", sx.__version__)
