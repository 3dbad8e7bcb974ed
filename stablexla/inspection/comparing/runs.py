"""A run of one of our programs that returns every value, some operations at a time.

Each part starts from the values of the previous parts, so that nothing is compiled twice; only live values are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jaxlib.mlir.ir as ir
import numpy.typing as npt

from stablexla.dialects.constants import read_constant
from stablexla.inspection.comparing.ways import Compiled
from stablexla.inspection.program import SOURCES, FlatProgram, ProgramOperation
from stablexla.lowering.support.types import is_token
from stablexla.processes.questions import Refusal

Array = npt.NDArray[Any]
Values = dict[Any, Array]
BATCH = 96
"""Operations at most of a part: one that an oracle refuses takes the others of its part along at first."""


class Run:
    """A program that runs in parts.

    Attributes:
        program: the program.
        last: the part that ran last, and its arguments.
    """

    def __init__(self, ours: Compiled, program: FlatProgram, arguments: Sequence[Array]) -> None:
        self.program = program
        self.last: tuple[ir.Module, list[Array]] | None = None
        self._ours = ours
        self._arguments = list(arguments)
        self._held: Values = dict(zip(program.arguments, arguments, strict=True))
        # A token is no value that could be given: such a program always runs from its beginning.
        self._in_parts = not any(is_token(r.type) for u in program.units for r in u.op.results)

    def batches(self, byte_limit: int) -> Iterator[list[ProgramOperation]]:
        """Return the operations to judge, in batches whose values fit into the limit."""
        batch: list[ProgramOperation] = []
        held: set[Any] = set()
        size = 0
        for unit in self.program.units:
            if not unit.is_judged or unit.op.name in SOURCES:
                continue
            own = dict.fromkeys([*unit.reads, *unit.results])
            more = sum(self.program.bytes_of(v) for v in own if v not in held)
            if batch and (size + more > byte_limit or len(batch) == BATCH):
                yield batch
                batch, held, size = [], set(), 0
                more = sum(map(self.program.bytes_of, own))
            batch.append(unit)
            held |= set(own)
            size += more
        if batch:
            yield batch

    def values(self, units: list[ProgramOperation]) -> Values | Refusal:
        """Return the operands and results of operations; later ones than those requested before."""
        wanted = self._to_be_had(units)
        later = self.program.live_at(units[-1].number + 1)
        if self._in_parts:
            wanted |= dict.fromkeys(v for v in later if self._is_made(v))
        results = list(wanted)
        given = self.program.used(results, list(self._held)) if self._in_parts else None
        arguments = self._arguments if given is None else [self._held[v] for v in given]
        module = self.program.returning(results, given=given)
        self.last = module, arguments
        found = self._ours.run(module, arguments)
        if isinstance(found, Refusal):
            return found
        values = self._held | self._constants(units) | dict(zip(results, found, strict=True))
        if self._in_parts:
            needed = {*later, *self.program.arguments}
            self._held = {v: array for v, array in values.items() if v in needed}
        return values

    def _to_be_had(self, units: list[ProgramOperation]) -> dict[Any, None]:
        return dict.fromkeys(v for u in units for v in (*u.reads, *u.results) if self._is_made(v))

    def _is_made(self, value: Any) -> bool:
        made = value in self.program.unit_of and value not in self._held
        return made and not self.program.is_constant(value)

    def _constants(self, units: list[ProgramOperation]) -> Values:
        found = {}
        for value in dict.fromkeys(v for u in units for v in u.reads if self.program.is_constant(v)):
            type_ = self.program.type_of(value)
            found[value] = read_constant(self.program.unit_of[value].op, type_.element, type_.shape)
        return found
