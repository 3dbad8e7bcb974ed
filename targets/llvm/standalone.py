"""Ahead-of-time compilation: a program as C functions, without Python, as LLVM IR and as an object file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import mlir.ir as ir
import numpy as np

from stablexla.dialects.custom_calls import C_FUNCTION
from stablexla.dialects.errors import CompileError, UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import symbol_of
from stablexla.targets.host.bindings import RANDOM_KEY, take_host
from stablexla.targets.host.lapack import PREFIX as LAPACK
from stablexla.targets.llvm.check_stops import take_places
from stablexla.targets.llvm.engine import declared_functions
from stablexla.targets.llvm.entry import EntryContract, take_entry
from stablexla.targets.llvm.llvm_c import CODE_GENERATION
from stablexla.targets.llvm.toolchain import is_for_macos, llvm_tool, run
from stablexla.targets.runtime import ArraySpec
from stablexla.targets.runtime.processor import ARM, llvm_name, machine
from stablexla.targets.signature.interface import Signature


@dataclass(frozen=True)
class Standalone:
    """A program as LLVM IR.

    Attributes:
        name: the prefix of its functions.
        ir: LLVM IR, without the constants, which `text` and `with_files` add.
        constants: the arrays held by the program.
        external: functions that it calls and that the runtime does not have.
        is_random: whether it draws random numbers.
    """

    name: str
    ir: str
    constants: tuple[np.ndarray[Any, Any], ...]
    external: tuple[str, ...]
    is_random: bool

    def text(self) -> str:
        """Return the whole LLVM IR, with the constants inline."""
        return self.ir + "".join(map(self._written_out, range(len(self.constants))))

    def with_files(self, folder: Path, triple: str = "") -> str:
        """Return LLVM IR with the constants in files of a folder, which the assembler reads: fast for big ones."""
        is_macho = is_for_macos(triple)
        section = "__TEXT,__const" if is_macho else ".rodata.stablexla,\\22a\\22,@progbits"
        hidden, prefix = (".private_extern", "_") if is_macho else (".hidden", "")
        lines = [f'module asm ".section {section}"\n'] if self.constants else []
        for i, constant in enumerate(self.constants):
            path, label = folder / f"constant{i}", _constant(self.name, i)
            path.write_bytes(constant.tobytes())
            symbol = f"{prefix}{label}"
            for line in (".balign 64", f"{hidden} {symbol}", f".globl {symbol}", f"{symbol}:"):
                lines.append(f'module asm "{line}"\n')
            lines.append(f'module asm ".incbin \\22{path}\\22"\n')
            lines.append(f"@{label} = external hidden constant i8\n")
        return self.ir + "".join(lines) + ('module asm ".text"\n' if lines else "")

    def _written_out(self, number: int) -> str:
        data = self.constants[number].tobytes()
        text = "".join(f"\\{byte:02X}" for byte in data)
        label = _constant(self.name, number)
        return f'@{label} = internal constant [{len(data)} x i8] c"{text}", align 64\n'


def standalone(module: ir.Module, signature: Signature, name: str, flush_denormals: bool) -> Standalone:
    """Compile a module in LLVM's dialect, which is changed, to a standalone program.

    Raises:
        UnsupportedError: the program calls Python, or the host that only Python has.
        CompileError: the program has or calls a function of that name.
    """
    entry = take_entry(module)
    take_places(module, {})
    declared = declared_functions(module)
    host = take_host(module, signature.name, declared)
    if host is not None and host.calls:
        raise _refusal(host.calls)
    renamed = {f: _external(f) for f in declared if f.startswith((C_FUNCTION, LAPACK))}
    _rename(module, {**renamed, "main": _main(name)})
    _check_name(name, module)
    from mlir.dialects import llvm  # 16 ms, for this alone

    text = llvm.translate_module_to_llvmir(module.operation)
    text = re.sub(rf"define void @{re.escape(_main(name))}\(", f"define internal void @{_main(name)}(", text)
    specs = signature.parameter_specs(), signature.result_specs()
    made = text + _entry(name, entry, *specs, flush_denormals)
    if RANDOM_KEY in declared:
        made += _SEED.replace("NAME", name)
    return Standalone(name, made, entry.constants, tuple(renamed.values()), RANDOM_KEY in declared)


def _check_name(name: str, module: ir.Module) -> None:
    """Check that no symbol of the program clashes with those of its C entry."""
    ours = {f"{name}{tail}" for tail in ("", "_main", "_use_threads", "_seed")}
    taken = {symbol_of(op) for op in module.body.operations} & ours
    if taken:
        raise CompileError(
            f"the library cannot be called {name!r}: the program itself has or calls {', '.join(sorted(taken))}",
            hint="another name for its functions: name=",
            option="another name for its functions: --name",
        )


def _refusal(calls: Iterable[Any]) -> UnsupportedError:
    """Return the error for calls that a program without Python cannot make."""
    found = []
    functions = list(dict.fromkeys(call["target"] for call in calls if call["call"] == "function"))
    for call in calls:
        target = call.get("target")
        custom_call = f"the custom call {target!r}"
        what = {"function": custom_call, "ffi": custom_call, "composite": f"the kernel of {target!r}"}
        found.append(what.get(call["call"], call["call"]) + call["place"])
    return UnsupportedError(
        "a library without Python cannot do this, which Python does: " + "; ".join(dict.fromkeys(found)),
        hint=f"C functions: c_functions={functions}" if functions else "",
        option=f"C functions: {' '.join(f'--c-function={name}' for name in functions)}" if functions else "",
    )


def _external(function: str) -> str:
    """Return the symbol in the user's library."""
    if function.startswith(LAPACK):
        return f"{function.removeprefix(LAPACK)}_"
    return function.removeprefix(C_FUNCTION)


