"""Kernels that are kept: a kernel that any program has had before is neither emitted nor compiled again.

A kernel is known by a digest of all that its code depends on, and its functions are named by it. The library has an
entry for the digest, a `KeptKernel`, and the object files that this names. A file may hold other kernels, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import field, fields, replace
from typing import Any

import mlir.ir as ir
from mlir.dialects import func

from stablexla.dialects.choices import active_choices
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import active_rules
from stablexla.dialects.symbols import functions_of, symbol_of
from stablexla.lowering.support.kernels import combiner_reference
from stablexla.targets.codegen.calls import IMPL, KernelCall
from stablexla.targets.codegen.kernel import ELSEWHERE, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.grouping.outline import outlined_text, text_of
from stablexla.targets.llvm.code_llvm import key_of_second_llvm
from stablexla.targets.llvm.forwarded import FORWARDED
from stablexla.targets.llvm.library import Library, digest_of
from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.llvm.split_module import Symbol
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import undefined_symbols

_NO_CODE = -1
"""The number of a part without code, in the place of a job's."""


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
        forwarded: those of the functions that forward their calls, with declarations of what they call, as text.
    """

    call: str
    functions: dict[str, str]
    weight: int
    forwarded: str = ""

    def declare(self, kernel: Kernel, declared: set[str]) -> bool:
        """Declare the functions for the kernel's calls; return whether the texts can be parsed.

        Args:
            declared: names of others that are declared, to which those are added that this kernel needs.
        """
        with kernel.func.context, ir.Location.unknown(), ir.InsertionPoint(kernel.func):
            try:
                call = ir.Attribute.parse(self.call)
                types = {name: ir.Type.parse(type_) for name, type_ in self.functions.items()}
                forwarded = ir.Module.parse(self.forwarded)
            except (ir.MLIRError, TypeError, AttributeError):
                return False
            for view in forwarded.body.operations:
                name = symbol_of(view)
                if types.pop(name, None) is not None:
                    view.operation.clone()
                elif name not in declared:
                    view.operation.clone()
                    declared.add(name)
            for name, type_ in types.items():
                func.FuncOp(name, type_, visibility="private").attributes[ELSEWHERE] = ir.UnitAttr.get()
            kernel.func.attributes[IMPL] = call
        return True


@dataclass(frozen=True)
class KeptPart:
    """An entry of the library: an object file with kernels. It has a digest of its own, and those of its kernels.

    Attributes:
        digest: of the code and the kernels: those that forward their calls are not in it, and need functions of theirs.
        library: digests of the library's functions that it calls.
        parts: digests of the parts that it calls, each behind those that it calls itself.
        kernels: its kernels by their digests.
        code: the object file; empty where all of its kernels forward their calls.
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
        forwarded: names of those of the functions that stay in the module, and become no code.
    """

    symbols: Sequence[Symbol]
    digest: str | None = None
    forwarded: Set[str] = frozenset()

    @property
    def with_code(self) -> list[Symbol]:
        """The functions that become code."""
        return [symbol for symbol in self.symbols if symbol.name not in self.forwarded]

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
        kernels: by their digests, without their weights.
        called: for each kernel's digest what its functions that forward their calls refer to.
    """

    homes: dict[str, int | str] = field(default_factory=dict)
    parts: dict[int, list[TakenKernel]] = field(default_factory=dict)
    kernels: dict[str, KeptKernel] = field(default_factory=dict)
    called: dict[str, set[str]] = field(default_factory=dict)

    def add_part(self, number: int, kernels: list[TakenKernel]) -> None:
        """Note the kernels of a part."""
        self.homes |= {symbol.name: number for kernel in kernels for symbol in kernel.symbols}
        self.parts[number] = kernels

    def add_rest(self, kernels: Sequence[TakenKernel]) -> None:
        """Note kernels that have no code: with those of the last part, if there is one."""
        self.parts.setdefault(next(reversed(self.parts), _NO_CODE), []).extend(kernels)

    def note_calls(self, module: ir.Module, kernels: Sequence[Kernel]) -> None:
        """Note how main calls kernels that were emitted."""
        functions = functions_of(module)
        for kernel in kernels:
            if kernel.digest is not None:
                names = [phase.function for phase in KernelCall.of(kernel.func.operation).phases]
                types = {name: str(ir.TypeAttr(functions[name].attributes["function_type"]).value) for name in names}
                forwarded = [functions[name] for name in names if FORWARDED in functions[name].attributes]
                called = set[str]().union(*(Symbol.of(function).names for function in forwarded))
                declared = [functions[name] for name in sorted(called)]
                self.kernels[kernel.digest] = KeptKernel(
                    str(kernel.func.attributes[IMPL]),
                    types,
                    0,
                    "\n".join(text_of(function) for function in (*declared, *forwarded)),
                )
                self.called[kernel.digest] = called

    def keep(self, library: Library, made: Sequence[bytes]) -> None:
        """Keep all parts, whose object files these are by number."""
        kept: dict[int, KeptPart] = {}
        for number, taken in self.parts.items() if self.kernels else ():
            code = b"" if number == _NO_CODE else made[number]
            of_part = {k.digest: self.kernels[k.digest] for k in taken if k.digest in self.kernels}
            names = set(undefined_symbols(code) if code else ()).union(*(self.called[digest] for digest in of_part))
            homes = {self.homes[name] for name in names if name in self.homes} - {number}
            called = [kept[home] for home in sorted(home for home in homes if isinstance(home, int))]
            of_library = {home for home in homes if isinstance(home, str)}.union(*(part.library for part in called))
            parts = dict.fromkeys(digest for part in called for digest in (*part.parts, part.digest))
            weights = {kernel.digest: kernel.weight for kernel in taken}
            kernels = {digest: replace(kernel, weight=weights[digest]) for digest, kernel in of_part.items()}
            digest = hashlib.sha256(code + "".join(sorted(kernels)).encode()).hexdigest()
            kept[number] = part = KeptPart(digest, sorted(of_library), list(parts), kernels, code)
            library.put([digest, *kernels], part.entry())
