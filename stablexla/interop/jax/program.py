"""A function that JAX has lowered, compiled by stablexla: pytrees outside, flat arrays inside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stablexla.compiling.compiler import compile as compile_program
from stablexla.dialects.element_types import BY_MLIR
from stablexla.dialects.errors import ExecutionError, UnsupportedError
from stablexla.executable.executable import Executable
from stablexla.interop.freezing import freeze as freeze_parameters
from stablexla.interop.jax import donation
from stablexla.interop.jax.arguments import Names, names_of_parameters, wrong_leaf, wrong_structure
from stablexla.interop.jax.arrays import Array, Returns, check_returns, maker, replace_contents, to_host
from stablexla.interop.jax.callbacks import bind_callbacks, release_with
from stablexla.interop.jax.inspection import Inspectable, Inspection
from stablexla.interop.jax.lowered import Interface, interface_of, interface_of_exported
from stablexla.interop.jax.meshes import Mesh, devices_of
from stablexla.interop.jax.required import internals, jax
from stablexla.interop.loading import load
from stablexla.lowering.support.types import is_token
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.signature.signature import main_of, needs_shapes
from stablexla.targets.stablehlo.partition import is_sharded

if TYPE_CHECKING:
    from stablexla.inspection.explaining.explanation import Explanation


class JaxProgram(Inspectable):
    """A compiled function of JAX for certain argument types. Call it like the function.

    Attributes:
        name: the function's.
        executable: what runs it; it takes the leaves of those arguments that the function uses.
    """

    def __init__(
        self, executable: Executable, interface: Interface, returns: Returns = "jax", mesh: Mesh | None = None
    ) -> None:
        check_returns(returns)
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
        leaves = self._leaves(args, kwargs)
        try:
            return self.call_flat(leaves)
        except ExecutionError:
            self._check_leaves(args, kwargs)
            raise

    def explain(self) -> Explanation:
        """Explain each operation, as `Executable.explain` does.

        Raises:
            CompileError: the pipeline leaves no kernels, as one of a user may.

        >>> import jax
        >>> lowered = jax.jit(lambda tree: tree["a"] * 2).lower({"a": jax.ShapeDtypeStruct((64,), "float32")})
        >>> [kernel.kind for kernel in sx.interop.jax.from_lowered(lowered).explain().kernels]
        ['loop']
        """
        return self.executable.explain()

    def inspect(self, *args: Any, **kwargs: Any) -> Inspection:
        """Return the program with these arguments, to be explained, profiled, traced, compared and checked.

        Args:
            args, kwargs: as the function takes them.

        Raises:
            ExecutionError: arguments of another structure, or arrays of other types, than it was lowered for.
        """
        leaves = self._leaves(args, kwargs)
        self._check_leaves(args, kwargs)
        return self.inspect_flat(leaves)

    def inspect_flat(self, leaves: Sequence[Any]) -> Inspection:
        """Return the program with the leaves of its arguments."""
        return Inspection(self.executable, self._arrays(self._all_leaves(leaves)))

    def _own_names(self) -> Collection[str]:
        names: tuple[str, ...] = tuple(self._interface.in_tree.children()[1].node_data()[1])  # the dictionary's keys
        return names

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        leaves: list[Any]
        leaves, tree = jax().tree_util.tree_flatten((args, kwargs))
        wanted = self._interface.in_tree
        if tree != wanted:
            wrong = wrong_structure((args, kwargs), wanted, self._interface.in_avals, self._names())
            raise ExecutionError(f"{self.name}: {wrong}")
        return leaves

    def _check_leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse leaves of other types than the program was lowered for."""
        wrong = wrong_leaf((args, kwargs), self._interface.in_avals, self._names())
        if wrong:
            raise ExecutionError(f"{self.name}: {wrong}") from None

    def _names(self) -> Names:
        first = len(self._interface.constants)
        named = zip(self._interface.kept, self.executable.parameters, strict=True)
        return names_of_parameters(self._interface.in_tree, {i - first: spec.name or "" for i, spec in named})

    def call_flat(self, leaves: Sequence[Any]) -> Any:
        """Run the program on the leaves of its arguments."""
        leaves = self._all_leaves(leaves)
        if self._interface.changed:
            return self._call_changing(leaves)
        if self._interface.donated:
            return self._call_donated(leaves)
        return self._finish(self._execute(self._arrays(leaves)))

    def _all_leaves(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """Return the arguments' leaves with the arrays that the function closes over."""
        constants, captured = self._interface.constants, self._interface.captured
        return [*constants, *leaves, *captured] if constants or captured else leaves

    def _arrays(self, leaves: Sequence[Any]) -> list[Array]:
        """Return the arguments of the executable, from all leaves."""
        array_type = self._array_type
        return [
            np.asarray(leaf) if type(leaf := leaves[i]) is array_type else to_host(leaf, dtype)
            for i, dtype in self._takes
        ]

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


def from_lowered(
    lowered: Any,
    *,
    options: CompileOptions | None = None,
    returns: Returns = "jax",
    freeze: Mapping[int, Any] | None = None,
) -> JaxProgram:
    """Compile the result of `jax.jit(f).lower(...)`.

    Args:
        lowered: a `jax.stages.Lowered`.
        options: how to compile.
        returns: whether results are JAX's arrays or numpy's.
        freeze: arrays that are constants of the program, by the numbers of the arguments' leaves. Calls are still given
            arguments for them, and read nothing of these.

    Raises:
        UnsupportedError: something in it cannot be done; arrays of a program for several devices are frozen.
        ShapeError: an array is of another type than it was lowered for, or is donated.
        CompileError: a step of the pipeline failed.

    >>> import jax
    >>> lowered = jax.jit(lambda x: {"half": x / 2}).lower(jax.ShapeDtypeStruct((2,), "float32"))
    >>> sx.interop.jax.from_lowered(lowered)(np.array([1, 2], np.float32))
    {'half': Array([0.5, 1. ], dtype=float32)}
    """
    module, callbacks = bind_callbacks(lowered._lowering.stablehlo(), lowered._lowering.compile_args["host_callbacks"])
    interface = interface_of(lowered)
    if freeze:
        module, interface = _frozen(module, interface, freeze)
    executable = compile_program(module, options=options, num_partitions=_partitions(module))
    release_with(executable, callbacks)
    details = lowered._lowering.compile_args
    declared = details["out_shardings"]
    known = (*details["in_shardings"], *declared, *details.get("intermediate_shardings", ()))
    return JaxProgram(executable, interface, returns, _mesh(executable, known, declared))


def _frozen(module: Any, interface: Interface, arrays: Mapping[int, Any]) -> tuple[Any, Interface]:
    """Return the module with constants for leaves of the arguments, and the interface of what is left."""
    if _partitions(module) is None:
        raise UnsupportedError(
            f"{interface.name}: a program for several devices has no frozen arguments", hint="without freeze="
        )
    first = len(interface.constants)
    places = {first + leaf: array for leaf, array in arrays.items()}
    arguments = [each for each in main_of(module).regions[0].blocks[0].arguments if not is_token(each.type)]
    constants = {
        number: to_host(places[leaf], BY_MLIR[str(arguments[number].type.element_type)].dtype)
        for number, leaf in enumerate(interface.kept)
        if leaf in places
    }
    kept = tuple(leaf for leaf in interface.kept if leaf not in places)
    return freeze_parameters(module, constants), replace(interface, kept=kept)


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
