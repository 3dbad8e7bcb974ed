"""The interface of a module that JAX has lowered: trees, types, constants, donated and unused arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.interop.jax.required import jax
from stablexla.lowering.support.context import ALIASING, DONOR
from stablexla.lowering.support.types import is_token
from stablexla.targets.runtime import ArraySpec
from stablexla.targets.signature.signature import main_of


@dataclass(frozen=True)
class Interface:
    """The mapping from a function's arguments to its program's parameters, and from results back.

    Attributes:
        name: the function's.
        in_tree, out_tree: the structure of (args, kwargs) and of the result.
        in_avals: shape and dtype of each of the arguments' leaves; of an exported function they may be symbolic.
        out_avals: JAX's types of the results; of an exported function their shapes may be symbolic.
        kept: which leaves are parameters; constants come before the arguments' leaves.
        constants: arrays that the function closes over and that are no constants of the program.
        donated: which leaves the program may write over.
        captured: arrays that the function closes over and changes (`jax.Ref`); they come after the arguments' leaves.
        changed: for each result the parameter, a `jax.Ref`, whose next contents it is, or None; `()` without such.
    """

    name: str
    in_tree: Any
    out_tree: Any
    in_avals: tuple[Any, ...]
    out_avals: tuple[Any, ...]
    kept: tuple[int, ...]
    constants: tuple[Any, ...] = ()
    donated: frozenset[int] = frozenset()
    captured: tuple[Any, ...] = ()
    changed: tuple[int | None, ...] = ()

    @property
    def has_one_result(self) -> bool:
        """Whether the function returns one array, not a tree."""
        return bool(self.out_tree == jax().tree_util.tree_structure(0))


def interface_of(lowered: Any) -> Interface:
    """Return the interface of `jax.jit(f).lower(...)`."""
    lowering = lowered._lowering
    details = lowering.compile_args
    mutation = details.get("mut")
    captured = () if mutation is None else tuple(mutation.in_mut)
    count = len(lowering.const_args) + lowered.in_tree.num_leaves
    kept = (*sorted(details["kept_var_idx"]), *range(count, count + len(captured)))
    marked = _marked(lowering.stablehlo())
    return Interface(
        str(lowering._name).removeprefix("jit(").removesuffix(")"),
        lowered.in_tree,
        lowered.out_tree,
        tuple(jax().tree_util.tree_leaves(lowered.args_info)),
        tuple(details["global_out_avals"]),
        kept,
        tuple(lowering.const_args),
        frozenset(leaf for leaf, is_donated in zip(kept, marked, strict=True) if is_donated),
        captured,
        () if mutation is None else tuple(mutation.out_mut),
    )


def interface_of_exported(exported: Any, parameters: Sequence[ArraySpec]) -> Interface:
    """Return the interface of `jax.export.export(jax.jit(f))(...)`.

    A module for several platforms takes the number of the one that it runs on before everything else: an s64 where it
    was exported with numbers of 64 bits, else an s32.
    """
    kept = tuple(exported.module_kept_var_idx)
    constants: tuple[Any, ...] = ()
    if len(exported.platforms) > 1:
        constants = (parameters[0].dtype.type(exported.platforms.index("cpu")),)
        kept = (0, *(i + 1 for i in kept))
    in_avals, out_avals = tuple(exported.in_avals), tuple(exported.out_avals)
    return Interface(exported.fun_name, exported.in_tree, exported.out_tree, in_avals, out_avals, kept, constants)


def _marked(module: ir.Module) -> list[bool]:
    """Return for each parameter of `main` whether it is marked as donated."""
    main = main_of(module)
    arguments = list(main.regions[0].blocks[0].arguments)
    if "arg_attrs" not in main.attributes:
        return [False for argument in arguments if not is_token(argument.type)]
    rows = [ir.DictAttr(row) for row in ir.ArrayAttr(main.attributes["arg_attrs"])]
    return [
        ALIASING in row or DONOR in row
        for argument, row in zip(arguments, rows, strict=True)
        if not is_token(argument.type)
    ]
