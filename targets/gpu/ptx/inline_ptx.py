"""Inline PTX: instructions that no dialect has in the form needed.

Addresses in shared memory are numbers of 32 bits, relative to `shared_base`.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith, gpu, llvm, memref

from stablexla.targets.codegen.emission import Value

_LETTERS = {"i32": "r", "i64": "l", "f32": "f", "f64": "d"}


def inline_ptx(
    text: str,
    results: Sequence[ir.Type] = (),
    operands: Sequence[Value] = (),
    tied: int = 0,
    pure: bool = False,
) -> list[Value]:
    """Emit one inline instruction, or some that belong together.

    Args:
        text: $0 ... are the results and then the operands.
        tied: so many of the first operands share registers with the results.
        pure: free of side effects, so it may be moved and eliminated.
    """
    letters = [f"={_LETTERS[str(t)]}" for t in results]
    letters += [str(i) if i < tied else _LETTERS[str(v.type)] for i, v in enumerate(operands)]
    attributes: dict[str, ir.Attribute] = {
        "asm_string": ir.StringAttr.get(text),
        "constraints": ir.StringAttr.get(",".join(letters + ([] if pure else ["~{memory}"]))),
    }
    if not pure:
        attributes["has_side_effects"] = ir.UnitAttr.get()
    several = len(results) > 1
    types = [ir.Type.parse(f"!llvm.struct<({', '.join(map(str, results))})>")] if several else list(results)
    made = ir.Operation.create(
        "llvm.inline_asm", results=types, operands=[v.ssa for v in operands], attributes=attributes
    )
    if not several:
        return [Value(v) for v in made.results]
    return [Value(llvm.extractvalue(t, made.results[0], [i])) for i, t in enumerate(results)]


def i32() -> ir.Type:
    """Return the type of words."""
    return ir.IntegerType.get_signless(32)


def truncate_to_i32(value: Value) -> Value:
    """Truncate an index to 32 bits."""
    return Value(arith.index_cast(i32(), value.ssa))


def extend_to_i64(value: Value) -> Value:
    """Extend an index to 64 bits, as of an address."""
    return Value(arith.index_cast(ir.IntegerType.get_signless(64), value.ssa))


def shared_base() -> Value:
    """Return the address of the block's shared memory."""
    space = ir.Attribute.parse("#gpu.address_space<workgroup>")
    byte = ir.IntegerType.get_signless(8)
    whole = gpu.DynamicSharedMemoryOp(
        ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], byte, memory_space=space)
    ).result
    zero = arith.constant(ir.IndexType.get(), 0)
    view = memref.view(ir.MemRefType.get([16], byte, memory_space=space), whole, zero, [])
    return Value(arith.index_cast(i32(), memref.extract_aligned_pointer_as_index(view)))


# --- asynchronous copies from global to shared memory (cp.async) -----------------------------------------------


def copy_async(to: Value, to_offset: int, source: Value, source_offset: int, size: Value | None) -> None:
    """Issue a 16-byte asynchronous copy; `size` bytes are read, the others are zero-filled."""
    places = f"[$0 + {to_offset}], [$1 + {source_offset}], 16"
    operands = [to, source] if size is None else [to, source, size]
    text = f"cp.async.cg.shared.global {places}{'' if size is None else ', $2'};"
    inline_ptx(text, operands=operands)


def commit_copies() -> None:
    """Commit the copies issued since the last commit as a group."""
    inline_ptx("cp.async.commit_group;")


def wait_for_copies(left: int) -> None:
    """Wait until at most `left` groups of this thread are in flight."""
    inline_ptx(f"cp.async.wait_group {left};")


# --- fragments in a warp's registers --------------------------------------------------------------------------


def ldmatrix(at: Value, offset: int, *, turned: bool) -> list[Value]:
    """Emit `ldmatrix`: four 8 x 8 matrices, rows of 16 bytes; thread i has the address of row i % 8 of matrix i // 8.

    A thread gets the words i % 4 of rows i // 4; `turned`: transposed (`.trans`), of columns, in units of 16 bits.
    """
    order = ".trans" if turned else ""
    text = f"ldmatrix.sync.aligned.m8n8.x4{order}.shared.b16 {{$0, $1, $2, $3}}, [$4 + {offset}];"
    return inline_ptx(text, [i32()] * 4, [at])


def load_shared(type_: ir.Type, at: Value, offset: int, lanes: int = 1) -> list[Value]:
    """Load neighbouring elements from shared memory."""
    bits = 64 if str(type_) in ("f64", "i64") else 32
    registers = ", ".join(f"${i}" for i in range(lanes))
    many = f".v{lanes}" if lanes > 1 else ""
    shown = f"{{{registers}}}" if lanes > 1 else registers
    text = f"ld.shared{many}.b{bits} {shown}, [${lanes} + {offset}];"
    return inline_ptx(text, [type_] * lanes, [at])


def store_shared(words: list[Value], at: Value) -> None:
    """Store 16 bytes to shared memory."""
    inline_ptx("st.shared.v4.b32 [$0], {$1, $2, $3, $4};", operands=[at, *words])
