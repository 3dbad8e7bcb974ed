"""Each kernel that an emitter took, computed by the general path too in one run, on the same operands, and compared.

A pass behind the emitters gives every such kernel a twin, and its calls in `main` two calls of the host: one before it,
with its operands and what the twin made of them, one behind it, with what it made itself. Integers, movement and
arithmetic have the same bits; sums of floats are as near as another order of the terms allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import mlir.ir as ir
import numpy as np
from mlir.dialects import func, tensor

import stablexla as sx
from stablexla.dialects.element_types import BY_MLIR
from stablexla.dialects.shapes import Shape
from stablexla.inspection.judging.tolerances import Case, differing, largest, overflows
from stablexla.lowering.rules.calls.host import HOST, HostConfig
from stablexla.lowering.support.configs import config_attribute
from stablexla.lowering.support.kernels import CONFIG, EFFECT, KIND
from stablexla.lowering.support.operations import is_tensor, main_of, operations_named, walk
from stablexla.targets.codegen.calls import IMPL, KernelCall
from stablexla.targets.codegen.emit import kernels_of, record
from stablexla.targets.codegen.general import emit_general
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.machine import host_target
from stablexla.targets.cpu.pipeline import cpu_pipeline
from stablexla.targets.grouping.classify import Kind
from stablexla.targets.grouping.loops import is_generic, loops_of
from stablexla.targets.host.emitters import HOST_EMITTERS

Arrays = Sequence[np.ndarray]
EXACT = 1 << 22
"""Whole numbers up to this one have exact sums in every type that is summed in."""
GIVEN, MADE = "tests.kernels.given", "tests.kernels.made"
_PLAIN = frozenset(
    {"func", "return", "call", "empty", "fill", "generic", "yield", "index", "constant", "index_cast", "select", "cmpf"}
    | {"cmpi", "extf", "truncf", "extsi", "extui", "trunci", "sitofp", "uitofp", "bitcast", "negf", "addf", "subf"}
    | {"mulf", "maximumf", "minimumf", "addi", "subi", "muli", "andi", "collapse_shape", "expand_shape"}
    | {"extract_slice", "insert_slice", "unrealized_conversion_cast"}
)
"""Operations in which whole numbers stay whole, and that make no more of operands than sums of their products."""


@dataclass(frozen=True)
class Subject:
    """A kernel that is computed twice.

    Attributes:
        name, kind: the kernel's.
        text: its function on tensors.
        operations: the names of its operations, without their dialects.
        terms: numbers that are added up for one of its results; 1 where it adds no floats.
    """

    name: str
    kind: str
    text: str
    operations: frozenset[str]
    terms: int

    @staticmethod
    def of(kernel: Kernel) -> Subject:
        """Describe a kernel."""
        inner = walk(kernel.func.operation)
        names = frozenset(op.name.partition(".")[2] for op in inner)
        loops = [loops_of(op) for op in inner if is_generic(op)]
        summed = [prod(n for n, r in zip(each.extents, each.reduced, strict=True) if r) for each in loops]
        is_loop = kernel.kind in (Kind.MAP.value, Kind.TRANSPOSE.value) and max(summed, default=1) == 1
        if is_loop or not names & {"addf", "subf", "mulf", "add", "mul"}:
            return Subject(kernel.name, kernel.kind, str(kernel.func), names, 1)
        sizes = [prod(v.type.shape) for v in (*kernel.inputs, *kernel.results) if is_tensor(v)]
        most = prod(summed) if kernel.kind in _LOOPS else max(sizes, default=1)
        return Subject(kernel.name, kernel.kind, str(kernel.func), names, max(2, most))


_LOOPS = tuple(kind.value for kind in Kind if kind is not Kind.GENERAL)


@dataclass(frozen=True)
class _Operation:
    """What tolerances are asked for by: a sum, or what has the same bits in any case."""

    operation: str
    operations: frozenset[str]
    text: str = ""


_SUM = _Operation("reduce", frozenset({"reduce", "add"}))
_EXACT = _Operation("select", frozenset({"select"}))


@dataclass
class Comparison:
    """The kernels of a program, what was given to those that are running, and how many results were compared."""

    subjects: list[Subject] = field(default_factory=list)
    waiting: dict[int, tuple[list[np.ndarray], list[np.ndarray]]] = field(default_factory=dict)
    compared: int = 0

    def given(self, *arrays: np.ndarray, number: int, operands: int) -> None:
        """Keep a kernel's operands and its twin's results."""
        copies = [np.array(a) for a in arrays]
        self.waiting[number] = copies[:operands], copies[operands:]

    def made(self, *results: np.ndarray, number: int, kernel: int) -> None:
        """Compare a kernel's results with its twin's.

        Raises:
            AssertionError: they differ; it names the kernel.
        """
        subject = self.subjects[kernel]
        operands, wanted = self.waiting.pop(number)
        for place, (actual, right) in enumerate(zip(results, wanted, strict=True)):
            self.compared += 1
            wrong = _differing(subject, operands, np.asarray(actual), right)
            if wrong.any():
                at = int(np.flatnonzero(wrong)[0])
                values = f"{actual.reshape(-1)[at]}, by the general path {right.reshape(-1)[at]}"
                told = f"{wrong.sum():,} of {wrong.size:,} elements of result {place}, first [{at}]: {values}"
                head = f"an emitted kernel of kind {subject.kind} differs from the general path"
                raise AssertionError(f"{head}\n@{subject.name}: {told}\n{subject.text}")


def execute(text: str, arguments: Arrays, time_limit: float | None = None) -> list[np.ndarray]:
    """Run a program whose emitted kernels are compared with the general path's, with any choice of gates.

    Raises:
        AssertionError: the first kernel with other results.
    """
    choices = ("", "eager", f"drawn:{len(text)}")[len(text) % 3]
    with comparing(choices) as (options, _):
        return sx.compile(text, options=options).execute(list(arguments), time_limit=time_limit)


@contextmanager
def comparing(choices: str = "") -> Iterator[tuple[sx.CompileOptions, Comparison]]:
    """Options for one program whose kernels are compared, and what the comparison saw."""
    found = Comparison()
    for name, function in ((GIVEN, found.given), (MADE, found.made)):
        sx.register_custom_call(name, function)
    plain = cpu_pipeline(sx.CompileOptions(choices=choices))
    _CURRENT.append(found)
    try:
        pipeline = plain.inserting_pass(compute_twice, after="stablexla-emit-kernels")
        yield sx.CompileOptions(pipeline=pipeline), found
    finally:
        _CURRENT.pop()
        for name in (GIVEN, MADE):
            sx.unregister_custom_call(name)


_CURRENT: list[Comparison] = []


# ---- the pass --------------------------------------------------------------------------------------------------------


def compute_twice(module: ir.Module) -> None:
    """Give emitted kernels their twins, and the calls of `main` those of the host."""
    emitted = {k.name: k for k in map(Kernel, kernels_of(module)) if _is_emitted(k)}
    with module.context, ir.Location.unknown():
        twins = [Kernel(_clone(kernel, f"{name}_general")) for name, kernel in emitted.items()]
        for twin, made in zip(twins, emit_general(twins), strict=True):
            record(twin, made, "general")
        subjects = _CURRENT[-1].subjects
        numbers = {name: number for number, name in enumerate(emitted, len(subjects))}
        subjects += map(Subject.of, emitted.values())
        calls = [op for op in operations_named(main_of(module), "func.call") if _callee(op) in emitted]
        for number, call in enumerate(calls):
            _compare(call, number, numbers[_callee(call)])


def _is_emitted(kernel: Kernel) -> bool:
    return kernel.kind not in HOST_EMITTERS and KernelCall.of(kernel.func.operation).path != "general"


def _clone(kernel: Kernel, name: str) -> func.FuncOp:
    with ir.InsertionPoint(kernel.func):
        twin = kernel.func.operation.clone()
    twin.attributes["sym_name"] = ir.StringAttr.get(name)
    del twin.attributes[IMPL]
    return twin.opview


def _compare(call: ir.Operation, number: int, kernel: int) -> None:
    """The twin's call and one of the host before a call, another behind it."""
    operands = list(call.operands)
    with call.location:
        with ir.InsertionPoint(call):
            twin = func.CallOp([r.type for r in call.results], f"{_callee(call)}_general", operands)
            arrays = [v for v in map(_as_array, operands) if v is not None]
            _tell(call, GIVEN, [*arrays, *twin.results], f"number = {number}, operands = {len(arrays)}")
        block = call.block
        after = next(op for op in block.operations if call.is_before_in_block(op.operation))
        with ir.InsertionPoint(after):
            _tell(call, MADE, list(call.results), f"number = {number}, kernel = {kernel}")


