"""The C header of a program that `stablexla-compile` made: its functions, and the sizes of its arrays."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Sequence
from typing import Any

from stablexla.dialects.element_types import ElementType, element_type
from stablexla.targets.runtime import ArraySpec
from stablexla.targets.signature.interface import Signature
from stablexla.version import VERSION

_WORDS = (
    "alignas alignof and and_eq asm assert auto bitand bitor bool break case catch char char8_t char16_t char32_t "
    "class co_await co_return co_yield compl complex concept const const_cast consteval constexpr constinit "
    "continue decltype default delete do double dynamic_cast else enum errno explicit export extern false float for "
    "friend goto i386 if imaginary inline int int8_t int16_t int32_t int64_t linux long main mutable namespace new "
    "noexcept noreturn not not_eq nullptr operator or or_eq private protected public register reinterpret_cast "
    "requires restrict return short signed size_t sizeof static static_assert static_cast struct switch template "
    "this thread_local throw true try typedef typeid typename typeof typeof_unqual uint8_t uint16_t uint32_t "
    "uint64_t union unix unsigned using virtual void volatile wchar_t while xor xor_eq EOF I NULL"
)
_TAKEN = frozenset(_WORDS.split())
"""Keywords of C and C++, and macros and types that a header of the standard library, or a compiler, may define."""
_MACRO = re.compile(
    r"[A-Z0-9_]+_(BYTES|VERSION|H|NUM_PARAMETERS|NUM_RESULTS)|U?INT[A-Z0-9_]+|SIZE_MAX|PTRDIFF_M(IN|AX)"
)
"""Macros of the header itself and of stdint.h."""

_TEMPLATE = """\
/* {summary}
 * Made by stablexla {version}.
 *
 * Arrays are dense, in row-major order; an element of less than a byte lies in a byte, whose low bits count alone, and
 * pred is true where its byte is not 0. Arguments are aligned to their elements. Results may lie anywhere; they are
 * copied once more where it is at no multiple of 64 bytes. A result may not overlap anything else. Any number of
 * threads may call at once.
 *
 * The functions return 0, or
 *   1  a pointer is NULL
 *   2  an argument is not aligned to its elements
 *   3  the system gives no memory, or no threads
 * The environment variable STABLEXLA_NUM_THREADS says how many threads one call may use; as many as the process may run
 * on by default, and where it is no number, which is said on standard error once. */
#ifndef {guard}
#define {guard}

#include <stdint.h>

#define {upper}_VERSION "{version}"
#define {upper}_NUM_PARAMETERS {num_parameters}
#define {upper}_NUM_RESULTS {num_results}
{sizes}
#ifdef __cplusplus
extern "C" {{
#endif

int {name}({typed});

/* As above: the addresses of all arguments, and of all results. */
int {name}_main(const void* const* arguments, void* const* results);

/* How many threads one call may use; 0, or 1 for a number that cannot be. */
int {name}_use_threads(int count);
{seed}
#ifdef __cplusplus
}}
#endif

#endif
"""
_SEED = """
/* From now on random numbers are those that follow from this number. */
void {name}_seed(uint64_t number);
"""


def is_identifier(name: str) -> bool:
    """Return whether a text is an identifier in C."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None and not (name in _TAKEN or _MACRO.fullmatch(name))


def is_function_name(name: str) -> bool:
    """Return whether a library may define a function of that name: it is in no C library nor in the runtime."""
    return is_identifier(name) and not name.startswith("stablexla") and not hasattr(_libraries_of_c(), name)


def function_name(text: str, default: str) -> str:
    """Return the text as the name of a function; `default` when no valid character remains."""
    name = identifier(text, default)
    while not is_function_name(name):
        name = f"program_{name}" if name.startswith("stablexla") else f"{name}_"
    return name


@functools.cache
def _libraries_of_c() -> ctypes.CDLL:
    """Return libm with libc, under their usual names; elsewhere this process, which has them too."""
    try:
        return ctypes.CDLL("libm.so.6")
    except OSError:
        return ctypes.CDLL(None)


def identifier(text: str, default: str) -> str:
    """Return the text as an identifier in C; `default` when no valid character remains."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")
    name = f"_{name}" if name[:1].isdigit() else name
    return name if is_identifier(name) else f"{name}_" if is_identifier(f"{name}_") and name else default


def header(name: str, signature: Signature, *, is_random: bool) -> str:
    """Return the text of the header for a program whose functions begin with `name`."""
    parameters, results = signature.parameter_specs(), signature.result_specs()
    names, made = array_names(signature)
    typed = [f"const {_declaration(spec, n)}" for spec, n in zip(parameters, names, strict=True)]
    typed += [_declaration(spec, n) for spec, n in zip(results, made, strict=True)]
    return _TEMPLATE.format(
        **words_of(name, signature, (names, made)),
        typed=",\n    ".join(typed) or "void",
        seed=_SEED.format(name=name) if is_random else "",
    )


def words_of(name: str, signature: Signature, names: tuple[list[str], list[str]]) -> dict[str, Any]:
    """Return what all templates of headers have: summary, guard, and the macros of the arrays with these names."""
    upper, specs = name.upper(), [*signature.parameter_specs(), *signature.result_specs()]
    rows = zip(specs, [*names[0], *names[1]], strict=True)
    return {
        "summary": f"{name}: {signature}".replace("*/", "* /").replace("/*", "/ *"),
        "version": VERSION,
        "guard": f"{upper}_H",
        "upper": upper,
        "name": name,
        "num_parameters": len(names[0]),
        "num_results": len(names[1]),
        "sizes": "\n".join(f"#define {upper}_{array.upper()}_BYTES {spec.nbytes}" for spec, array in rows),
    }


def array_names(signature: Signature, taken: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return identifiers for the parameters and for the results, each with those of its dynamic sizes behind.

    No two are alike, in capitals neither: macros have them in capitals.

    Args:
        taken: what no array may be called, in capitals.
    """
    seen = set(taken)
    sides = (
        (signature.parameter_specs(), len(signature.parameters), signature.dynamic_parameters, "x"),
        (signature.result_specs(), len(signature.results), signature.dynamic_results, "y"),
    )
    made: list[list[str]] = []
    for specs, count, dynamic, letter in sides:
        names = [_apart(identifier(spec.name, f"{letter}{i}"), i, seen) for i, spec in enumerate(specs[:count])]
        sizes = [(f"{names[i]}_size{d}", i) for i, dimensions in enumerate(dynamic) for d in dimensions]
        made.append(names + [_apart(size, i, seen) for size, i in sizes])
    return made[0], made[1]


def _apart(name: str, number: int, seen: set[str]) -> str:
    """Return a name that is not among the seen ones, and add it to them in capitals."""
    if name.upper() in seen:
        name = f"{name}_{number}"
    while name.upper() in seen:
        name += "_"
    seen.add(name.upper())
    return name


def _declaration(spec: ArraySpec, name: str) -> str:
    type_ = element_type(spec.dtype)
    extents = ",".join(map(str, spec.shape))
    note = " of pairs" if type_.is_complex else " in 16 bits" if type_.is_float and type_.bits == 16 else ""
    return f"{_c_type(type_)}* {name} /* {type_}[{extents}]{note} */"


def _c_type(type_: ElementType) -> str:
    if type_.is_complex:
        type_ = type_.part
    if type_.name in ("f32", "f64"):
        return {"f32": "float", "f64": "double"}[type_.name]
    bits = max(8, type_.bits)
    return f"{'' if type_.is_signed else 'u'}int{bits}_t"
