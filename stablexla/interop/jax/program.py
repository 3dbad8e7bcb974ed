"""A function that JAX has lowered, compiled by stablexla: pytrees outside, flat arrays inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stablexla.compiling.compiler import compile as compile_program
from stablexla.dialects.errors import ExecutionError, UnsupportedError
from stablexla.executable.executable import Executable
from stablexla.interop.jax import donation
from stablexla.interop.jax.arrays import Returns, maker, replace_contents, to_host
from stablexla.interop.jax.callbacks import bind_callbacks, release_with
from stablexla.interop.jax.lowered import Interface, interface_of, interface_of_exported
from stablexla.interop.jax.meshes import Mesh, devices_of
from stablexla.interop.jax.required import internals, jax
from stablexla.interop.load import load
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.signature.signature import needs_shapes
from stablexla.targets.stablehlo.partition import is_sharded


class JaxProgram:
    """A compiled function of JAX for certain argument types. Call it like the function.

    Attributes:
        name: the function's.
        executable: what runs it; it takes the leaves of those arguments that the function uses.
    """

    def __init__(
        self, executable: Executable, interface: Interface, returns: Returns = "jax", mesh: Mesh | None = None
    ) -> None:
        self.name = interface.name
        self.executable = executable
        self._interface = interface
        self._array_type = internals().Array
        self._takes = [(i, spec.dtype) for i, spec in zip(interface.kept, executable.parameters, strict=True)]
        self._mesh = mesh
        # Runs the program; each result is an array, or, on a mesh, the shards of the devices.
        self._execute: Callable[[Sequence[object]], Sequence[Any]] = executable.execute if mesh is None else mesh.run
        changed = interface.changed or (None,) * len(interface.out_avals)
        kinds: list[Returns] = [returns if place is None else "jax" for place in changed]
        self._makers = [
            maker(aval, kind) if mesh is None else mesh.maker(i, aval, kind)
            for i, (aval, kind) in enumerate(zip(interface.out_avals, kinds, strict=True))
        ]
        # Every leaf is a parameter as it is, so that a small call costs little.
        everything = tuple(range(interface.in_tree.num_leaves))
        self._is_plain = interface.kept == everything and not (
            interface.constants or interface.donated or interface.changed
        )
        self._make_one = self._makers[0] if interface.has_one_result else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program.

        Raises:
            ExecutionError: arguments of another structure, or arrays of other types, than it was lowered for.
        """
        leaves, tree = jax().tree_util.tree_flatten((args, kwargs))
        if tree != self._interface.in_tree:
            takes = f"{self.name}: takes arguments of the structure {self._interface.in_tree}"
            raise ExecutionError(f"{takes}, but {tree} came")
        return self.call_flat(leaves)

    def call_flat(self, leaves: Sequence[Any]) -> Any:
        """Run the program on the leaves of its arguments."""
        if self._interface.constants:
            leaves = [*self._interface.constants, *leaves]
        if self._interface.changed:
            return self._call_changing([*leaves, *self._interface.captured])
        if self._interface.donated:
            return self._call_donated(leaves)
        array_type = self._array_type
        return self._finish(
            self._execute(
                [
                    np.asarray(leaf) if type(leaf := leaves[i]) is array_type else to_host(leaf, dtype)
                    for i, dtype in self._takes
                ]
            )
        )

    def call_arrays(self, arrays: Sequence[Any]) -> Any:
        """Run `call_flat` on leaves that are all arrays of JAX, of the lowered types."""
        if not self._is_plain:
            return self.call_flat(arrays)
        results = self._execute([np.asarray(array) for array in arrays])
        return self._finish(results) if self._make_one is None else self._make_one(results[0])

    def _finish(self, results: Sequence[Any]) -> Any:
        if self._make_one is not None:
            return self._make_one(results[0])
        made = [make(array) for make, array in zip(self._makers, results, strict=True)]
        return self._interface.out_tree.unflatten(made)

    def _call_donated(self, leaves: Sequence[Any]) -> Any:
        """Run with donation: donated arguments are deleted, results alias those without other users."""
        if self._mesh is not None:
            return self._call_donated_on_mesh(leaves)
        arguments, all_free = [], True
        for i, dtype in self._takes:
            leaf = leaves[i]
            if i in self._interface.donated:
                leaf, is_free = donation.donate(leaf)
                all_free &= is_free
            arguments.append(leaf if type(leaf) is np.ndarray and leaf.dtype == dtype else to_host(leaf, dtype))
        results = self.executable.execute(arguments, donate=all_free)
        made = [make(array) for make, array in zip(self._makers, results, strict=True)]
        if self.executable.aliases:
            for each, array in zip(made, results, strict=True):
                donation.remember_result(each, array)
        return self._interface.out_tree.unflatten(made)

    def _call_donated_on_mesh(self, leaves: Sequence[Any]) -> Any:
        """Run with donation on a mesh: sharded arguments are only deleted."""
        results = self._execute([to_host(leaves[i], dtype) for i, dtype in self._takes])
        for i, _ in self._takes:
            if i in self._interface.donated and isinstance(leaves[i], self._array_type):
                leaves[i].delete()
        return self._finish(results)

    def _call_changing(self, leaves: Sequence[Any]) -> Any:
        """Run with references among the arguments: the last results are their new contents."""
        given = [leaves[i] for i, _ in self._takes]
        arguments = [to_host(leaf, dtype) for leaf, (_, dtype) in zip(given, self._takes, strict=True)]
        results = self._execute(arguments)
        made = []
        for array, make, place in zip(results, self._makers, self._interface.changed, strict=True):
            if place is None:
                made.append(make(array))
            else:
                replace_contents(given[place], make(array))
        for i in self._interface.donated:
            donation.donate(leaves[i])
        return self._interface.out_tree.unflatten(made)

    def __repr__(self) -> str:
        return f"JaxProgram({self.name!r}, {self.executable!r})"


