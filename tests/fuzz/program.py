"""A StableHLO program as text that can be taken apart: parameters, one statement for each operation of @main, results.

It knows nothing of where the text came from: generated, shrunk or read from the corpus.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.dialects.contexts import stablehlo_context
from stablexla.dialects.element_types import BY_MLIR, ElementType

Arrays = list[np.ndarray]
Dims = tuple[int, ...]
NAME = re.compile(r"%[A-Za-z_0-9]+(?:#\d+)?")
_START = re.compile(r'\s*(?:%[\w]+(?::\d+)?(?:, %[\w]+)* = |return |"?[a-z_]+\.[a-z_]|func\.|call )')
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(.+)>")
_OPERATION = re.compile(r"(?:stablehlo|chlo|func)\.(\w+)")


def tensor(shape: Dims, element: str) -> str:
    """The type's spelling."""
    return f"tensor<{''.join(f'{d}x' for d in shape)}{element}>"


@dataclass(frozen=True)
class Value:
    """A value of a program: its name, shape and element type (as MLIR spells it)."""

    name: str
    shape: Dims
    element: str

    @staticmethod
    def of(name: str, type_: str) -> Value:
        found = _TENSOR.fullmatch(type_)
        assert found is not None, type_
        return Value(name, tuple(int(d) for d in found[1].split("x")[:-1]), found[2])

    @property
    def type(self) -> str:
        return tensor(self.shape, self.element)

    @property
    def element_type(self) -> ElementType:
        return BY_MLIR[self.element]

    @property
    def is_complex(self) -> bool:
        return self.element.startswith("complex")

    @property
    def is_float(self) -> bool:
        return self.element_type.is_float


@dataclass(frozen=True)
class Statement:
    """An operation at the top of @main with whatever its regions hold."""

    text: str
    results: tuple[Value, ...]

    @cached_property
    def operation(self) -> str:
        """The operation's name: `add`, `while` ..."""
        found = _OPERATION.search(self.text)
        assert found is not None, self.text
        return found[1]

    @cached_property
    def operations(self) -> frozenset[str]:
        """Names of all operations in it, those of its regions too."""
        return frozenset(_OPERATION.findall(self.text))

    @cached_property
    def names(self) -> frozenset[str]:
        """All values that it speaks of."""
        return frozenset(NAME.findall(self.text))

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """What its first line reads, in order, a value that is read twice twice."""
        own = {r.name.partition("#")[0] for r in self.results}
        return tuple(n for n in NAME.findall(self.text.partition("\n")[0]) if n.partition(":")[0] not in own)

    def reads(self, known: Iterable[str]) -> list[str]:
        """Which of the `known` values it reads, in their order."""
        own = {r.name for r in self.results}
        return [name for name in known if name in self.names and name not in own]


@dataclass(frozen=True)
class Program:
    """One function; results are names of parameters or statements' results."""

    parameters: tuple[Value, ...]
    statements: tuple[Statement, ...]
    returns: tuple[str, ...]

    @cached_property
    def values(self) -> dict[str, Value]:
        """Everything that can be returned."""
        return {v.name: v for v in (*self.parameters, *(r for s in self.statements for r in s.results))}

    @cached_property
    def text(self) -> str:
        """The module."""
        return module_text(self.parameters, [s.text for s in self.statements], [self.values[n] for n in self.returns])

    @property
    def size(self) -> int:
        """Operations, those of regions counted too."""
        return sum(len(re.findall(r" = ", s.text)) for s in self.statements)

    def returning(self, names: Sequence[str]) -> Program:
        return replace(self, returns=tuple(names))

    def pruned(self) -> Program:
        """Without statements and parameters that no result needs."""
        needed, kept = set(self.returns), []
        for statement in reversed(self.statements):
            if any(r.name in needed for r in statement.results):
                kept.append(statement)
                needed |= statement.names
        left = tuple(p for p in self.parameters if p.name in needed)
        return Program(left, tuple(reversed(kept)), self.returns)

    @staticmethod
    def parse(text: str) -> Program:
        """The program of a module's text.

        Raises:
            MLIRError: it is no valid module.
        """
        module = ir.Module.parse(text, stablehlo_context())
        module.operation.verify()
        main = module.body.operations[0]
        block = main.regions[0].blocks[0]
        chunks = list(_statements(_body(text)))
        operations = list(block.operations)
        assert len(chunks) == len(operations), "statements are not one to a line"
        head = text[text.index("@main(") + 6 : text.index(") -> ")]
        names = re.findall(r"%\w+", head)
        parameters = tuple(Value.of(n, str(a.type)) for n, a in zip(names, block.arguments, strict=True))
        statements = tuple(
            Statement(chunk, tuple(_results(chunk, [str(r.type) for r in op.results])))
            for chunk, op in zip(chunks[:-1], operations[:-1], strict=True)
        )
        returns = NAME.findall(chunks[-1].partition(" : ")[0])
        return Program(parameters, statements, tuple(returns))


def module_text(parameters: Sequence[Value], lines: Sequence[str], results: Sequence[Value]) -> str:
    inputs = ", ".join(f"{v.name}: {v.type}" for v in parameters)
    types = ", ".join(v.type for v in results)
    names = ", ".join(v.name for v in results)
    body = "\n".join(lines)
    return f"func.func public @main({inputs}) -> ({types}) {{\n{body}\nreturn {names} : {types}\n}}\n"


def _body(text: str) -> list[str]:
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if "@main(" in line)
    end = max(i for i, line in enumerate(lines) if re.match(r"\s*return ", line))
    return lines[start + 1 : end + 1]


def _statements(lines: Sequence[str]) -> Iterable[str]:
    """Lines put together where braces are open, or where a line does not begin an operation."""
    held: list[str] = []
    depth = 0
    for line in lines:
        if not depth and held and _START.match(line):
            yield "\n".join(held)
            held = []
        if line.strip():
            held.append(line)
        depth += line.count("{") - line.count("}")
    yield "\n".join(held)


def _results(chunk: str, types: Sequence[str]) -> list[Value]:
    head = chunk.partition(" = ")[0].strip()
    if not types:
        return []
    if len(types) == 1:
        return [Value.of(head.partition(":")[0], types[0])]
    name = head.partition(":")[0]
    return [Value.of(f"{name}#{i}", t) for i, t in enumerate(types)]


# ---- programs with their arguments as files --------------------------------------------------------------------------


def write_file(path: Path, program: Program, arguments: Sequence[np.ndarray], notes: Sequence[str]) -> None:
    """The program, what is known of it as comments, and its arguments as bytes in hexadecimal."""
    head = [f"// {note}" for note in notes]
    held = [f"// argument: {np.ascontiguousarray(a).tobytes().hex()}" for a in arguments]
    path.write_text("\n".join([*head, program.text.rstrip("\n"), *held]) + "\n")


def read_file(path: Path) -> tuple[Program, Arrays, list[str]]:
    """What `write_file` wrote; the notes without their slashes."""
    lines = path.read_text().splitlines()
    comments = [line[3:] for line in lines if line.startswith("// ")]
    program = Program.parse("\n".join(line for line in lines if not line.startswith("//")))
    raw = [bytes.fromhex(c.removeprefix("argument:").strip()) for c in comments if c.startswith("argument:")]
    arguments = [
        np.frombuffer(data, v.element_type.dtype, prod(v.shape)).reshape(v.shape)
        if prod(v.shape)
        else np.zeros(v.shape, v.element_type.dtype)
        for v, data in zip(program.parameters, raw, strict=True)
    ]
    return program, arguments, [c for c in comments if not c.startswith("argument:")]
