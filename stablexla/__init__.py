"""XLA's builder operations and StableHLO programs, compiled and run.

The public names are listed in `api.py`, which is imported at the first use of one: but for some, so that a process that
loads a saved program (`sx.load_executable`), or compiles one that is in the cache, starts without an MLIR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stablexla import version

__version__ = version.VERSION

if TYPE_CHECKING:
    from stablexla import distributed as distributed
    from stablexla import gpu as gpu
    from stablexla import interop as interop
    from stablexla.api import *  # noqa: F403
    from stablexla.api import __all__ as __all__
    from stablexla.ops.exports import *  # noqa: F403
else:
    from stablexla.dialects.builds.mlir_finder import use_private_libraries

    use_private_libraries()  # before any module imports mlir

    _MODULES = ("distributed", "gpu", "interop", "kernel_cache")
    _ERRORS = ("CollectiveError", "ExecutionError", "LoadError", "StablexlaError")
    _APART = {
        **dict.fromkeys(_ERRORS, "stablexla.dialects.errors"),
        "CompileOptions": "stablexla.targets.pipeline.options",
        "Executable": "stablexla.executable.executable",
        "compile": "stablexla.compiling.compiler",
        "load_executable": "stablexla.executable.saved",
        "register_custom_call": "stablexla.compiling.custom_calls",
        "warm_up": "stablexla.compiling.warm_up",
    }
    _LATER = {"load": "stablexla.interop.loading", "freeze": "stablexla.interop.freezing"}  # all readers, at first use
    _OF_SATELLITES = {"check_composite_kernel": "inspection.composite_kernels"}

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"stablexla.{name}")
        without_collections = import_module("stablexla.dialects.collector").without_collections
        if name in _APART:
            with without_collections():
                value = globals()[name] = getattr(import_module(_APART[name]), name)
            return value
        if name in _OF_SATELLITES:
            value = globals()[name] = getattr(
                import_module("stablexla.dialects.satellites").satellite(_OF_SATELLITES[name]), name
            )
            return value
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module 'stablexla' has no attribute {name!r}")
        with without_collections():
            api = import_module("stablexla.api")
        globals().update({public: getattr(api, public) for public in ("__all__", *api.__all__) if hasattr(api, public)})
        if name in _LATER:
            value = globals()[name] = getattr(import_module(_LATER[name]), name)
            return value
        if name in globals():  # a public name, or a module that came along
            return globals()[name]
        names = import_module("stablexla.builder.names")
        raise names.no_attribute("module 'stablexla'", name, names.hint_for_package(name))

    def __dir__() -> list[str]:
        """The public names alone; modules that are imported by their names are found all the same."""
        return sorted({*_MODULES, *__getattr__("__all__"), "__version__"})
