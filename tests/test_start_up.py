"""Start-up: modules that are not imported, and no garbage collection, before a process's first program."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from importlib import metadata

import pytest

from stablexla.dialects import contexts
from stablexla.dialects.builds.installed import installed_version
from stablexla.dialects.builds.pins import PINS
from stablexla.dialects.collector import without_collections
from stablexla.dialects.views import linalg, llvm

UNUSED = (
    *("mlir.dialects._linalg_ops_gen", "mlir.dialects._llvm_ops_gen", "mlir.dialects.transform.interpreter", "yaml"),
    "email.parser",
)
FIRST = f"""
import sys
import stablexla as sx
b = sx.XlaBuilder("first")
x = b.parameter(0, sx.f32[9, 9])
sx.compile(b.build(sx.tanh(sx.dot(x, x))))
print([name for name in {UNUSED!r} if name in sys.modules])
from mlir.dialects import linalg, llvm
import mlir.ir as ir
with ir.Context(), ir.Location.unknown():
    module = ir.Module.parse("func.func @f(%a: tensor<4xf32>) {{ %s = linalg.abs ins(%a : tensor<4xf32>) "
        "outs(%a : tensor<4xf32>) -> tensor<4xf32> return }}")
    [function] = module.body.operations
    [absolute, _] = function.body.blocks[0].operations
    print(isinstance(absolute, linalg.AbsOp), linalg.matmul.__name__, llvm.StoreOp.__name__)
"""


def test_a_first_compilation_imports_no_more_than_it_needs():
    own = {**os.environ, "STABLEXLA_KERNEL_CACHE": "off"}
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True, env=own)
    assert done.stdout.splitlines() == ["[]", "True matmul StoreOp"]


OF_USERS = """
import stablexla as sx

@sx.module_pass("doc-look", "looks")
def look(module):
    for function in module.body.operations:
        for op in function.regions[0].blocks[0].operations:
            if op.operation.name == "linalg.generic":
                print(type(op).__name__, len(op.inputs), len(op.outputs))

b = sx.XlaBuilder("p")
p = b.build(b.parameter(0, sx.f32[3]) + 1)
sx.compile(p)
pipeline = sx.pipeline("cpu").inserting(sx.Step("look", "doc-look"), after="tensor")
sx.compile(p, options=sx.CompileOptions(pipeline=pipeline))
"""


def test_views_have_no_classes():
    assert not [name for view in (linalg, llvm) for name in vars(view) if name.endswith("Op")]


def test_passes_of_users_see_classes():
    done = subprocess.run([sys.executable, "-c", OF_USERS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["GenericOp 2 1"]


@pytest.mark.parametrize("package", sorted({pin.package for pin in PINS} | {"numpy"}))
def test_installed_version(package):
    assert installed_version(package) == metadata.version(package)


def test_a_package_without_its_folder_is_left_to_importlib(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing"), str(tmp_path)])
    monkeypatch.setattr(metadata, "version", lambda package: f"{package} by metadata")
    assert installed_version("numpy") == "numpy by metadata"
    for version in ("1.0", "2.0"):
        (tmp_path / f"numpy-{version}.dist-info").mkdir()
    assert installed_version("numpy") == "numpy by metadata"


def test_collections_are_held_and_come_again():
    with without_collections():
        assert not gc.isenabled()
        with without_collections():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_a_user_set_stays():
    gc.disable()
    try:
        with without_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    gc.freeze()
    with without_collections():
        pass
    count = gc.get_freeze_count()
    gc.unfreeze()
    assert count


def test_pass_managers_live_as_long_as_contexts():
    one = contexts.pass_manager("upstream", "builtin.module(cse)")
    assert contexts.pass_manager("upstream", "builtin.module(cse)") is one
    assert contexts.pass_manager("upstream", "builtin.module(cse)", verify_each=False) is not one
    assert contexts.pass_manager("stablehlo", "builtin.module(cse)") is not one
    with contexts.contexts_of_their_own():
        assert contexts.pass_manager("upstream", "builtin.module(cse)") is not one
    with pytest.raises(ValueError, match="no-such-pass"):
        contexts.pass_manager("upstream", "builtin.module(no-such-pass)")
