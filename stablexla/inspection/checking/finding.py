"""The finding of a check as plain values: the operation, the index, the operands' values there, and iterations."""

from __future__ import annotations

import json
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.display.control_characters import escaped
from stablexla.dialects.element_types import BY_DTYPE
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.places import Place
from stablexla.dialects.value_checks import DIVISION, INDICES, INF, NAN, OVERFLOW, SHIFTS
from stablexla.inspection.comparing.findings import RegionStep, SmallProgram, text_of
from stablexla.inspection.comparing.report import Row, first_line, html_of, lines_of, place_rows, save_arrays

Array = npt.NDArray[Any]
MEANINGS = {
    NAN: "a NaN from operands that are none",
    INF: "an infinity from finite operands",
    OVERFLOW: "an infinity from finite operands",
    DIVISION: "an integer division by zero",
    INDICES: "an index out of range",
    SHIFTS: "a shift by the width of the type or more",
}


@dataclass(frozen=True)
class OperandValue:
    """An operand at the finding.

    Attributes:
        type: element type and shape, as XLA writes them.
        value: its element at the finding's index, where the operation is element-wise; else "".
        summary: the range of its numbers, and how many are NaN or infinite.
    """

    type: str
    value: str
    summary: str

    @staticmethod
    def of(array: Array, index: tuple[int, ...] | None) -> OperandValue:
        """Describe an array; with an index its element there."""
        value = "" if index is None else text_of(array[index if array.shape else ()])
        return OperandValue(type_text(array), value, summary_of(array))

    def __str__(self) -> str:
        return f"{self.type}: {self.value or self.summary}"


@dataclass(frozen=True)
class CheckFinding:
    """The first operation in program order that showed what was checked for.

    Attributes:
        kind: "nan", "inf", "overflow", "division", "indices" or "shifts".
        operation: its name, as `stablehlo.log`.
        text: MLIR's text of it.
        number: which of the checked operations it is, from 1; those of called functions count where they are called.
        place: the line of the user's source.
        iterations: the loops and branches around it, outermost first; iterations are counted from 0.
        type: type of its result; "" where values are not known.
        index: of the first element of the result that shows it; None where that is not known.
        value: that element.
        count, size: how many elements show it, of how many.
        operands: the operands; their elements at the index, or a summary.
        device: the number of the device, of a program for several; else None.
        program: the operation alone, with its operands.
        note: why values are not known, or "".
        constant: text and place of the constant of the program that it comes from; "" of one that the operation made.
    """

    kind: str
    operation: str
    text: str
    number: int
    place: Place
    iterations: tuple[RegionStep, ...] = ()
    type: str = ""
    index: tuple[int, ...] | None = None
    value: str = ""
    count: int = 0
    size: int = 0
    operands: tuple[OperandValue, ...] = ()
    device: int | None = None
    program: SmallProgram | None = field(default=None, repr=False)
    note: str = ""
    constant: str = ""

    @property
    def summary(self) -> str:
        """One line: the operation, what it made, and where."""
        where = f" at {self.place.brief}" if self.place.is_known else ""
        name = self.operation.partition(".")[2]
        if self.constant:
            return f"{name} has {'a NaN' if self.kind == NAN else 'an infinity'} that comes from a constant{where}"
        return f"{name} made {MEANINGS[self.kind]}{where}"

    def rows(self, alone: str = "finding.save(folder) writes it") -> list[Row]:
        """Return the report's lines, each with its label.

        Args:
            alone: where the operation alone is, or how to get it.
        """
        rows: list[Row] = [("operation", first_line(self.text)), *place_rows(self.place)]
        rows += [("in", f"{step.what} of {step.operation} at {step.place}") for step in reversed(self.iterations)]
        if self.constant:
            rows.append(("constant", self.constant))
        if self.device is not None:
            rows.append(("device", str(self.device)))
        if self.index is not None:
            at = f"[{','.join(map(str, self.index))}] of " if self.index else ""
            rows.append(("result", f"{at}{self.type}: {self.value}, {self.count} of {self.size} elements"))
        rows += [(f"operand {i}", str(operand)) for i, operand in enumerate(self.operands)]
        if self.program is not None:
            rows.append(("smallest program", f"1 operation; {alone}"))
        if self.note:
            rows.append(("note", self.note))
        return rows

    def __str__(self) -> str:
        return self.report()

    def report(self, alone: str = "finding.save(folder) writes it") -> str:
        """Return the report as text; `alone` as in `rows`."""
        return escaped("\n".join(line.rstrip() for line in lines_of(self.summary, self.rows(alone))))

    def __repr__(self) -> str:
        return f"CheckFinding({self.kind!r}: {self.summary})"

    def _repr_html_(self) -> str:
        return html_of(self.summary, self.rows())

    def as_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps({"kind": self.kind, "summary": self.summary, "rows": self.rows()}, indent=2)

    def save(self, folder: str | Path) -> Path | None:
        """Write the operation alone and its operands: `program.mlir`, `inputs.npz` and `README.txt`.

        Returns:
            The program's path; None where the operands' values are not known.
        """
        if self.program is None:
            return None
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "program.mlir"
        path.write_text(self.program.text)
        save_arrays(folder / "inputs.npz", self.program.arguments)
        again = f"stablexla-run {path.absolute()} --inputs={(folder / 'inputs.npz').absolute()} --check={self.kind}"
        (folder / "README.txt").write_text(
            f"The operation alone, with the operands that it had.\n\n  {again}\n\n{self}\n"
        )
        return path


def type_text(array: Array) -> str:
    """Return an array's element type and shape, as XLA writes them."""
    return f"{BY_DTYPE[array.dtype].name}[{','.join(map(str, array.shape))}]"


def summary_of(array: Array) -> str:
    """Return the range of an array's finite numbers, and how many are none."""
    if array.size < 2:
        return text_of(array.reshape(-1)[0]) if array.size else "no elements"
    wide = _wide(array)
    finite, of = wide[np.isfinite(wide)], "magnitudes " if wide.dtype.kind == "c" else ""
    magnitude = np.abs(finite) if of else finite
    said = [f"{of}from {text_of(magnitude.min())} to {text_of(magnitude.max())}"] if finite.size else []
    counts = {"NaN": np.isnan(wide).sum(), "infinite": np.isinf(wide).sum()}
    return ", ".join([*said, *(f"{count} {name}" for name, count in counts.items() if count)])


def has(kind: str, array: Any) -> bool:
    """Return whether an array holds a NaN, or an infinity."""
    wide = _wide(np.asarray(array))
    return bool((np.isnan(wide) if kind == NAN else np.isinf(wide)).any())


def _wide(array: Array) -> Array:
    """Return an array in a type of numpy's own."""
    return array if array.dtype.isbuiltin == 1 else array.astype(np.float64)
