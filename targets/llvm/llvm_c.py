"""Code generation: from a module in LLVM's dialect to an object file, through the C APIs of upstream's MLIR and LLVM.

Called by ctypes they release the GIL, so that several modules are compiled at once, and they say which of LLVM's passes
run. MLIR's execution engine does neither.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_int8, c_size_t, c_void_p
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import mlir.ir as ir
import mlir.passmanager as passmanager
from mlir import _mlir_libs

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.system import shared_library
from stablexla.targets.llvm.code_llvm import second_llvm
from stablexla.targets.runtime import processor

# Kernels arrive vectorized, with explicit accumulators and most unrolling done: what remains is CSE and cleanup after
# the lowering, hoisting of loop-invariant code, and unrolling of short loops. LLVM's own O1 takes longer, most of it in
# passes that find nothing to do, and the code of these passes is about as fast: see `python -m benchmarks.llvm_passes`,
# docs/compile_time.md.
_COMBINE = "instcombine<max-iterations=1;no-verify-fixpoint>"
# Of a big program: emitters have vectorized, unrolled and hoisted. What else `UNROLL` has costs a tenth more of LLVM's
# time, and gains nothing in models.
CLEAN_UP = (
    "ipsccp,function(sroa,early-cse<memssa>,simplifycfg,"
    f"loop-mssa(loop-rotate<header-duplication>,licm<allowspeculation>),simplifycfg,{_COMBINE},simplifycfg)"
)
# LLVM unrolls loops of any trip count, too: the code of some kernels is up to a third faster for it (triangular solves
# of 4x4), and takes longer to compile.
UNROLL = (
    f"ipsccp,function(sroa,early-cse<memssa>,simplifycfg,{_COMBINE},reassociate,"
    "loop-mssa(loop-instsimplify,loop-simplifycfg,licm<no-allowspeculation>,loop-rotate<header-duplication>,"
    f"licm<allowspeculation>),simplifycfg,{_COMBINE},loop(indvars,loop-deletion,loop-unroll-full),"
    f"sroa,{_COMBINE},simplifycfg,loop-unroll<O1>,{_COMBINE},loop-mssa(licm),loop-sink,simplifycfg)"
)
PASSES = ("", CLEAN_UP, "default<O2>", "default<O3>")
# Loops come with the induction variables and strides that they need: strength reduction takes much of code generation,
# and what it changes is no quicker. A copy of LLVM takes this for the process, not for a module.
CODE_GENERATION = ("-disable-lsr",)

# Of llvm-c/TargetMachine.h, by family: the relocation model and the code model. x86-64: static (no shared library) and
# that of JITs. AArch64: position-independent and small, which reaches the object file's own parts by two instructions,
# and what lies outside by veneers and the loader's table of addresses; the code model of JITs takes four.
_MODELS = {"X86": (1, 1), "AArch64": (2, 3)}
_OBJECT_FILE = 1
_FAMILIES = {"x86_64": "X86", "AMD64": "X86", "aarch64": "AArch64", "arm64": "AArch64"}
_ERROR = 0  # of LLVMDiagnosticSeverity


class LlvmError(Exception):
    """LLVM refused a module, or something in it has no translation."""


class _Handle(ctypes.Structure):
    """MlirOperation and MlirPassManager: structs of one pointer."""

    _fields_ = (("pointer", c_void_p),)


class _LogicalResult(ctypes.Structure):
    """MlirLogicalResult: 1 is success."""

    _fields_ = (("value", c_int8),)


_Handler = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
Signatures: TypeAlias = dict[str, tuple[Any, list[Any]]]
_OF_MLIR: Signatures = {
    "mlirPassManagerRunOnOp": (_LogicalResult, [_Handle, _Handle]),
    "mlirTranslateModuleToLLVMIR": (c_void_p, [_Handle, c_void_p]),
    "LLVMWriteBitcodeToMemoryBuffer": (c_void_p, [c_void_p]),
}
_OF_LLVM: Signatures = {
    "LLVMParseCommandLineOptions": (None, [c_int, POINTER(c_char_p), c_char_p]),
    "LLVMContextCreate": (c_void_p, []),
    "LLVMContextDispose": (None, [c_void_p]),
    "LLVMContextSetDiagnosticHandler": (None, [c_void_p, _Handler, c_void_p]),
    "LLVMGetDiagInfoSeverity": (c_int, [c_void_p]),
    "LLVMGetDiagInfoDescription": (c_void_p, [c_void_p]),
    "LLVMDisposeMessage": (None, [c_void_p]),
    "LLVMDisposeModule": (None, [c_void_p]),
    "LLVMSetTarget": (None, [c_void_p, c_char_p]),
    "LLVMSetModuleDataLayout": (None, [c_void_p, c_void_p]),
    "LLVMGetDefaultTargetTriple": (c_void_p, []),
    "LLVMGetHostCPUName": (c_void_p, []),
    "LLVMGetHostCPUFeatures": (c_void_p, []),
    "LLVMGetTargetFromTriple": (c_int, [c_char_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "LLVMCreateTargetMachine": (c_void_p, [c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_int, c_int]),
    "LLVMDisposeTargetMachine": (None, [c_void_p]),
    "LLVMCreateTargetDataLayout": (c_void_p, [c_void_p]),
    "LLVMDisposeTargetData": (None, [c_void_p]),
    "LLVMCreatePassBuilderOptions": (c_void_p, []),
    "LLVMDisposePassBuilderOptions": (None, [c_void_p]),
    "LLVMRunPasses": (c_void_p, [c_void_p, c_char_p, c_void_p, c_void_p]),
    "LLVMGetErrorMessage": (c_void_p, [c_void_p]),
    "LLVMDisposeErrorMessage": (None, [c_void_p]),
    "LLVMTargetMachineEmitToMemoryBuffer": (
        c_int,
        [c_void_p, c_void_p, c_int, POINTER(c_void_p), POINTER(c_void_p)],
    ),
    "LLVMGetBufferStart": (c_void_p, [c_void_p]),
    "LLVMGetBufferSize": (c_size_t, [c_void_p]),
    "LLVMDisposeMemoryBuffer": (None, [c_void_p]),
}


@dataclass(frozen=True)
class HostProcessor:
    """LLVM's description of the processor that code is generated for."""

    triple: bytes
    cpu: bytes
    features: bytes


