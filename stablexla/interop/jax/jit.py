"""`jit`: JAX traces a function, stablexla runs it, with a program for each signature of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import update_wrapper
from inspect import signature
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeAlias

from stablexla.builder.source import EndingAtUser
from stablexla.dialects.errors import ExecutionError
from stablexla.executable.executable import Executable
from stablexla.interop.jax.arguments import names_of_arguments, not_an_array
from stablexla.interop.jax.arrays import Returns, check_returns, signature_of
from stablexla.interop.jax.inspection import Inspectable, Inspection
from stablexla.interop.jax.program import JaxProgram, from_lowered
from stablexla.interop.jax.required import internals, jax
from stablexla.interop.jax.static import NamedArguments, Names, Numbers, StaticArguments
from stablexla.targets.pipeline.options import CompileOptions

if TYPE_CHECKING:
    from stablexla.inspection.explaining.explanation import Explanation

Key: TypeAlias = tuple[object, object, tuple[object, ...]]


def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    static_argnums: Numbers = None,
    static_argnames: Names = None,
    donate_argnums: Numbers = None,
    donate_argnames: Names = None,
    keep_unused: bool = False,
    freeze: int | str | Sequence[int | str] | None = None,
    options: CompileOptions | None = None,
    returns: Returns = "jax",
) -> Any:
    """Like `jax.jit`: the function is traced by JAX, and compiled and run by stablexla.

    Arguments and results are pytrees of arrays. A call with new types, static values or JAX settings
    compiles once more. Called while JAX traces another function, it becomes a part of that one, as a function
    of `jax.jit` does; so it may be used inside `jax.grad`, `jax.vmap` or another `jit`. With `jax_debug_nans` or
    `jax_debug_infs` a call raises a `FloatingPointError` with the line of the first operation that makes a NaN or an
    infinity.

    Args:
        function: a function that JAX can trace. Without it, `jit` is a decorator with the other arguments.
        static_argnums, static_argnames: arguments that are compiled for by value, by place or by name.
        donate_argnums, donate_argnames: arguments whose memory the results may take; they are deleted by the call.
        keep_unused: whether arguments that the function does not use are parameters of the program.
        freeze: arguments whose arrays are constants of the program, by place or by name: a network's parameters, which
            are packed once for the kernels that read them. A call with other arrays, by identity, compiles once more,
            and all programs are kept with their arrays; those of numpy are taken as they are at the first call.
        options: how to compile.
        returns: "jax" for results as JAX's arrays, on the memory that the program wrote; "numpy" for numpy's.

    Raises:
        StablexlaError: JAX is not installed.
        CompileError: `returns` is another word.
        UnsupportedError: on a call: something in the function cannot be done, or arrays on several devices are frozen.

    >>> import jax.numpy as jnp
    >>> norm = sx.interop.jax.jit(lambda tree: jnp.sqrt(tree["a"] ** 2 + tree["b"] ** 2))
    >>> norm({"a": jnp.array([3.0, 5.0]), "b": jnp.array([4.0, 12.0])})
    Array([ 5., 13.], dtype=float32)
    >>> layer = sx.interop.jax.jit(lambda w, x: x @ w, freeze=0)
    >>> layer(jnp.eye(2), jnp.array([3.0, 4.0])), layer.executable(jnp.eye(2), jnp.ones(2))
    (Array([3., 4.], dtype=float32), Executable('jit__lambda', (f32[2]) -> (f32[2]), target='cpu'))
    """
    settings: dict[str, Any] = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "keep_unused": keep_unused,
    }
    if function is None:
        return lambda f: JitFunction(f, settings, options, returns, freeze)
    return JitFunction(function, settings, options, returns, freeze)


class _Same:
    """An array as a part of a key: equal to itself alone, and kept, so that no other takes its place in memory."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._array is other._array

    def __hash__(self) -> int:
        return id(self._array)


def _identity(leaf: Any) -> object:
    """Return what stands for a constant in a key: Python's numbers by their type and value, whatever else itself."""
    return (type(leaf), leaf) if isinstance(leaf, (bool, int, float, complex)) else _Same(leaf)


