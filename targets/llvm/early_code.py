"""Machine code of kernels that are finished, made on other threads while Python emits the next ones.

A session is open while one program is compiled. It takes functions out of the module as they are emitted, and leaves
declarations, by which what stays calls them. Functions of the library are declared from the start, and so are kernels
that are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from queue import SimpleQueue
from typing import Any

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.contexts import kept_with_contexts, pass_manager
from stablexla.dialects.erasing import erase
from stablexla.dialects.symbols import callee_of, functions_of
from stablexla.lowering.math.functions import library
from stablexla.lowering.support.operations import main_of, operations_named
from stablexla.targets.codegen.kernel import ELSEWHERE, Kernel
from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.llvm.code_threads import CodeThreads, Job, object_files
from stablexla.targets.llvm.forwarded import Forwarded
from stablexla.targets.llvm.kept_kernels import Keeping, KeptKernel, KeptPart, TakenKernel, are_kept, digest_of_kernel
from stablexla.targets.llvm.library import LIBRARY, digest_of
from stablexla.targets.llvm.llvm_c import run_passes
from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.llvm.split_module import MOST_OF_SMALL, ModulePart, Symbol, declare
from stablexla.targets.llvm.to_llvm import ANNOTATIONS, CONVERSIONS, EXPANSIONS
from stablexla.targets.pipeline import driver
from stablexla.targets.pipeline.driver import Watcher, run_pipeline
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline, Step
from stablexla.targets.runtime import processor, undefined_symbols

# In operations on buffers, of which one makes about three in LLVM's dialect: of so many a part is worth a thread.
PART = 120
# A program of so many kernels is none of the small ones, for which LLVM takes its time. Of fewer little is left when
# one of them is edited, and looking for them takes 2% of it.
LEAST_KERNELS = Gate("early-code.least-kernels", 4, eager=1)
_BEFORE = Pipeline("part", [Step("expansions", ",".join(EXPANSIONS))])
_AFTER = Pipeline("part", [Step("annotations", ",".join(ANNOTATIONS))])
_CONVERSIONS = f"builtin.module({','.join(CONVERSIONS)})"

# an attribute of modules of functions that were taken
_PART = "stablexla.part"

_session: ContextVar[EarlyCode | None] = ContextVar("early code", default=None)


@contextmanager
def early_code(cpu: CpuOptions) -> Iterator[EarlyCode]:
    """Open a session."""
    session = EarlyCode(cpu)
    token, of_library = _session.set(session), library.set(session)
    try:
        yield session
    finally:
        library.reset(of_library)
        _session.reset(token)
        session.close()


def open_session() -> EarlyCode | None:
    """Return the session, if one is open."""
    return _session.get()


@contextmanager
def borrowed_code(program: ir.Module, module: ir.Module) -> Iterator[CompileOptions]:
    """Let a program that calls functions of a module link their code, if a session has it.

    Yields options to load the program with: they say which processor the code is for.
    """
    early = taken_from(module)
    if early is None:
        yield CompileOptions()
        return
    token, of_library = _session.set(early.lent_to(program)), library.set(None)
    try:
        yield CompileOptions(target_cpu=early.cpu.cpu or None)
    finally:
        library.reset(of_library)
        _session.reset(token)


def taken_from(module: ir.Module) -> EarlyCode | None:
    """Return the session, if it has code that this module calls."""
    session = _session.get()
    is_its = session is not None and session.has_begun and session.module == module.operation
    return session if is_its else None


class EarlyCode:
    """The functions of one program whose code is made early.

    Attributes:
        module: what they are taken from.
        symbols: their names, and those of the library's functions.
        has_taken: whether main calls kernels that are not in the module.
        kept_names: names of the kernels whose code is kept, by the beginnings of those of their functions.
        declared: what is declared for those of them that forward their calls.
        cpu: the options with which code is made.
        when_loaded: what is to be done with the loaded code, by a function from names to addresses.
    """

    def __init__(self, cpu: CpuOptions) -> None:
        self.module: ir.Operation | None = None
        self.symbols: set[str] = set()
        self.kept_names: dict[str, str] = {}
        self.declared: set[str] = set()
        self.cpu = cpu
        self.when_loaded: list[Callable[[Callable[[str], int]], None]] = []
        self._keeping = Keeping()
        self._waiting: list[TakenKernel] = []
        self.has_taken = False
        self._weight = self._count = 0
        self._nested: set[str] = set()
        self._threads: CodeThreads | None = None
        self._linked: dict[str, KeptPart] = {}  # each behind those that it calls
        self._files: dict[str, bytes | int] = {}  # the library's by digest: what it had, or the number of a job
        self._elementary: dict[tuple[object, ...], str] = {}
        self._managers: SimpleQueue[Any] = SimpleQueue()

    @property
    def has_begun(self) -> bool:
        """Whether the module calls what is not in it, or has other names than it has without a session."""
        return self.has_taken or bool(self.symbols or self.kept_names)

    def library_symbol(
        self, module: ir.Operation, name: str, key: Sequence[object], make: Callable[[str], ir.Module]
    ) -> str:
        """Return the symbol of a function of the library for a module that calls it.

        Args:
            name: the beginning of the symbol, for readers.
            key: all that the code depends on, but for the processor.
            make: emits the function in a module of its own, under the symbol; called when the library lacks it.
        """
        self.module = self.module or module
        digest = digest_of(*key, self.cpu.cpu, self.cpu.opt_level)
        symbol = f"{name}_{digest[:8]}"
        if digest not in self._files:
            self._files[digest] = LIBRARY.find(digest) or self._begin(make(symbol))
        self.symbols.add(symbol)
        self._keeping.homes[symbol] = digest
        return symbol

    def symbol_for(
        self, module: ir.Operation, name: str, key: Sequence[object], make: Callable[[str], ir.Module]
    ) -> str | None:
        """Return the symbol of an elementary function, as `library_symbol`; None for another program's module."""
        if _PART not in module.attributes and (self.module is None or module != self.module):
            return None
        found = self._elementary.get((name, *key))
        if found is None:
            found = self._elementary[name, *key] = self.library_symbol(module, name, key, make)
        return found

    def shared_symbol(self, name: str, key: Sequence[object]) -> str:
        """Return the symbol of a function that stays with the kernels that call it: the same in all programs."""
        return f"{name}_{digest_of(*key, self.cpu.cpu, self.cpu.opt_level)[:8]}"

    def may_call(self, module: ir.Operation) -> bool:
        """Return whether the session is for this module, the first; one compiled again for its error stays whole.

        It is for none where this processor lacks what the code needs: the program is refused later, and LLVM may end
        the process over one of another family.
        """
        if processor.LEVELS.get(self.cpu.cpu, frozenset()) - processor.features():
            return False
        self.module = self.module or module
        return bool(module == self.module)

    def _begin(self, module: ir.Module) -> int:
        """Begin to make the code of a library function; return the job's number."""
        threads = self._threads or self._start(module.context)
        return threads.add(partial(self._compiled, run_pipeline(module, _BEFORE, is_trusted=True), is_of_small=True))

    def link_kept(self, module: ir.Operation, kernels: Sequence[Kernel], target: CpuTarget) -> set[Kernel]:
        """Declare the functions of the kernels whose code is kept, and return these kernels; the others get digests.

        A program that is not known to be big without its other kernels gets none: small ones are compiled as a whole.
        With one thread all are.
        """
        if len(kernels) < LEAST_KERNELS() or host_target().num_threads == 1 or not are_kept(self.cpu):
            return set()
        self.module = module.operation
        functions, found = functions_of(module), dict[Kernel, tuple[KeptPart, KeptKernel]]()
        for kernel in kernels:
            kernel.digest = digest_of_kernel(kernel, functions, target, self.cpu)
            beginning = kernel.impl_name.removesuffix("_impl")
            if kernel.digest is None or beginning in self.kept_names:
                kernel.digest = None
                continue
            self.kept_names[beginning] = kernel.name
            part = KeptPart.find(LIBRARY, kernel.digest)
            if part is not None and kernel.digest in part.kernels:
                found[kernel] = part, part.kernels[kernel.digest]
        if sum(kept.weight for _, kept in found.values()) < _least_of_part():
            return set()
        return {kernel for kernel, (part, kept) in found.items() if self._link(kernel, part, kept)}

    def _link(self, kernel: Kernel, part: KeptPart, kept: KeptKernel) -> bool:
        """Link a part with a kernel, and all that it calls; return whether everything is there."""
        called = [self._linked.get(digest) or KeptPart.find(LIBRARY, digest) for digest in part.parts]
        files = {digest: self._files.get(digest) or LIBRARY.find(digest) for digest in part.library}
        if not all([*called, *files.values()]) or not kept.declare(kernel, self.declared):
            return False
        self._linked |= {each.digest: each for each in (*called, part) if each is not None}
        self._files |= {digest: file for digest, file in files.items() if file is not None}
        self.symbols |= kept.functions.keys()
        self._keeping.homes |= dict.fromkeys(kept.functions, part.digest)
        self.has_taken = True
        return True

    def make_room(self, symbol: str) -> None:
        """Erase what is declared for kernels that are kept, as a function of that name is emitted, or declared."""
        if symbol in self.declared:
            assert self.module is not None
            self.declared.remove(symbol)
            erase(ir.SymbolTable(self.module)[symbol].operation)

    def expect(self, module: ir.Module, count: int) -> None:
        """Note how many kernels the program has, and which `main` calls in loops and branches."""
        main = main_of(module)
        self._count = count
        self._nested = {callee_of(op) for op in operations_named(main, "func.call") if op.parent.operation != main}

    @property
    def is_of_small(self) -> bool:
        """Whether the program is small by what is known of it."""
        return self._count < LEAST_KERNELS() and self._weight < MOST_OF_SMALL() // 3

    def take(self, kernel: Kernel) -> None:
        """Take the functions of a kernel that is finished; they wait until there are enough.

        Those that forward their calls stay: they become none, as main's calls are listed.
        Those of a second module, when a step is repeated for its error, stay.
        """
        if not kernel.emitted or host_target().num_threads == 1:
            return
        module = kernel.emitted[0].parent.operation
        self.module = self.module or module
        if module != self.module:
            return
        symbols = [Symbol.of(function) for function in kernel.emitted]
        may_forward = kernel.name not in self._nested
        forwarded = {symbol.name for symbol in symbols if may_forward and _is_forwarded(kernel, symbol)}
        self._waiting.append(TakenKernel(symbols, kernel.digest, forwarded))
        if _weight(self._waiting) >= _least_of_part():
            self._take_waiting()

    def finish(self, module: ir.Module, kernels: Sequence[Kernel], *, packs: bool) -> None:
        """Take the functions that wait, unless the program is small.

        Args:
            kernels: those that were emitted, and are to be kept.
            packs: whether one of them packs constants, for which the code is wanted while the rest is made.
        """
        is_big = sum(kernel.weight for kernel in self._waiting) >= _least_of_part()
        is_wanted = is_big or (packs and _weight(self._waiting) > 0)
        if self.has_taken or (is_wanted and self.module == module.operation):
            self._take_waiting()
            self._keeping.note_calls(module, kernels)

    def _take_waiting(self) -> None:
        self.has_taken = True
        for kernels in _cut(self._waiting):
            symbols = [symbol for kernel in kernels for symbol in kernel.with_code]
            if not symbols:
                self._keeping.add_rest(kernels)
                continue
            self._weight += _weight(kernels)
            threads = self._threads or self._start(symbols[0].op.context)
            job = partial(self._compiled, self._moved(symbols), is_of_small=self.is_of_small)
            self._keeping.add_part(threads.add(job), kernels)
        self._waiting = []

    def results(self, others: Sequence[Job]) -> list[bytes]:
        """Return the object files: the library's, those of what was taken, and those of other jobs."""
        assert self.module is not None
        if self._threads is None:
            made = object_files(self.module.context, others, host_target().num_threads)
        else:
            for job in others:
                self._threads.add(job)
            made = self._threads.results()
        for digest, file in self._files.items():
            if isinstance(file, int):
                LIBRARY.put([digest], made[file])
        self._keeping.keep(LIBRARY, made)
        numbers = {file for file in self._files.values() if isinstance(file, int)}
        of_library = [made[file] if isinstance(file, int) else file for file in self._files.values()]
        linked = [part.code for part in self._linked.values() if part.code]
        return [*of_library, *linked, *(file for number, file in enumerate(made) if number not in numbers)]

    def use(self, address: Callable[[str], int]) -> None:
        """Do what waits for the loaded code, given a function from names to addresses."""
        for use in self.when_loaded:
            use(address)
        self.when_loaded = []

    def lent_to(self, program: ir.Module) -> EarlyCode:
        """Return a session for a program that calls functions of this one's, with the object files that it needs."""
        lent = EarlyCode(self.cpu)
        lent.module = program.operation
        lent.symbols = self.symbols.intersection(functions_of(program))
        for name in sorted(lent.symbols):
            self._lend(name, lent._files)
        return lent

    def _lend(self, name: str, lent: dict[str, bytes | int]) -> None:
        """Add the object file of a function, behind those that it calls."""
        home = self._keeping.homes.get(name)
        if home is None or str(home) in lent:
            return
        if (part := self._linked.get(str(home))) is not None:
            lent |= {digest: self._made(self._files[digest]) for digest in part.library}
            lent |= {digest: self._linked[digest].code for digest in part.parts}
            if part.code:
                lent[part.digest] = part.code
            return
        code = self._made(home if isinstance(home, int) else self._files[home])
        for called in undefined_symbols(code):
            self._lend(called, lent)
        lent[str(home)] = code

    def _made(self, file: bytes | int) -> bytes:
        """Return an object file, or wait for that of a job."""
        if isinstance(file, bytes):
            return file
        assert self._threads is not None
        return self._threads.result(file)

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.close()

    def _start(self, context: ir.Context) -> CodeThreads:
        """Start the threads; each has a pass manager, as none can be run by two."""
        count = host_target().num_threads
        self._threads = CodeThreads(context, count)
        managers = [pass_manager("upstream", _CONVERSIONS, verify_each=False, number=n + 1) for n in range(count)]
        _meet(context, managers[0])
        for manager in managers:
            self._managers.put(manager)
        return self._threads

    def _moved(self, chosen: Sequence[Symbol]) -> ir.Module:
        """Move functions to a module of their own, with declarations of what they call."""
        assert self.module is not None
        names = {symbol.name for symbol in chosen}
        table = ir.SymbolTable(self.module)
        with self.module.context, ir.Location.unknown():
            part = ir.Module.create()
            part.operation.attributes[_PART] = ir.UnitAttr.get()
            with ir.InsertionPoint(part.body):
                for name in sorted(set().union(*(symbol.names for symbol in chosen)) - names):
                    declare(table[name].operation)
                for symbol in chosen:
                    symbol.op.clone()
        for symbol in chosen:
            with self.module.context, ir.Location.unknown(), ir.InsertionPoint(symbol.op):
                declare(symbol.op).attributes[ELSEWHERE] = ir.UnitAttr.get()
            erase(symbol.op)
        self.symbols |= names
        return run_pipeline(part, _BEFORE, is_trusted=True)

    def _compiled(self, part: ir.Module, *, is_of_small: bool = False) -> bytes:
        """Compile a part; passes and LLVM release the GIL."""
        manager = self._managers.get()
        try:
            run_passes(manager, part)
        finally:
            self._managers.put(manager)
        made = run_pipeline(part, _AFTER, watcher=_Unverified(), is_trusted=True)
        return ModulePart(made, is_of_small=is_of_small).object_file(self.cpu)