def _as_array(value: ir.Value) -> ir.Value | None:
    """An operand as an array; None for scalars that are no elements of arrays."""
    if is_tensor(value):
        return value
    known = BY_MLIR.get(str(value.type))
    if known is None or known.is_pred:
        return None
    return tensor.from_elements(ir.RankedTensorType.get([], value.type), [value])


def _tell(call: ir.Operation, target: str, arrays: list[ir.Value], keywords: str) -> None:
    """A call of a Python function with these arrays."""
    shapes = tuple(str(_shape(v.type)) for v in arrays)
    tree = f"({', '.join(shapes)})"
    config = HostConfig(
        "function", shapes, (), "", target=target, keywords=f"{{{keywords}}}", arguments=tree, result="()"
    )
    function = call
    while function.name != "func.func":
        function = function.parent.operation
    types = [v.type for v in arrays]
    name = f"{target.rpartition('.')[2]}_{keywords.split()[2].rstrip(',')}"
    with ir.InsertionPoint(function):
        made = func.FuncOp(name, ir.FunctionType.get(types, []), visibility="private")
    made.attributes[KIND], made.attributes[CONFIG] = ir.StringAttr.get(HOST), config_attribute(config)
    with ir.InsertionPoint(made.add_entry_block()):
        func.ReturnOp([])
    kernel = Kernel(made)
    emitted = HOST_EMITTERS.emit(kernel, host_target())
    assert emitted is not None
    record(kernel, emitted, "emitted")
    func.CallOp([], name, arrays).operation.attributes[EFFECT] = ir.UnitAttr.get()


