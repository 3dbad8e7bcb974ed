"""What JAX has: the public names of its modules, and those among them that are no computations."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MODULES = (
    "jax.numpy",
    "jax.numpy.fft",
    "jax.numpy.linalg",
    "jax.lax",
    "jax.lax.linalg",
    "jax.random",
    "jax.nn",
    "jax.nn.initializers",
    "jax.image",
    "jax.ops",
    "jax.scipy.special",
    "jax.scipy.stats",
    "jax.scipy.linalg",
    "jax.scipy.signal",
    "jax.scipy.ndimage",
    "jax.scipy.fft",
    "jax.scipy.interpolate",
    "jax.scipy.integrate",
    "jax.scipy.cluster.vq",
    "jax.scipy.spatial.transform",
    "jax.scipy.sparse.linalg",
    "jax.scipy.optimize",
)


@dataclass(frozen=True)
class Public:
    """A public name: `module` as "jax.numpy", `name` as "sin", and what it stands for."""

    module: str
    name: str
    value: Any

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def is_function(self) -> bool:
        return callable(self.value) and not inspect.isclass(self.value)

    @property
    def reason(self) -> str:
        """Why it is no computation, as far as that can be seen from what it is; "" for functions."""
        if self.is_function:
            return ""
        if inspect.isclass(self.value):
            return "a class"
        if type(self.value).__name__ == "Primitive" or self.name.endswith("_p"):
            return "a primitive, used through the function of that name"
        if isinstance(self.value, (int, float, type(None))):
            return "a constant"
        return f"an object of class {type(self.value).__name__}"


def public() -> Iterator[Public]:
    """All public names, in the order of `MODULES`; the distributions of `jax.scipy.stats` are modules of their own."""
    for module in MODULES:
        yield from _names_of(module)
        if module == "jax.scipy.stats":
            held = importlib.import_module(module)
            for name in sorted(dir(held)):
                if inspect.ismodule(getattr(held, name)) and not name.startswith("_"):
                    yield from _names_of(f"{module}.{name}")


def _names_of(module: str) -> Iterator[Public]:
    held = importlib.import_module(module)
    for name in sorted(dir(held)):
        value = getattr(held, name)
        if not name.startswith("_") and not inspect.ismodule(value):
            yield Public(module, name, value)


def find(path: str) -> Public:
    """The public name of this path."""
    module, _, name = path.rpartition(".")
    return Public(module, name, getattr(importlib.import_module(module), name))