class _Unverified(Watcher):
    """Verifies nothing outside of tests: the part was verified before it became LLVM's dialect, and LLVM checks it."""

    def __init__(self) -> None:
        self.verify_each = None if driver.VERIFIES_ALL else False


def _meet(context: ir.Context, manager: Any) -> None:
    """Have a context know what the passes add to it: MLIR ends the process where they add it while others run."""
    known = kept_with_contexts("conversions")
    if context not in known:
        with context, ir.Location.unknown():
            run_passes(manager, ir.Module.create())
        known[context] = None


def _is_forwarded(kernel: Kernel, symbol: Symbol) -> bool:
    """Return whether a function of a kernel needs no code; what it forwards its calls to is attached to it then."""
    forwarded = Forwarded.of(symbol.op) if symbol.name.startswith(kernel.impl_name) else None
    if forwarded is not None:
        forwarded.note(symbol.op)
    return forwarded is not None


def _least_of_part() -> int:
    """Return the operations from which on kernels are taken."""
    return min(PART, MOST_OF_SMALL() // 3)


def _weight(kernels: Sequence[TakenKernel]) -> int:
    return sum(symbol.weight for kernel in kernels for symbol in kernel.with_code)


def _cut(kernels: Sequence[TakenKernel]) -> Iterator[list[TakenKernel]]:
    """Yield parts of at least `PART` operations, but for the last; a kernel and what it alone calls stay together.

    There is code in all of them, if there is any.
    """
    run: list[TakenKernel] = []
    for kernel in kernels:
        if kernel.with_code and _weight(run) >= PART:
            yield run
            run = []
        run.append(kernel)
    if run:
        yield run