class JitFunction(Inspectable):
    """The result of `jit`: a function with a compiled program for each signature."""

    def __init__(
        self,
        function: Callable[..., Any],
        settings: dict[str, Any],
        options: CompileOptions | None,
        returns: Returns,
        freeze: int | str | Sequence[int | str] | None = None,
    ) -> None:
        check_returns(returns)
        self._traced, self._function = jax().jit(function, **settings), function
        self._options, self._returns = options, returns
        static = StaticArguments(function, settings["static_argnums"], settings["static_argnames"])
        self._static = static if static else None
        self._frozen = None if freeze is None else NamedArguments.of(function, freeze)
        # For each state of JAX's settings the programs by signature; and those of the state of the last call.
        self._programs: dict[object, dict[object, JaxProgram]] = {}
        self._last: tuple[object, dict[object, JaxProgram]] = (None, {})
        inside = internals()
        self._array_type, self._no_trace_under_way = inside.Array, inside.no_trace_under_way
        self._trace_context, self._flatten_tree = inside.settings, jax().tree_util.tree_flatten
        self._debug_nans, self._debug_infs = inside.debug_nans, inside.debug_infs
        self._has_meshes = True  # until the first request for JAX's devices, which starts them
        self._name = getattr(function, "__name__", type(function).__name__)
        update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program for these arguments; `executable` returns it."""
        if not self._no_trace_under_way():
            return self._traced(*args, **kwargs)
        settings, programs = self._last
        if settings != (now := self._settings_now()):
            programs = self._programs_for(now)
        types = None
        if not kwargs and self._static is None and self._frozen is None:
            array_type = self._array_type
            # Arrays of JAX alone need no tree.
            types = tuple([a.aval if type(a) is array_type else None for a in args])
            if self._has_meshes:
                types = self._with_meshes(types, args)
            if (program := programs.get(types)) is not None:
                return program.call_arrays(args)
        leaves, key = self._signature(args, kwargs)
        with EndingAtUser():  # errors of the function that is traced are shown as `jax.jit` shows them
            found = programs.get(key) or self._compile(programs, key, leaves, args, kwargs)
        if found is None:
            return self._traced(*args, **kwargs)
        if types is not None and None not in types:
            programs[types] = found
        return found.call_flat(leaves)

    def _settings_now(self) -> object:
        """Return JAX's settings that a program depends on."""
        settings = self._trace_context()
        checks = self._checks()
        return (settings, checks) if checks else settings

    def _checks(self) -> tuple[str, ...]:
        """Return what JAX's settings ask programs to be checked for."""
        nans, infs = self._debug_nans.value, self._debug_infs.value
        return (("nan",) if nans else ()) + (("inf", "constants") if infs else ()) if nans or infs else ()

    def _programs_for(self, settings: object) -> dict[object, JaxProgram]:
        programs = self._programs.setdefault(settings, {})
        self._last = settings, programs
        return programs

    def _signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Key]:
        """Return the leaves of the non-static arguments, and the cache key of their program."""
        static: object = None
        rest, named = args, kwargs
        if self._static is not None:
            rest, named, static = self._static.split(args, kwargs)
        leaves, tree = self._flatten_tree((rest, named))
        array_type = self._array_type
        try:
            types = tuple([leaf.aval if type(leaf) is array_type else signature_of(leaf) for leaf in leaves])
        except TypeError:
            wrong = not_an_array(args, kwargs, leaves, names_of_arguments(self._function, len(args)))
            if not wrong:
                raise
            raise TypeError(f"{self._name}: {wrong}") from None
        if self._frozen is not None:
            types = self._with_identities(types, leaves, self._frozen_leaves(args, tree))
        return leaves, (tree, static, self._with_meshes(types, leaves) if self._has_meshes else types)

    def _frozen_leaves(self, args: tuple[Any, ...], tree: Any) -> list[int]:
        """Return the numbers of the leaves that are constants."""
        assert self._frozen is not None
        positional, named = tree.children()
        skipped = self._static.places(len(args)) if self._static is not None else ()
        places, frozen = [i for i in range(len(args)) if i not in skipped], self._frozen.places(len(args))
        parts = [(place in frozen, part) for place, part in zip(places, positional.children(), strict=True)]
        parts += [(self._frozen.has_name(n), p) for n, p in zip(named.node_data()[1], named.children(), strict=True)]
        flags = [is_frozen for is_frozen, part in parts for _ in range(part.num_leaves)]
        return [number for number, is_frozen in enumerate(flags) if is_frozen]

    def _with_identities(self, types: tuple[Any, ...], leaves: Sequence[Any], frozen: Sequence[int]) -> tuple[Any, ...]:
        """Return the types, with the arrays themselves in the place of those that are constants."""
        made = list(types)
        for number in frozen:
            made[number] = _identity(leaves[number])
        return tuple(made)

    def _with_meshes(self, types: tuple[Any, ...], values: Sequence[Any]) -> tuple[Any, ...]:
        """Return the types, with the shardings of arrays on several devices."""
        self._has_meshes = jax().device_count() > 1
        array_type = self._array_type
        lie = [v.sharding if type(v) is array_type and len(v.sharding.device_set) > 1 else None for v in values]
        return types if lie == [None] * len(lie) else (*types, tuple(lie))

    def _compile(
        self,
        programs: dict[object, JaxProgram],
        key: Key,
        leaves: list[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> JaxProgram | None:
        """Compile a program for a new signature; None where JAX runs without one.

        Signatures that are equal to JAX, such as those of its arrays and of numpy's, share one program.
        """
        if jax().config.jax_disable_jit or any(isinstance(leaf, internals().Tracer) for leaf in leaves):
            return None
        tree, static, _ = key
        types = tuple(map(jax().typeof, leaves))
        frozen = () if self._frozen is None else self._frozen_leaves(args, tree)
        types = self._with_identities(types, leaves, frozen)
        known = tree, static, self._with_meshes(types, leaves) if self._has_meshes else types
        program = programs.get(known)
        if program is None:
            program = from_lowered(
                self.lower(*args, **kwargs),
                options=self._options_now(),
                returns=self._returns,
                freeze={number: leaves[number] for number in frozen},
            )
            programs[known] = program
        return programs.setdefault(key, program)

    def _options_now(self) -> CompileOptions | None:
        """Return the options, with the checks that JAX's settings ask for."""
        checks = self._checks()
        if not checks:
            return self._options
        given = self._options or CompileOptions()
        return replace(given, check=(*(given.check or ()), *checks))

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Return JAX's lowering for these arguments, a `jax.stages.Lowered` for the CPU."""
        return self.trace(*args, **kwargs).lower(lowering_platforms=("cpu",))

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """Return JAX's trace for these arguments, a `jax.stages.Traced`."""
        return self._traced.trace(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return shapes and types of the results, as `jax.eval_shape` does."""
        return self._traced.eval_shape(*args, **kwargs)

    def program(self, *args: Any, **kwargs: Any) -> JaxProgram:
        """Return the compiled program for these arguments."""
        return self._program(args, kwargs)[0]

    def _program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[JaxProgram, list[Any]]:
        """Return the compiled program for these arguments, and the leaves that it takes."""
        programs = self._programs_for(self._settings_now())
        leaves, key = self._signature(args, kwargs)
        with EndingAtUser():  # errors of the function that is traced are shown as `jax.jit` shows them
            found = programs.get(key) or self._compile(programs, key, leaves, args, kwargs)
        if found is None:
            raise ExecutionError(f"{self._name}: JAX's jax_disable_jit is on, or an argument stands for a traced value")
        return found, leaves

    def executable(self, *args: Any, **kwargs: Any) -> Executable:
        """Return the executable for these arguments: its IR at every stage, its kernels."""
        return self.program(*args, **kwargs).executable

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Explain each operation of the program for these arguments: its kernel, or why it has none.

        `print()` it for tables, `save("page.html")` it for one page with all stages side by side.

        Args:
            args, kwargs: as the function takes them; a `jax.ShapeDtypeStruct` may stand for an array.

        Returns:
            The explanation, as of `Executable.explain`.

        Raises:
            CompileError: the pipeline leaves no kernels, as one of a user may.
            ExecutionError: JAX's `jax_disable_jit` is on.

        >>> import jax.numpy as jnp
        >>> layer = sx.interop.jax.jit(lambda tree, x: jnp.tanh(x @ tree["w"]))
        >>> [kernel.kind for kernel in layer.explain({"w": jnp.ones((4, 5))}, jnp.ones((3, 4))).kernels]
        ['contraction']
        """
        return self.executable(*args, **kwargs).explain()

    def inspect(self, *args: Any, **kwargs: Any) -> Inspection:
        """Return the compiled program with these arguments; its methods take options, as `.profile(runs=3)`."""
        program, leaves = self._program(args, kwargs)
        return program.inspect_flat(leaves)

    def _own_names(self) -> Collection[str]:
        try:
            return signature(self._function).parameters.keys()
        except (TypeError, ValueError):
            return ()

    def clear_cache(self) -> None:
        """Discard the programs."""
        self._programs.clear()
        self._last = None, {}
        self._traced.clear_cache()

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind as a method, as functions do."""
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        count = len({id(program) for programs in self._programs.values() for program in programs.values()})
        return f"<stablexla.interop.jax.jit of {self._name}, {count} program{'' if count == 1 else 's'}>"
