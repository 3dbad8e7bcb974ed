"""The C header of a program that `stablexla-compile` made: its functions, and the sizes of its arrays."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Sequence

from stablexla.dialects.element_types import ElementType, element_type
from stablexla.targets.runtime import ArraySpec
from stablexla.targets.signature.interface import Signature
from stablexla.version import VERSION

_WORDS = (
    "alignas alignof and asm auto bool break case catch char class const continue default delete do double else enum "
    "explicit export extern false float for friend goto if inline int long main namespace new not operator or private "
    "protected public register restrict return short signed sizeof static struct switch template this throw true try "
    "typedef typename union unsigned using virtual void volatile while xor"
)
_KEYWORDS = frozenset(_WORDS.split())

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
{constants}
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
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None and name not in _KEYWORDS


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
    names = array_names(parameters, len(signature.parameters), signature.dynamic_parameters, "x")
    made = array_names(results, len(signature.results), signature.dynamic_results, "y")
    typed = [f"const {_declaration(spec, n)}" for spec, n in zip(parameters, names, strict=True)]
    typed += [_declaration(spec, n) for spec, n in zip(results, made, strict=True)]
    constants = [
        f"#define {name.upper()}_{n.upper()}_BYTES {spec.nbytes}"
        for spec, n in zip([*parameters, *results], [*names, *made], strict=True)
    ]
    return _TEMPLATE.format(
        summary=f"{name}: {signature}".replace("*/", "* /"),
        version=VERSION,
        guard=f"{name.upper()}_H",
        upper=name.upper(),
        name=name,
        num_parameters=len(parameters),
        num_results=len(results),
        constants="\n".join(constants),
        typed=",\n    ".join(typed) or "void",
        seed=_SEED.format(name=name) if is_random else "",
    )


def array_names(specs: Sequence[ArraySpec], arrays: int, dynamic: Sequence[Sequence[int]], letter: str) -> list[str]:
    """Return an identifier for each array, and for each dynamic size, which follow the arrays.

    Args:
        specs: the arrays and the sizes.
        arrays: how many of them are arrays.
        dynamic: the dynamic dimensions of each array.
        letter: what the names of arrays without one begin with.
    """
    names: list[str] = []
    for i, spec in enumerate(specs[:arrays]):
        name = identifier(spec.name, f"{letter}{i}")
        names.append(f"{name}_{i}" if name in names else name)
    return names + [f"{names[i]}_size{d}" for i, dimensions in enumerate(dynamic) for d in dimensions]


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
