"""The checks that pypjrt has for plugins: what the table has works as the C API says, what it lacks says so."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from stablexla.pjrt.__main__ import library
from stablexla.pjrt.table import table
from stablexla.targets.runtime import _runtime
from tests.pjrt_library import address_in_library

conform = pytest.importorskip("pypjrt.conform")
pytest.importorskip("jax")


class Library:
    """Stands for a shared library, since the table comes as a capsule."""

    def __init__(self, *_: object, **__: object) -> None:
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        address = pointer_of(table(), b"pjrt_c_api")

        class Function:
            def __call__(self) -> int:
                return int(address)

        self.GetPjrtApi = Function()


def test_conformance(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ctypes, "CDLL", Library)
        plugin = conform.Plugin(_runtime.__file__)
    check(plugin)


def test_conformance_of_the_library() -> None:
    address_in_library()  # with the devices that other tests here want
    check(conform.Plugin(str(library())))


def check(plugin: Any) -> None:
    checks = conform.run(plugin, None).checks
    assert [f"{check.id}: {check.detail}" for check in checks if check.result is conform.Result.FAIL] == []
    passed = {check.id for check in checks if check.result is conform.Result.PASS}
    assert {"compile.deserialize_and_load", "compile.cost_analysis", "execute.single_device"} <= passed
    assert {"transfer.async_host_to_device", "topology.client_free_compile"} <= passed
    assert len(passed) >= 54
