"""Kernels that are kept: a kernel that any program has had before is neither emitted nor compiled again.

A kernel is known by a digest of all that its code depends on, and its functions are named by it. The library has an
entry for the digest, a `KeptKernel`, and the object files that this names. A file may hold other kernels, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

import mlir.ir as ir
from mlir.dialects import func

from stablexla.dialects.choices import active_choices
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import active_rules
from stablexla.dialects.symbols import functions_of
from stablexla.lowering.support.kernels import combiner_reference
from stablexla.targets.codegen.calls import IMPL, KernelCall
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.grouping.outline import text_of
from stablexla.targets.llvm.code_llvm import key_of_second_llvm
from stablexla.targets.llvm.library import Library, digest_of
from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.llvm.split_module import Symbol
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime.saved_code import undefined_symbols


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
    text, names = text_of(kernel.func), [kernel.name]
    reference = combiner_reference(kernel.func)
    if reference is not None:
        names.append(ir.FlatSymbolRefAttr(reference.function).value)
        text += text_of(functions[names[1]])
    for number, name in enumerate(names):
        text = text.replace(f"@{name}", f"@{number}")
    if text.count("@") != 2 * len(names) - 1:
        return None
    machine = (target, cpu, active_choices(), key_of_second_llvm())
    return digest_of(text, sorted(kernel.constants), sorted(kernel.lasting), *machine)


@dataclass(frozen=True)
class KeptKernel:
    """A kernel's entry in the library.

    Attributes:
        call: its calling convention, a `KernelCall`, as text.
        functions: types of the functions of its phases by their names, as text.
        files: digests of object files, each behind those that it calls; the last has the functions.
        weight: how many operations on buffers it has.
    """

    call: str
    functions: dict[str, str]
    files: list[str]
    weight: int

    @staticmethod
    def find(library: Library, digest: str) -> KeptKernel | None:
        """Return a kernel's entry; None if there is none that can be read."""
        try:
            return KeptKernel(**json.loads(library.find(digest) or b"null"))
        except (ValueError, TypeError):
            return None

    def declare(self, kernel: Kernel) -> bool:
        """Declare the functions for the kernel's calls; return whether the entry can be read."""
        with kernel.func.context, ir.Location.unknown(), ir.InsertionPoint(kernel.func):
            try:
                call = ir.Attribute.parse(self.call)
                types = {name: ir.Type.parse(type_) for name, type_ in self.functions.items()}
            except (ir.MLIRError, TypeError, AttributeError):
                return False
            for name, type_ in types.items():
                func.FuncOp(name, type_, visibility="private")
            kernel.func.attributes[IMPL] = call
        return True


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
    """What has to be known of a program's parts to keep their kernels.

    Attributes:
        homes: for each function the number of its part, or its digest in the library.
        parts: for each part its kernels.
        calls: for each kernel's digest the text of its calling convention, and the types of its functions.
    """

    homes: dict[str, int | str] = field(default_factory=dict)
    parts: dict[int, Sequence[TakenKernel]] = field(default_factory=dict)
    calls: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)

    def add_part(self, number: int, kernels: Sequence[TakenKernel]) -> None:
        """Note the kernels of a part, by the number of its job."""
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
        """Keep the kernels of all parts, whose object files these are by number."""
        files: dict[int, list[str]] = {}
        for number, kernels in self.parts.items():
            needed: dict[str, None] = {}
            for home in (self.homes[name] for name in undefined_symbols(made[number]) if name in self.homes):
                needed |= dict.fromkeys([home] if isinstance(home, str) else files[home])
            digest = hashlib.sha256(made[number]).hexdigest()
            files[number] = [*needed, digest]
            library.put(digest, made[number])
            for kernel in kernels:
                if kernel.digest in self.calls:
                    entry = KeptKernel(*self.calls[kernel.digest], files[number], kernel.weight)
                    library.put(kernel.digest, json.dumps(asdict(entry)).encode())
