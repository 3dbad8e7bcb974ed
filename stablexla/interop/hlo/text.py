"""Preprocessing of HLO text: header, elided constants, -0, old opcode names, numbers of devices."""

from __future__ import annotations

import re

from stablexla.dialects.errors import ParseError
from stablexla.interop.text import excerpt

_HEADER = re.compile(r"^(?:.*\*/)?\s*HloModule\b.*", re.MULTILINE)
_COMPUTATION = re.compile(r"(?:\s|//[^\n]*\n|/\*.*?\*/)*+%?[\w.-]++\s*+\([^\n]*\)\s*->", re.DOTALL)
_HEADER_TO_ADD = "HloModule module "
_COUNT = re.compile(r",\s*(?:num_)?(replica|partition)(?:_count|s)=(\d+)")
_LEFT_OUT = re.compile(r"\bconstant\(\s*\{[^()\n]*?\.\.\.")
_FLOATS = re.compile(r"\b(?:f|bf|c)\d\w*\[[\d,]*\](?:\{[^{}]*\})?\s+constant\((?:[^()\"=]+|\([^()]*\))*\)")
_NEGATIVE_ZERO = re.compile(r"(?<![\w.])-0(?![\w.])")
_OLD_NAMES = {"cross-replica-sum": "all-reduce", "generate-token": "after-all"}
_OLD_OPCODE = re.compile(rf"(?<=[\]}}) ])({'|'.join(_OLD_NAMES)})(-start|-done)?(?=\()")


def check_constants(text: str, file: str) -> None:
    """Refuse elided constants: XLA reads their elements as arbitrary ones.

    Raises:
        ParseError: a constant was printed without its elements.
    """
    if found := _LEFT_OUT.search(text):
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - text.rfind("\n", 0, found.start())
        raise ParseError(
            "the elements of this constant were left out when the program was printed" + excerpt(text, line, column),
            file=file,
            line=line,
            column=column,
            hint="XLA_FLAGS=--xla_dump_large_constants, or as_hlo_text(print_large_constants=True)",
        )


def with_header(text: str) -> str:
    """Write a header before computations whose parameters are listed: XLA's parser asks for one there alone.

    >>> with_header("%f (x: f32[]) -> f32[] { ROOT %x = f32[] parameter(0) }")
    'HloModule module %f (x: f32[]) -> f32[] { ROOT %x = f32[] parameter(0) }'
    """
    return _HEADER_TO_ADD + text if _COMPUTATION.match(text) else text


def replace_old_opcodes(text: str) -> str:
    """Replace older opcode names by today's.

    >>> replace_old_opcodes("c = f32[2] cross-replica-sum(x)")
    'c = f32[2] all-reduce(x)'
    """
    return _OLD_OPCODE.sub(lambda found: _OLD_NAMES[found[1]] + (found[2] or ""), text)


def keep_negative_zeros(text: str) -> str:
    """Write negative zeros of constants as `-0.0`: XLA prints `-0`, and reads that as the integer 0.

    >>> keep_negative_zeros("c = f32[2]{0} constant({-0, 1}), metadata={op_name=\\"-0\\"}")
    'c = f32[2]{0} constant({-0.0, 1}), metadata={op_name="-0"}'
    """
    return _FLOATS.sub(lambda constant: _NEGATIVE_ZERO.sub("-0.0", constant[0]), text)


def header_counts(text: str) -> dict[str, int]:
    """Return the replicas and partitions of the header; missing ones are left out.

    >>> header_counts("HloModule m, replica_count=2")
    {'replica': 2}
    """
    header = _HEADER.search(text)
    return {name: int(count) for name, count in _COUNT.findall(header[0] if header else "")}
