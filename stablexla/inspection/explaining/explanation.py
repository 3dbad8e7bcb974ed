"""The result of `Executable.explain`: the fate of each operation, kernels, calls and memory, as values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stablexla.dialects.display.control_characters import escaped
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.inspection.numbering import SourceOperation
from stablexla.inspection.profiling.kernel_costs import Cost
from stablexla.targets.codegen.refusals import Refusal
from stablexla.targets.codegen.schedule import ScheduleNote

if TYPE_CHECKING:
    from stablexla.inspection.profiling.profile import Profile


@dataclass(frozen=True)
class KernelNote:
    """One kernel.

    Attributes:
        name, kind: as in the stage "kernels".
        path: "emitted" when explicit vectors were written for it, "general" when MLIR's own passes made its loops; in
            tables the latter is "fallback", as there is a kind "general".
        items: work items of all its phases, which threads share.
        phases: functions that a call runs one after the other.
        parallel: whether a call has enough of them for several threads.
        cost: bytes and flops of one call.
        calls: numbers of its calls in main, each of which runs all phases; one in a loop stands for all its rounds.
        operations: numbers of the operations of the program that it computes, in any of its calls.
        refusal: why it is on the general path; None on any other.
        functions: those of the phases, on buffers.
        schedule: how its loops are emitted and why so, of reductions.
    """

    name: str
    kind: str
    path: str
    items: int
    phases: int
    parallel: bool
    cost: Cost
    calls: tuple[int, ...]
    operations: tuple[int, ...]
    refusal: Refusal | None = None
    functions: tuple[str, ...] = ()
    schedule: ScheduleNote | None = None


@dataclass(frozen=True)
class BufferNote:
    """The memory of an array while a program runs.

    Attributes:
        role: "parameter", "constant", "result" or "arena".
        number: which parameter, constant or result; 0 for the arena.
        offset: bytes from the start of the arena; 0 for the others.
        bytes: its size.
    """

    role: str
    number: int
    offset: int
    bytes: int

    def __str__(self) -> str:
        return f"arena+{self.offset}" if self.role == "arena" else f"{self.role} {self.number}"


@dataclass(frozen=True)
class CallNote:
    """One call of a kernel in `main`, in the order of the program.

    Attributes:
        number: from 0.
        kernel: name of the kernel.
        depth: the number of loops and branches around it.
        operations: numbers of the operations that it computes.
        reads, writes: the buffers of the arrays that it takes and gives.
    """

    number: int
    kernel: str
    depth: int
    operations: tuple[int, ...]
    reads: tuple[BufferNote, ...]
    writes: tuple[BufferNote, ...]


@dataclass(frozen=True)
class Fate:
    """The fate of an operation: its kernel, or why it has none.

    Attributes:
        what: "kernel", "main", "constant", "view", "inlined", "folded" or "unused".
        text: the same as a sentence.
        calls: numbers of the calls that compute it.
    """

    what: str
    text: str
    calls: tuple[int, ...] = ()


@dataclass(frozen=True)
class CompositeNote:
    """The way of the composites of a name and version, and why."""

    title: str
    way: str
    why: str


@dataclass(frozen=True)
class PartNote:
    """Equal stretches of the program that are compiled once.

    Attributes:
        stretches: for each of them the numbers of its operations.
    """

    stretches: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Explanation:
    """The explanation of a program. `str()` is a summary, `text(all=True)` all tables, `html()` a page with the stages.

    Attributes:
        name, signature, target: the program's.
        operations: those of the program as it was given.
        fates: the fate of each.
        kernels, calls, composites: the compiled program.
        arena_bytes: memory for temporaries in a call.
        constant_bytes: memory for constants, once for the executable.
        stages: the text of each stage, with tags of `numbering.py` in its locations.
        parts: equal parts of the program.
    """

    name: str
    signature: str
    target: str
    operations: tuple[SourceOperation, ...]
    fates: tuple[Fate, ...]
    kernels: tuple[KernelNote, ...]
    calls: tuple[CallNote, ...]
    composites: tuple[CompositeNote, ...]
    arena_bytes: int
    constant_bytes: int
    stages: dict[str, str]
    parts: tuple[PartNote, ...] = ()

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Explanation({self.name!r}: {len(self.operations)} operations, {len(self.kernels)} kernels)"

    def text(self, *, all: bool = False, kernels: str = "") -> str:
        """Return the summary of at most twenty lines; with `all` the tables behind it.

        Args:
            all: adds the tables of operations, kernels, calls and composites.
            kernels: a pattern of names, such as "loop_*": adds the tables with these kernels alone.
        """
        from stablexla.inspection.explaining.explanation_summary import REST, summary_of
        from stablexla.inspection.explaining.explanation_text import text_of

        rest = text_of(self, kernels=kernels or "*") if all or kernels else REST
        return escaped(f"{summary_of(self)}\n{rest}".rstrip())

    def html(self, profile: Profile | None = None) -> str:
        """Return one self-contained page: a click on a line marks its counterparts in all other stages.

        Args:
            profile: of the same program; its times stand beside the kernels.
        """
        from stablexla.inspection.explaining.explanation_page import page_of

        return page_of(self, profile)

    def save(self, path: str | Path, profile: Profile | None = None) -> None:
        """Write `html()` to a file."""
        Path(path).write_text(self.html(profile), encoding="utf-8")

    def _repr_html_(self) -> str:
        from stablexla.inspection.explaining.explanation_page import tables_of

        return tables_of(self)

    def kernel_of(self, call: int) -> Any:
        """Return the kernel of a call."""
        return next(k for k in self.kernels if k.name == self.calls[call].kernel)
