"""Checks of pass options, and of the nesting of passes, on which MLIR would abort the process.

The wheels' MLIR is built with assertions: most wrong values are errors, these are aborts. `tests/regression/` has a
case for each.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable

from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.pipeline.pipelines import Element, split


@dataclass(frozen=True)
class Check:
    """A constraint on an option's value.

    Attributes:
        passes: for which passes, a regular expression.
        option: the option's name.
        holds: whether a value is good.
        wanted: the constraint in words.
    """

    passes: str
    option: str
    holds: Callable[[str], bool]
    wanted: str


def _numbers(low: int, high: int) -> Callable[[str], bool]:
    """Return a predicate that a list of numbers is within bounds; MLIR itself refuses other texts."""

    def holds(value: str) -> bool:
        return all(low <= int(word) <= high for word in value.split(",") if re.fullmatch(r"\s*[+-]?\d+\s*", word))

    return holds


def _no_gaps(value: str) -> bool:
    """Whether no item of a comma-separated list is empty."""
    return not value or all(part.strip() for part in value.split(","))


def _one_of(*words: str) -> Callable[[str], bool]:
    return lambda value: value in words


FORMATS = ("offload", "llvm", "assembly", "isa", "binary", "bin", "fatbinary", "fatbin")
HEURISTICS = ("bottom-up", "top-down", "bottom-up-from-terminators", "fuzzer")
ATTACH = "(nvvm|rocdl|xevm)-attach-target"
CHECKS = (
    Check("affine-loop-tile", "tile-sizes", _numbers(1, 1 << 31), "numbers from 1 on"),
    Check("affine-loop-unroll-jam", "unroll-jam-factor", _numbers(1, 1 << 31), "a number from 1 on"),
    Check(".*-to-(llvm|nvvm|rocdl).*", "index-bitwidth", _numbers(0, 64), "a number of bits up to 64"),
    Check("gpu-module-to-binary", "format", _one_of(*FORMATS), f"one of {', '.join(FORMATS)}"),
    Check("one-shot-bufferize", "analysis-heuristic", _one_of(*HEURISTICS), f"one of {', '.join(HEURISTICS)}"),
    Check("composite-fixed-point-pass", "max-iterations", _numbers(1, 1 << 31), "a number from 1 on"),
    Check("stablehlo-refine-arguments", "types", _no_gaps, "a type for each parameter"),
    Check(ATTACH, "O", _numbers(0, 3), "a number from 0 to 3"),
    Check(ATTACH, "chip", bool, "the name of a chip"),
    Check(ATTACH, "triple", bool, "a target triple"),
    Check("rocdl-attach-target", "abi", _one_of("400", "500", "600"), "one of 400, 500, 600"),
)
ON_MODULES = (
    *("convert-to-llvm", "convert-to-emitc", "strip-func-quant-types"),
    *("convert-func-to-spirv", "convert-scf-to-spirv", "convert-tensor-to-spirv"),
    *("sdy-import-pipeline", "sdy-export-pipeline", "sdy-propagation-pipeline"),
)
"""Passes that run on a whole module alone; MLIR checks that too late."""

_OPTION = re.compile(r"""([\w-]+)(?:=((?:[^\s'"{]|'[^']*'|"[^"]*"|\{[^}]*\})*))?""")


def check_elements(elements: Iterable[Element], anchor: str = "builtin.module") -> None:
    """Refuse elements on which MLIR would abort the process.

    Raises:
        CompileError: the pass, the option and what it has to be.
    """
    for element in elements:
        _check(element.text, anchor)


@functools.lru_cache(maxsize=512)
def _check(text: str, anchor: str) -> None:
    name = Element(text).name
    inside = text[len(name) :].strip()
    if inside.startswith("("):
        check_elements(split(inside[1:-1]), name)
    elif name in ON_MODULES and anchor != "builtin.module":
        raise CompileError(f"{name} runs on whole modules, not on {anchor}", hint=f"builtin.module({text})")
    elif inside:
        _check_options(name, inside)


def _check_options(name: str, inside: str) -> None:
    for option, value in _OPTION.findall(inside.strip("{}")):
        for check in CHECKS:
            if check.option == option and re.fullmatch(check.passes, name) and not check.holds(value.strip("'\"")):
                raise CompileError(f"{name}: {option} must be {check.wanted}, not {value!r}")