@functools.cache
def _library() -> Any:
    """Load the bindings' own library (no other copy of MLIR will do), which contains LLVM too."""
    library = ctypes.CDLL(str(Path(_mlir_libs.__file__).parent / shared_library("libMLIRPythonCAPI")))
    _declare(library, _OF_MLIR | _OF_LLVM)
    return library


def _declare(library: Any, signatures: Signatures) -> None:
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


_lock = threading.Lock()


def _code_library() -> Any:
    """Return the library that makes machine code.

    A lock keeps the first two threads apart: LLVM ends a process that parses its options on both.
    """
    with _lock:
        second = second_llvm()
        return _ready(_library() if second is None else second.library)


@functools.cache
def _ready(library: Any) -> Any:
    """Make a library ready to compile for this machine's family of processors."""
    _declare(library, _OF_LLVM)
    family = _FAMILIES[platform.machine()]
    for part in ("TargetInfo", "Target", "TargetMC", "AsmPrinter"):
        getattr(library, f"LLVMInitialize{family}{part}")()
    words = [b"stablexla", *(option.encode() for option in CODE_GENERATION)]
    library.LLVMParseCommandLineOptions(len(words), (c_char_p * len(words))(*words), None)
    return library


def host() -> HostProcessor:
    """Return the description of this machine."""
    return _host(_code_library())


