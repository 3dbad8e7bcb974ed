"""IR printing before and after passes on standard error, as `mlir-opt` does it, and timing of passes."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import field
from time import perf_counter
from typing import Any

from stablexla.dialects.held_arrays import short_text
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.pipeline.pipelines import Element, Step


@dataclass(frozen=True)
class Form:
    """Printing flags of a module.

    Attributes:
        debug_info: with locations.
        generic: in the generic form of operations.
        elide_above: constants of more elements than that are left out; None keeps all.
    """

    debug_info: bool = False
    generic: bool = False
    elide_above: int | None = None

    def text(self, module: Any) -> str:
        """Print the module, with a line break at its end."""
        options = {"enable_debug_info": self.debug_info, "print_generic_op_form": self.generic}
        return short_text(module, self.elide_above, **options) + "\n"


@dataclass(frozen=True)
class Printing:
    """Selection of the passes around which the IR is printed; a pass is named as in a pipeline, without options.

    Attributes:
        before, after: names of passes.
        before_all, after_all: around all of them.
        after_change: after those that changed it, of the ones that would be printed after, or of all.
        after_failure: after one that failed.
        form: how.
    """

    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    before_all: bool = False
    after_all: bool = False
    after_change: bool = False
    after_failure: bool = False
    form: Form = Form()

    @property
    def is_any(self) -> bool:
        """Whether anything is printed."""
        return bool(
            self.before or self.after or self.before_all or self.after_all or self.after_change or self.after_failure
        )

    def prints_before(self, element: Element) -> bool:
        return self.before_all or bool(self.before & set(pass_names(element)))

    def prints_after(self, element: Element) -> bool:
        if self.after_all or (self.after_change and not self.after):
            return True
        return bool(self.after & set(pass_names(element)))


def pass_names(element: Element) -> list[str]:
    """Return the name of a pass without the nests around it, and for an unregistered function also its own name.

    >>> pass_names(Element("func.func(scf.for(cse))"))
    ['cse']
    """
    (part,) = element.parts[:1] or (element,)
    inner = part
    while "(" in inner.text[len(inner.name) :].split("{")[0]:
        inner = Element(inner.text[len(inner.name) + 1 : -1].strip())
    label = inner.options.get("function", "") if inner.is_python else ""
    return [inner.name, *filter(None, [label])]


@dataclass
class Printer:
    """Prints the IR around the passes of one run."""

    printing: Printing
    title: str = ""
    _hash: str = field(default="", repr=False)

    def before(self, step: Step, element: Element, module: Any) -> None:
        if self.printing.after_change:
            self._hash = self._digest(module)
        if self.printing.prints_before(element):
            self._print("Before", step, element, module)

    def after(self, step: Step, element: Element, module: Any) -> None:
        if not self.printing.prints_after(element):
            return
        if self.printing.after_change and self._digest(module) == self._hash:
            return
        self._print("After", step, element, module)

    def failed(self, step: Step, element: Element, module: Any) -> None:
        if self.printing.after_failure or self.printing.prints_after(element):
            self._print("After", step, element, module, " Failed")

    def _digest(self, module: Any) -> str:
        return hashlib.sha256(Form().text(module).encode(errors="replace")).hexdigest()

    def _print(self, when: str, step: Step, element: Element, module: Any, what: str = "") -> None:
        where = f"{self.title}: {step.name}" if self.title else step.name
        print(f"// -----// IR Dump {when} {element.text}{what} ({where}) //----- //", file=sys.stderr)
        print(self.printing.form.text(module), file=sys.stderr)


@dataclass
class PassTimes:
    """Seconds by step and pass, in execution order; several runs of one pass are added up."""

    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    start: float = field(default_factory=perf_counter)
    _begun: float = 0.0

    def begin(self) -> None:
        """Start the clock of a pass, or of anything else that is timed."""
        self._begun = perf_counter()

    def end(self, step: str, what: str) -> None:
        """Stop the clock and add the time."""
        self.seconds[step, what] = self.seconds.get((step, what), 0.0) + perf_counter() - self._begun

    def report(self) -> str:
        """Format a table as `mlir-opt --mlir-timing` does, with a row for each pass below its step."""
        total = perf_counter() - self.start
        rows = []
        for step in dict.fromkeys(step for step, _ in self.seconds):
            inside = {what: seconds for (own, what), seconds in self.seconds.items() if own == step}
            rows.append(self._row(sum(inside.values()), total, step))
            rows += [self._row(seconds, total, f"  {what}") for what, seconds in inside.items() if what]
        rest = total - sum(self.seconds.values())
        line = f"===-{'-' * 73}-==="
        head = [line, "... Execution time report ...".center(79).rstrip(), line]
        head += [f"  Total Execution Time: {total:.4f} seconds", "", "  ----Wall Time----  ----Name----"]
        return "\n".join([*head, *rows, self._row(rest, total, "Rest"), self._row(total, total, "Total")])

    def _row(self, seconds: float, total: float, name: str) -> str:
        return f"  {seconds:8.4f} ({100 * seconds / total:5.1f}%)  {name}"
