"""Errors of wrong arguments: one line that names the argument by its path in the tree, and never prints a tree."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from stablexla.dialects.element_types import BY_DTYPE
from stablexla.interop.jax.arrays import contents_of, is_key, is_key_type, signature_of
from stablexla.interop.jax.required import internals, jax

Path: TypeAlias = tuple[Any, ...]
# The name of each argument in the error, by the first two keys of its path in (args, kwargs).
Names: TypeAlias = Mapping[str, str]

_OTHER = "arguments of another structure given"


def type_text(value: Any) -> str:
    """Return the type of an array or of JAX's abstract value, as `f32[3,4]`; of something else, as `a str`."""
    if isinstance(value, internals().Ref):
        value = contents_of(value)
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or not isinstance(shape, tuple) or isinstance(value, jax().ShapeDtypeStruct):
        return _article(type(value).__name__)
    known = BY_DTYPE.get(dtype) if isinstance(dtype, np.dtype) else None
    return f"{known.name if known else dtype}[{','.join(map(str, shape))}]"


def fits(leaf: Any, aval: Any) -> bool:
    """Return whether a program's parameter of a type takes an argument; symbolic sizes take any."""
    if isinstance(leaf, jax().ShapeDtypeStruct):
        return False
    if isinstance(leaf, internals().Ref):
        leaf = contents_of(leaf)
    if is_key_type(aval.dtype) or is_key(leaf):
        return is_key(leaf) and leaf.dtype == aval.dtype and _same_shape(leaf.shape, aval.shape)
    if isinstance(leaf, (bool, int, float, complex)) and not isinstance(leaf, np.generic):
        return _same_shape((), aval.shape)
    if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
        leaf = np.asarray(leaf)
    if not _same_shape(leaf.shape, aval.shape) or leaf.dtype == object:
        return False
    return bool(leaf.dtype == aval.dtype or jax().dtypes.canonicalize_dtype(leaf.dtype) == aval.dtype)


def _same_shape(shape: Sequence[int], needed: Sequence[Any]) -> bool:
    return len(shape) == len(needed) and all(a == b for a, b in zip(shape, needed) if isinstance(b, int))


def wrong_leaf(given: Any, avals: Sequence[Any], names: Names) -> str:
    """Describe the first leaf of (args, kwargs) of another type than the program takes; "" where all fit."""
    found = jax().tree_util.tree_flatten_with_path(given)[0]
    wrong = [(path, leaf, aval) for (path, leaf), aval in zip(found, avals, strict=True) if not fits(leaf, aval)]
    if not wrong:
        return ""
    path, leaf, aval = wrong[0]
    others = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return f"{path_text(path, names)}: {type_text(leaf)} given, {type_text(aval)} needed{others}"


def wrong_structure(given: Any, tree: Any, avals: Sequence[Any], names: Names) -> str:
    """Describe the first difference between (args, kwargs) and the structure that the program takes."""
    try:
        return _difference(tree.unflatten(avals), given, (), names) or _OTHER
    except Exception:  # a constructor of the user's that takes nothing but arrays
        return _OTHER


def _difference(needed: Any, given: Any, path: Path, names: Names) -> str:
    want, have = _node(needed), _node(given)
    if want is None and have is None:
        return ""
    if want is None or have is None or want[0] is not have[0]:
        return f"{path_text(path, names)}: {_text(given, have)} given, {_text(needed, want)} needed"
    wanted, came = _children(needed), _children(given)
    said = [f"{path_text((*path, key), names)} is missing" for key in wanted if key not in came]
    said += [f"{path_text((*path, key), names)} is not taken" for key in came if key not in wanted]
    if said:
        return ", ".join(said[:2]) + (f" (and {len(said) - 2} more)" if len(said) > 2 else "")
    for key, child in wanted.items():
        if found := _difference(child, came[key], (*path, key), names):
            return found
    if want[1] != have[1]:
        return f"{path_text(path, names)}: {_text(given, have)} with other static fields given"
    return ""


def _node(value: Any) -> tuple[type, object] | None:
    """Return the type and the static fields of a tree's node; None of a leaf."""
    node: tuple[type, object] | None = jax().tree_util.tree_structure(value, lambda v: v is not value).node_data()
    return node


def _children(value: Any) -> dict[Any, Any]:
    found = jax().tree_util.tree_flatten_with_path(value, lambda v: v is not value)[0]
    return {path[0]: child for path, child in found}


def _text(value: Any, node: object) -> str:
    if value is None:
        return "None"
    return type_text(value) if node is None else _article(type(value).__name__)


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def path_text(path: Path, names: Names) -> str:
    """Return a path in (args, kwargs) as the user writes it, such as `params['dense']['kernel']`."""
    keystr = jax().tree_util.keystr
    if len(path) < 2:
        return "keyword arguments" if path and path[0].idx == 1 else "arguments"
    root = str(keystr(path[:2]))
    return names.get(root, _plain_name(path[:2])) + str(keystr(path[2:]))


def _plain_name(root: Path) -> str:
    key = root[1]
    return f"args[{key.idx}]" if root[0].idx == 0 else str(key.key)


def names_of_parameters(tree: Any, parameters: Mapping[int, str]) -> Names:
    """Return the arguments' names, from those of a program's parameters: JAX names each by its path.

    Args:
        tree: the structure of (args, kwargs).
        parameters: the names by the number of the leaf; unused leaves are no parameters.
    """
    keystr, names = jax().tree_util.keystr, dict[str, str]()
    try:
        paths = [path for path, _ in jax().tree_util.tree_flatten_with_path(tree.unflatten(range(tree.num_leaves)))[0]]
    except Exception:  # a constructor of the user's that takes nothing but arrays
        return {}
    for i, path in enumerate(paths):
        within, name = str(keystr(path[2:])), parameters.get(i, "")
        if name.endswith(within) and len(name) > len(within):
            names.setdefault(str(keystr(path[:2])), name.removesuffix(within))
    return names


def names_of_arguments(function: Callable[..., Any], count: int) -> Names:
    """Return the names of a function's positional arguments, for a call with `count` of them."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return {}
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    named = positional[:count] + [f"{rest}[{i}]" for i in range(count - len(positional))]
    return {f"[0][{i}]": name for i, name in enumerate(named)}


def not_an_array(args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any], names: Names) -> str:
    """Describe the first of the leaves that is no array, of the arguments with static ones; "" where all are."""
    for leaf in leaves:
        try:
            signature_of(leaf)
        except TypeError:
            found = jax().tree_util.tree_flatten_with_path((args, kwargs))[0]
            path = next(path for path, value in found if value is leaf)
            given = _article(type(leaf).__name__)
            return f"{path_text(path, names)}: {given} given, an array or a number needed: not a valid JAX type"
    return ""