def _shape(type_: Any) -> Shape:
    return Shape(BY_MLIR[str(type_.element_type)], tuple(type_.shape))


def _callee(call: ir.Operation) -> str:
    return str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)


# ---- the comparison --------------------------------------------------------------------------------------------------


def _differing(subject: Subject, operands: Arrays, actual: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which elements are wrong, flat."""
    exact = Case(_EXACT, [], actual, wanted, "general")
    wrong = differing(exact)
    if not wrong.any() or subject.terms == 1 or not exact.is_inexact:
        return wrong
    is_plain = subject.operations <= _PLAIN
    if is_plain and all(map(_is_whole, (*operands, wanted))):  # in any order
        return np.asarray(wrong & ~np.asarray((actual == 0) & (wanted == 0)).reshape(-1))
    with np.errstate(all="ignore"):
        size = prod(max(1.0, largest([a])) for a in operands)
    terms = np.broadcast_to(np.float64(max(size, largest([wanted]))), (subject.terms,))
    case = Case(_SUM, [terms], actual, wanted, "general")
    return np.zeros_like(wrong) if overflows(case) else differing(case)


def _is_whole(array: np.ndarray) -> bool:
    """Whether these are integers, or floats whose sums are exact."""
    if array.dtype.kind in "iub":
        return True
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array.astype(np.float64),)
    return all(bool((np.abs(p) <= EXACT).all() and (p == np.rint(p)).all()) for p in parts)