def from_lowered(lowered: Any, *, options: CompileOptions | None = None, returns: Returns = "jax") -> JaxProgram:
    """Compile the result of `jax.jit(f).lower(...)`.

    Args:
        lowered: a `jax.stages.Lowered`.
        options: how to compile.
        returns: whether results are JAX's arrays or numpy's.

    Raises:
        UnsupportedError: something in it cannot be done.
        CompileError: a step of the pipeline failed.

    >>> import jax
    >>> lowered = jax.jit(lambda x: {"half": x / 2}).lower(jax.ShapeDtypeStruct((2,), "float32"))
    >>> sx.interop.jax.from_lowered(lowered)(np.array([1, 2], np.float32))
    {'half': Array([0.5, 1. ], dtype=float32)}
    """
    module, callbacks = bind_callbacks(lowered._lowering.stablehlo(), lowered._lowering.compile_args["host_callbacks"])
    executable = compile_program(module, options=options, num_partitions=_partitions(module))
    release_with(executable, callbacks)
    details = lowered._lowering.compile_args
    declared = details["out_shardings"]
    known = (*details["in_shardings"], *declared, *details.get("intermediate_shardings", ()))
    return JaxProgram(executable, interface_of(lowered), returns, _mesh(executable, known, declared))


def from_exported(exported: Any, *, options: CompileOptions | None = None, returns: Returns = "jax") -> JaxProgram:
    """Compile the result of `jax.export.export(jax.jit(f))(...)`.

    Args:
        exported: a `jax.export.Exported`, or the bytes that its `serialize()` gave.
        options: how to compile.
        returns: whether results are JAX's arrays or numpy's.

    Raises:
        UnsupportedError: something in it cannot be done.
        CompileError: a step of the pipeline failed.

    >>> import jax
    >>> exported = jax.export.export(jax.jit(lambda x: x @ x))(jax.ShapeDtypeStruct((2, 2), "float32"))
    >>> sx.interop.jax.from_exported(exported)(np.eye(2, dtype=np.float32))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    is_known = not isinstance(exported, (bytes, bytearray))
    if not is_known:
        exported = jax().export.deserialize(bytearray(exported))
    if "cpu" not in exported.platforms:
        raise UnsupportedError(
            f"it was exported for {', '.join(exported.platforms)}, not for the CPU", operation="export"
        )
    module = load(exported.mlir_module_serialized, trusted=is_known)
    executable = compile_program(module, options=options, num_partitions=_partitions(module))
    interface = interface_of_exported(exported, executable.parameters)
    return JaxProgram(executable, interface, returns, _mesh(executable, (), ()))


def _partitions(module: Any) -> int | None:
    """Return the module's number of partitions where something is sharded; else one device.

    Arrays of unknown extents are not cut: one device it is, too.
    """
    return None if is_sharded(module) and not needs_shapes(module) else 1


def _mesh(executable: Executable, known: Sequence[Any], declared: Sequence[Any]) -> Mesh | None:
    """Return the runner of the program on the devices of JAX's shardings; None for one device."""
    if executable.num_partitions == 1:
        return None
    return Mesh(executable, devices_of(known, executable.num_partitions), declared)
