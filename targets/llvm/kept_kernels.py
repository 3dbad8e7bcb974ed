"""Kernels that are kept: a kernel that any program has had before is neither emitted nor compiled again.

A kernel is known by a digest of all that its code depends on, and its functions are named by it. The library has an
entry for the digest, a `KeptKernel`, and the object files that this names. A file may hold other kernels, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import Any

import mlir.ir as ir
from mlir.dialects import func

from stablexla.dialects.choices import active_choices
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import active_rules
from stablexla.dialects.symbols import functions_of
from stablexla.lowering.support.kernels import combiner_reference
from stablexla.targets.codegen.calls import IMPL, KernelCall
from stablexla.targets.codegen.kernel import ELSEWHERE, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.grouping.outline import outlined_text, text_of
from stablexla.targets.llvm.code_llvm import key_of_second_llvm
from stablexla.targets.llvm.library import Library, digest_of
from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.llvm.split_module import Symbol
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import undefined_symbols


def are_kept(cpu: CpuOptions) -> bool:
    """Return whether kernels of the compilation that is running are kept, and looked for.

    They are not where a function of the user's takes part, nor in runs under guard, which are for finding faults.
    """
    wanted = knobs.kernel_cache != "off" if knobs.kept_kernels is None else knobs.kept_kernels
    return wanted and not cpu.guard and not active_rules()


def digest_of_kernel(kernel: Kernel, functions: Mapping[str, Any], target: CpuTarget, cpu: CpuOptions) -> str | None:
    """Return a digest of all that the kernel's code depends on; None where it refers to other parts of the program.

    Args:
        functions: those of the module, by name.
    """
    text = outlined_text(kernel.func)
    references = 0
    reference = combiner_reference(kernel.func)
    if reference is not None:
        name = ir.FlatSymbolRefAttr(reference.function).value
        text, references = (text + text_of(functions[name])).replace(f"@{name}", "@combiner"), 2
    if text.count("@") != 1 + references:
        return None
    machine = (target, cpu, active_choices(), key_of_second_llvm())
    return digest_of(text, sorted(kernel.constants), sorted(kernel.lasting), *machine)


@dataclass(frozen=True)
class KeptKernel:
    """A kernel whose code is in a part that is kept.

    Attributes:
        call: its calling convention, a `KernelCall`, as text.
        functions: types of the functions of its phases by their names, as text.
        weight: how many operations on buffers it has.
    """

    call: str
    functions: dict[str, str]
    weight: int

    def declare(self, kernel: Kernel) -> bool:
        """Declare the functions for the kernel's calls; return whether the texts can be parsed."""
        with kernel.func.context, ir.Location.unknown(), ir.InsertionPoint(kernel.func):
            try:
                call = ir.Attribute.parse(self.call)
                types = {name: ir.Type.parse(type_) for name, type_ in self.functions.items()}
            except (ir.MLIRError, TypeError, AttributeError):
                return False
            for name, type_ in types.items():
                func.FuncOp(name, type_, visibility="private").attributes[ELSEWHERE] = ir.UnitAttr.get()
            kernel.func.attributes[IMPL] = call
        return True


@dataclass(frozen=True)
class KeptPart:
    """An entry of the library: an object file with kernels. It has the digest of its code, and those of its kernels.

    Attributes:
        digest: of the code.
        library: digests of the library's functions that it calls.
        parts: digests of the parts that it calls, each behind those that it calls itself.
        kernels: its kernels by their digests.
        code: the object file.
    """

    digest: str
    library: list[str]
    parts: list[str]
    kernels: dict[str, KeptKernel]
    code: bytes

    def entry(self) -> bytes:
        """Return the entry's bytes: a line of JSON, and the code."""
        about = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "code"}
        about["kernels"] = {digest: vars(kernel) for digest, kernel in self.kernels.items()}
        return json.dumps(about).encode() + b"\n" + self.code

    @staticmethod
    def find(library: Library, digest: str) -> KeptPart | None:
        """Return a part by its digest or by that of one of its kernels; None if there is none that can be read."""
        line, _, code = (library.find(digest) or b"").partition(b"\n")
        try:
            about = json.loads(line)
            about["kernels"] = {name: KeptKernel(**kernel) for name, kernel in about["kernels"].items()}
            return KeptPart(**about, code=code)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


@dataclass(frozen=True)
class TakenKernel:
    """A kernel whose functions are taken out of the module.

    Attributes:
        symbols: the functions, shared ones that were emitted for it among them.
        digest: the kernel's; None if it is not kept.
    """

    symbols: Sequence[Symbol]
    digest: str | None = None

    @property
    def weight(self) -> int:
        """Operations on buffers."""
        return sum(symbol.weight for symbol in self.symbols)


@dataclass
class Keeping:
    """Bookkeeping of a program's parts, from which entries for their kernels are made.

    Attributes:
        homes: for each function the number of its part, or its digest in the library.
        parts: for each part its kernels, by the number of its job.
        calls: for each kernel's digest the text of its calling convention, and the types of its functions.
    """

    homes: dict[str, int | str] = field(default_factory=dict)
    parts: dict[int, Sequence[TakenKernel]] = field(default_factory=dict)
    calls: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)

    def add_part(self, number: int, kernels: Sequence[TakenKernel]) -> None:
        """Note the kernels of a part."""
        self.homes |= {symbol.name: number for kernel in kernels for symbol in kernel.symbols}
        self.parts[number] = kernels

    def note_calls(self, module: ir.Module, kernels: Sequence[Kernel]) -> None:
        """Note how main calls kernels that were emitted."""
        functions = functions_of(module)
        for kernel in kernels:
            if kernel.digest is not None:
                names = [phase.function for phase in KernelCall.of(kernel.func.operation).phases]
                types = {name: str(ir.TypeAttr(functions[name].attributes["function_type"]).value) for name in names}
                self.calls[kernel.digest] = (str(kernel.func.attributes[IMPL]), types)

    def keep(self, library: Library, made: Sequence[bytes]) -> None:
        """Keep all parts, whose object files these are by number."""
        kept: dict[int, KeptPart] = {}
        for number, taken in self.parts.items() if self.calls else ():
            homes = {self.homes[name] for name in undefined_symbols(made[number]) if name in self.homes}
            called = [kept[home] for home in sorted(home for home in homes if isinstance(home, int))]
            of_library = {home for home in homes if isinstance(home, str)}.union(*(part.library for part in called))
            parts = dict.fromkeys(digest for part in called for digest in (*part.parts, part.digest))
            kernels = {
                kernel.digest: KeptKernel(*self.calls[kernel.digest], kernel.weight)
                for kernel in taken
                if kernel.digest in self.calls
            }
            digest = hashlib.sha256(made[number]).hexdigest()
            kept[number] = part = KeptPart(digest, sorted(of_library), list(parts), kernels, made[number])
            library.put([digest, *kernels], part.entry())