@functools.cache
def _host(library: Any) -> HostProcessor:
    names = ("LLVMGetDefaultTargetTriple", "LLVMGetHostCPUName", "LLVMGetHostCPUFeatures")
    found = HostProcessor(*(_taken(getattr(library, name)(), library.LLVMDisposeMessage) for name in names))
    found = replace(found, triple=elf_triple(found.triple))
    return replace(found, features=_features(processor.features())) if _is_arm() else found


def elf_triple(triple: bytes) -> bytes:
    """Return the triple of a machine's object files in ELF, which the runtime loads, with the machine's own ABI.

    >>> elf_triple(b"arm64-apple-darwin23.6.0"), elf_triple(b"x86_64-unknown-linux-gnu")
    (b'arm64-apple-darwin23.6.0-elf', b'x86_64-unknown-linux-gnu')
    """
    return triple + b"-elf" if b"-apple-" in triple else triple


def _is_arm() -> bool:
    return processor.machine() in processor.ARM


def _features(flags: frozenset[str]) -> bytes:
    """Return the features that LLVM is told of beside a processor's name, which stands for those of x86."""
    return processor.llvm_features(flags).encode() if _is_arm() else b""


def _taken(text: int | None, dispose: Any) -> bytes:
    """Copy a text allocated by LLVM, and free it."""
    read = ctypes.string_at(text) if text else b""
    dispose(text)
    return read


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = c_void_p, [ctypes.py_object, c_char_p]


def _handle(of: Any, kind: bytes = b"mlir.ir.Operation") -> _Handle:
    return _Handle(_pointer_of(of._CAPIPtr, kind + b"._CAPIPtr"))


def run_passes(manager: passmanager.PassManager, module: ir.Module) -> None:
    """Run passes that are not written in Python. Nobody may hold operations that they change.

    Raises:
        LlvmError: one failed.
    """
    its_manager = _handle(manager, b"mlir.passmanager.PassManager")
    if not _library().mlirPassManagerRunOnOp(its_manager, _handle(module.operation)).value:
        raise LlvmError("the passes to LLVM's dialect failed")


def object_file(module: ir.Module, opt_level: int, *, unroll: bool = False, cpu: str = "") -> bytes:
    """Compile a module to an object file for this machine.

    Several threads may do this at once with modules of one context, as long as that allows threads.

    Args:
        opt_level: 0 to 3.
        unroll: whether LLVM unrolls loops at level 1 too; it does at those above.
        cpu: the processor, as LLVM calls it, with its own features alone; "" is this machine's.

    Raises:
        LlvmError: an operation has no translation (MLIR's diagnostics name it), or LLVM refuses what it is given.
    """
    passes = UNROLL if unroll and opt_level == 1 else PASSES[opt_level]
    with _Session() as session:
        session.translate(module)
        session.take_machine(opt_level, cpu)
        if passes:
            session.run_passes(passes)
        return session.emit()


@functools.cache
def _free_machines(llvm: Any, opt_level: int, cpu: str) -> list[int]:
    """Return the target machines of a kind that no thread uses; making one takes as long as a small kernel."""
    return []


def _new_machine(llvm: Any, here: HostProcessor, opt_level: int, cpu: str) -> int:
    target, message = c_void_p(), c_void_p()
    name, features = here.cpu, here.features
    if cpu:
        name, features = processor.llvm_name(cpu).encode(), _features(processor.LEVELS.get(cpu, frozenset()))
    if llvm.LLVMGetTargetFromTriple(here.triple, byref(target), byref(message)):
        raise LlvmError(_taken(message.value, llvm.LLVMDisposeMessage).decode())
    made: int = llvm.LLVMCreateTargetMachine(
        target, here.triple, name, features, opt_level, *_MODELS[_FAMILIES[platform.machine()]]
    )
    return made