def _main(name: str) -> str:
    return f"stablexla.{name}.program"


def _constant(name: str, number: int) -> str:
    return f"stablexla.{name}.constant{number}"


def _rename(module: ir.Module, names: dict[str, str]) -> None:
    with module.context:
        for view in module.body.operations:
            op = view.operation
            old = symbol_of(op)
            if old in names:
                op.attributes["sym_name"] = ir.StringAttr.get(names[old])

        def look(op: Any) -> Any:
            for key in ("callee", "global_name"):
                if key in op.attributes:
                    called = ir.FlatSymbolRefAttr(op.attributes[key]).value
                    if called in names:
                        op.attributes[key] = ir.FlatSymbolRefAttr.get(names[called])
            return ir.WalkResult.ADVANCE

        module.operation.walk(look)


# ---- the entry for C -------------------------------------------------------------------------------------------------

_PROGRAM = "{ ptr, i64, i64, i64, i64, i64, ptr, ptr, ptr }"
_SEED = """
declare void @stablexla_seed_programs(i64)
define void @NAME_seed(i64 %number) {
  call void @stablexla_seed_programs(i64 %number)
  ret void
}
"""


def _entry(
    name: str,
    entry: EntryContract,
    parameters: Sequence[ArraySpec],
    results: Sequence[ArraySpec],
    flush_denormals: bool,
) -> str:
    constants = range(len(entry.constants))
    counts = [len(parameters), len(constants), len(results), entry.arena_bytes, int(flush_denormals)]
    tables = {
        "alignments": _table("i64", [str(spec.dtype.alignment) for spec in parameters]),
        "bytes": _table("i64", [str(spec.nbytes) for spec in results]),
        "constants": _table("ptr", [f"@{_constant(name, i)}" for i in constants]),
    }
    lines = [f"@stablexla.{name}.{key} = internal constant {table}" for key, table in tables.items()]
    numbers, pointers = [f"i64 {n}" for n in counts], [f"ptr @stablexla.{name}.{key}" for key in ("run", *tables)]
    fields = [pointers[0], *numbers, *pointers[1:]]
    lines.append(f"@stablexla.{name} = internal constant {_PROGRAM} {{ {', '.join(fields)} }}")
    lines += _run(name, sum(counts[:3]) + 1)
    lines += ["declare i32 @stablexla_run_program(ptr, ptr, ptr)", "declare i32 @stablexla_use_threads(i32)"]
    lines += [
        f"define i32 @{name}_main(ptr %arguments, ptr %results) {{",
        f"  %code = call i32 @stablexla_run_program(ptr @stablexla.{name}, ptr %arguments, ptr %results)",
        "  ret i32 %code",
        "}",
        f"define i32 @{name}_use_threads(i32 %count) {{",
        "  %code = call i32 @stablexla_use_threads(i32 %count)",
        "  ret i32 %code",
        "}",
    ]
    return "\n" + "\n".join([*lines, *_typed(name, len(parameters), len(results))]) + "\n"


def _table(type_: str, items: Sequence[str]) -> str:
    return f"[{len(items)} x {type_}] [{', '.join(f'{type_} {item}' for item in items)}]"


def _run(name: str, count: int) -> list[str]:
    """Return a function that takes the addresses of all buffers in one list."""
    lines = [f"define internal void @stablexla.{name}.run(ptr %buffers) {{"]
    for i in range(count):
        lines.append(f"  %p{i} = getelementptr ptr, ptr %buffers, i64 {i}")
        lines.append(f"  %b{i} = load ptr, ptr %p{i}")
    buffers = ", ".join(f"ptr %b{i}" for i in range(count))
    return [*lines, f"  call void @{_main(name)}({buffers})", "  ret void", "}"]


def _typed(name: str, parameters: int, results: int) -> list[str]:
    """Return a function that takes each array as a parameter of its own."""
    given = [f"ptr %x{i}" for i in range(parameters)] + [f"ptr %y{i}" for i in range(results)]
    lines = [f"define i32 @{name}({', '.join(given)}) {{"]
    for table, letter, count in (("arguments", "x", parameters), ("results", "y", results)):
        lines.append(f"  %{table} = alloca ptr, i64 {max(1, count)}")
        for i in range(count):
            lines.append(f"  %{table}{i} = getelementptr ptr, ptr %{table}, i64 {i}")
            lines.append(f"  store ptr %{letter}{i}, ptr %{table}{i}")
    lines.append(f"  %code = call i32 @{name}_main(ptr %arguments, ptr %results)")
    return [*lines, "  ret i32 %code", "}"]


# ---- LLVM ------------------------------------------------------------------------------------------------------------


def optimized(text: str, opt_level: int, cpu: str, triple: str) -> str:
    """Run LLVM's own passes on LLVM IR."""
    return run([llvm_tool("opt"), "-S", f"-passes=default<O{opt_level}>", *_machine(cpu, triple), "-"], given=text)


def generated(text: str, output: Path, opt_level: int, cpu: str, triple: str, *, assembly: bool) -> None:
    """Generate the object file, or its assembly text, from LLVM IR."""
    kind = "asm" if assembly else "obj"
    options = [f"-O{opt_level}", f"-filetype={kind}", "-relocation-model=pic", "-code-model=small"]
    run([llvm_tool("llc"), *CODE_GENERATION, *options, *_machine(cpu, triple), "-o", str(output), "-"], given=text)


def _machine(cpu: str, triple: str) -> list[str]:
    words = [f"-mcpu={llvm_name(cpu)}", *([f"-mtriple={triple}"] if triple else [])]
    is_arm = (triple.partition("-")[0] or machine()) in ARM
    return [*words, "-mattr=-sve"] if is_arm else words  # as `llvm_features`