class _Session:
    """One module being compiled by LLVM, in an LLVM context of its own."""

    def __init__(self) -> None:
        self._llvm = _code_library()
        self._said: list[str] = []
        self._handler = _Handler(self._note)

    def __enter__(self) -> _Session:
        self._context = self._llvm.LLVMContextCreate()
        self._llvm.LLVMContextSetDiagnosticHandler(self._context, self._handler, None)
        self._module: int | None = None
        self._machine: int | None = None
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._module is not None:
            self._llvm.LLVMDisposeModule(self._module)
        self._llvm.LLVMContextDispose(self._context)
        if self._machine is not None and kind is None:
            self._free.append(self._machine)
        elif self._machine is not None:
            self._llvm.LLVMDisposeTargetMachine(self._machine)

    def _note(self, diagnostic: int, _: object) -> None:
        """Collect an error; without a handler LLVM ends the process at one."""
        if self._llvm.LLVMGetDiagInfoSeverity(diagnostic) == _ERROR:
            text = self._llvm.LLVMGetDiagInfoDescription(diagnostic)
            self._said.append(_taken(text, self._llvm.LLVMDisposeMessage).decode(errors="replace"))

    def translate(self, module: ir.Module) -> None:
        second = second_llvm()
        if second is None:
            self._module = _library().mlirTranslateModuleToLLVMIR(_handle(module.operation), self._context)
        else:
            bitcode = _bitcode(module)
            self._module = None if bitcode is None else second.parse(bitcode, self._context)
        if not self._module:
            raise LlvmError("; ".join(["the module has no translation to LLVM", *self._said]))

    def take_machine(self, opt_level: int, cpu: str) -> None:
        llvm, here = self._llvm, host()
        self._free = _free_machines(llvm, opt_level, cpu)
        try:
            self._machine = self._free.pop()  # threads share the list, whose `pop` and `append` are atomic
        except IndexError:
            self._machine = _new_machine(llvm, here, opt_level, cpu)
        layout = llvm.LLVMCreateTargetDataLayout(self._machine)
        llvm.LLVMSetModuleDataLayout(self._module, layout)
        llvm.LLVMDisposeTargetData(layout)
        llvm.LLVMSetTarget(self._module, here.triple)

    def run_passes(self, passes: str) -> None:
        options = self._llvm.LLVMCreatePassBuilderOptions()
        failure = self._llvm.LLVMRunPasses(self._module, passes.encode(), self._machine, options)
        self._llvm.LLVMDisposePassBuilderOptions(options)
        if failure:
            message = self._llvm.LLVMGetErrorMessage(failure)
            raise LlvmError(_taken(message, self._llvm.LLVMDisposeErrorMessage).decode())

    def emit(self) -> bytes:
        llvm, message, buffer = self._llvm, c_void_p(), c_void_p()
        failed = llvm.LLVMTargetMachineEmitToMemoryBuffer(
            self._machine, self._module, _OBJECT_FILE, byref(message), byref(buffer)
        )
        if failed or self._said:
            said = _taken(message.value, llvm.LLVMDisposeMessage).decode() if message.value else ""
            raise LlvmError("; ".join([*self._said, said] if said else self._said))
        try:
            return ctypes.string_at(llvm.LLVMGetBufferStart(buffer), llvm.LLVMGetBufferSize(buffer))
        finally:
            llvm.LLVMDisposeMemoryBuffer(buffer)


def _bitcode(module: ir.Module) -> bytes | None:
    """Return a module as LLVM's bitcode; None when it has no translation."""
    mlir = _library()
    context = mlir.LLVMContextCreate()
    try:
        made = mlir.mlirTranslateModuleToLLVMIR(_handle(module.operation), context)
        if not made:
            return None
        buffer = mlir.LLVMWriteBitcodeToMemoryBuffer(made)
        written = ctypes.string_at(mlir.LLVMGetBufferStart(buffer), mlir.LLVMGetBufferSize(buffer))
        mlir.LLVMDisposeMemoryBuffer(buffer)
        mlir.LLVMDisposeModule(made)
        return written
    finally:
        mlir.LLVMContextDispose(context)


__all__ = ["CLEAN_UP", "CODE_GENERATION", "HostProcessor", "LlvmError", "host", "object_file", "run_passes"]
