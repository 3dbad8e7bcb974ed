"""Programs that check themselves: further results say which operation was the first to show a NaN or the like.

They are plain StableHLO: conditions become numbers of operations, carried through loops and branches as further state.
A loop that does not count to a known end is left as soon as something is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.dialects.hlo import (
    broadcast,
    compare,
    constant,
    elementwise,
    integer_tensor,
    number,
    operation,
    reduce,
    return_,
    select,
    tensor,
)
from stablexla.dialects.value_checks import CONSTANTS, ERRORS, NAN, WARNINGS, kinds_of
from stablexla.lowering.support.types import is_token
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.signature.signature import main_of
from stablexla.targets.stablehlo.checks.conditions import (
    LEAST_ROW,
    Conditions,
    Pointwise,
    choose,
    is_nan,
    is_not_finite,
    mapped,
    one_of,
)
from stablexla.targets.stablehlo.checks.operations import CONTROL, Checked, checked_operations, counts, terminator
from stablexla.targets.stablehlo.checks.sinks import passes, sinks

Value = Any
MOST_IN_ONE = 200
"""Operations whose conditions become one array of bytes at most."""
RETURNED = 1 << 30
"""The number of a result of `main` that shows something which no operation made."""
MANY = 4
"""Conditions that are told apart in a branch."""
_EFFECTS = ("all_", "collective_", "reduce_scatter", "custom_call", "infeed", "outfeed", "send", "recv")


class Layout:
    """The further results: for errors and for warnings, if these are checked, a number and iterations; then values.

    Attributes:
        groups: the kinds of each number.
        depth: the loops around the innermost operation that is checked.
    """

    def __init__(self, operations: Sequence[Checked], kinds: Sequence[str]) -> None:
        both = [tuple(k for k in kinds if k in words) for words in (ERRORS, WARNINGS)]
        self.groups = [group for group in both if group]
        self.depth = max((len(each.loops) for each in operations), default=0)

    @property
    def size(self) -> int:
        """How many scalars there are."""
        return len(self.groups) * (1 + self.depth)


def instrument(
    module: ir.Module,
    operations: Sequence[Checked],
    layout: Layout,
    *,
    captured: Checked | None = None,
    returned: Mapping[int, Sequence[str]] | None = None,
) -> None:
    """Add checks to `main`, in place.

    Args:
        operations: those that are checked.
        layout: of the further results.
        captured: one of them, of whose operands and results the values at the finding are returned as well.
        returned: results of `main` that are looked at in the end, and for what; their number is that of no operation.
    """
    with module.context, ir.Location.unknown():
        _Instrumenter(operations, layout, captured).main(main_of(module), returned or {})


class _Instrumenter:
    def __init__(self, operations: Sequence[Checked], layout: Layout, captured: Checked | None) -> None:
        self._checked = {each.op: each for each in operations}
        self._inside = {op for each in operations for op, _ in each.path}  # loops and branches that hold one of them
        self._layout, self._captured = layout, captured
        self._conditions = Conditions()
        self._counters: list[Value] = []
        self._replacement: Any = None  # of the last loop or branches

    def main(self, function: Any, returned: Mapping[int, Sequence[str]]) -> None:
        block = function.regions[0].blocks[0]
        with ir.InsertionPoint.at_block_begin(block):
            state = self._start()
        end = self._block(block, state, returned)
        last = terminator(block)
        with ir.InsertionPoint(last):
            operation("func.return", [*last.operands, *end])
        erase(last)
        types = [a.type for a in block.arguments]
        results = [v.type for v in terminator(block).operands]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, results))
        if "res_attrs" in function.attributes:
            old = list(ir.ArrayAttr(function.attributes["res_attrs"]))
            new = [ir.DictAttr.get({})] * len(end)
            function.attributes["res_attrs"] = ir.ArrayAttr.get([*old, *new])

    # ---- state -----------------------------------------------------------------------------------------------------

    def _start(self) -> list[Value]:
        """Return the state before anything is found: number 0, iterations -1, values 0."""
        i32 = integer_tensor(32)
        each = [constant(i32, "0"), *(constant(i32, "-1") for _ in range(self._layout.depth))]
        return each * len(self._layout.groups) + [
            _zeros(value.type) for value in captured_values(self._captured.op if self._captured else None)
        ]

    def _found(self, state: list[Value], group: int, first: Value, op: Any) -> list[Value]:
        """Return the state after a stretch of operations, of which `first` is the number of the first that shows.

        Args:
            op: the only one of them, where its values are captured.
        """
        width = 1 + self._layout.depth
        at = group * width
        none = constant(integer_tensor(32), "0")
        is_new = elementwise("and", compare(first, none, "NE"), compare(state[at], none, "EQ"))
        made = list(state)
        made[at] = select(is_new, first, state[at])
        for i, counter in enumerate(self._counters):
            made[at + 1 + i] = select(is_new, counter, state[at + 1 + i])
        start = self._layout.size
        if self._captured is not None:
            for i, value in enumerate(captured_values(op)):
                made[start + i] = select(is_new, value, state[start + i])
        return made

    # ---- blocks ----------------------------------------------------------------------------------------------------

    def _block(
        self, block: Any, state: list[Value], returned: Mapping[int, Sequence[str]] | None = None
    ) -> list[Value]:
        """Insert the checks of a block; return the state at its end."""
        *operations, last = [view.operation for view in block.operations]
        stretch = _Stretch(len(self._layout.groups))
        for op, following in zip(operations, [*operations, last][1:], strict=True):
            if op.name in CONTROL and op in self._inside:
                with op.location, ir.InsertionPoint(op):
                    state = self._flush(stretch, state)
                    stretch = _Stretch(len(self._layout.groups))
                    own = self._checked.pop(op, None)
                    state = self._while(op, state) if op.name == "stablehlo.while" else self._branches(op, state)
                if own is not None:
                    new = self._replacement
                    with new.location, ir.InsertionPoint(following):
                        self._note(replace(own, op=new), stretch)
            elif op in self._checked:
                with op.location, ir.InsertionPoint(following):
                    self._note(self._checked[op], stretch)
                    if self._captured is not None:
                        state = self._flush(stretch, state, op)
                        stretch = _Stretch(len(self._layout.groups))
        with ir.InsertionPoint(last):
            for i, kinds in (returned or {}).items():
                is_bad = is_nan if tuple(kinds) == (NAN,) else is_not_finite
                stretch.note(0, RETURNED, Pointwise((last.operands[i],), is_bad, last.operands[i]))
            return self._flush(stretch, state)

    def _note(self, checked: Checked, stretch: _Stretch) -> None:
        for group, kinds in enumerate(self._layout.groups):
            for condition in self._conditions.of(checked, kinds):
                stretch.note(group, checked.number, condition)

    def _flush(self, stretch: _Stretch, state: list[Value], op: Any = None) -> list[Value]:
        for group in range(len(self._layout.groups)):
            first = stretch.first(group, self._layout.groups[group] == (NAN,))
            if first is not None:
                state = self._found(state, group, first, op)
        return state

    @contextmanager
    def _region(self, counter: Value | None = None) -> Iterator[None]:
        self._conditions.enter()
        if counter is not None:
            self._counters.append(counter)
        yield
        if counter is not None:
            self._counters.pop()
        self._conditions.leave()

    def _branches(self, old: Any, state: list[Value]) -> list[Value]:
        new = _with_results(old, list(old.operands), [v.type for v in state])
        for region in new.regions:
            block = region.blocks[0]
            with self._region():
                _return_more(block, self._block(block, state))
        return self._replace(old, new)

    def _while(self, old: Any, state: list[Value]) -> list[Value]:
        """Carry the state and a count of iterations; what the condition computes is checked where the body begins."""
        zero = constant(integer_tensor(32), "0")
        carried = [*state, zero]
        new = _with_results(old, [*old.operands, *carried], [v.type for v in carried])
        condition, body = (region.blocks[0] for region in new.regions)
        count = len(old.results)
        added = [[b.add_argument(v.type, new.location) for v in carried] for b in (condition, body)]
        *inner, counter = added[1]
        with self._region(counter), ir.InsertionPoint.at_block_begin(body):
            self._copy_condition(condition, list(body.arguments)[:count])
            inner = self._block(body, inner)
        last = terminator(body)
        with ir.InsertionPoint(last):
            _return_more(body, [*inner, elementwise("add", counter, constant(counter.type, "1"))])
        end = self._replace(old, new)
        *state, counter = end
        state = self._after(condition, list(new.results)[:count], state, counter, new)
        self._leave_early(condition, added[0])
        return state

    def _copy_condition(self, condition: Any, values: Sequence[Value]) -> list[Any]:
        """Copy the operations of a condition that are checked, and those before them, to the insertion point."""
        operations = [view.operation for view in condition.operations][:-1]
        last = max((i for i, op in enumerate(operations) if op in self._checked or op in self._inside), default=-1)
        mapping = dict(zip(list(condition.arguments), values, strict=False))
        made = []
        for op in operations[: last + 1]:
            copy = op.clone().operation
            _map_operands(copy, mapping)
            mapping.update(zip(op.results, copy.results, strict=True))
            self._know(op, copy)
            made.append(copy)
        return made

    def _know(self, op: Any, copy: Any) -> None:
        """Check a copy as its original is checked, with all that is in it."""
        for old, new in zip(_walk(op), _walk(copy), strict=True):
            if old in self._checked:
                was = self._checked[old]
                self._checked[new] = replace(was, op=new)
            if old in self._inside:
                self._inside.add(new)

    def _replace(self, old: Any, new: Any) -> list[Value]:
        """Let the new operation take the old one's place; return its further results."""
        for before, after in zip(old.results, new.results, strict=False):
            before.replace_all_uses_with(after)
        count = len(old.results)
        self._inside.discard(old)  # another operation may get its address
        erase(old)
        self._replacement = new
        return list(new.results)[count:]

    def _after(
        self, condition: Any, values: Sequence[Value], state: list[Value], counter: Value, loop: Any
    ) -> list[Value]:
        """Check what the condition computed last, behind the loop."""
        following = _next(loop)
        with ir.InsertionPoint(following):
            copies = self._copy_condition(condition, values)
            with self._region(counter):
                for copy in copies:
                    if copy in self._checked:
                        stretch = _Stretch(len(self._layout.groups))
                        self._note(self._checked[copy], stretch)
                        state = self._flush(stretch, state, copy)
        return state

    def _leave_early(self, condition: Any, added: Sequence[Value]) -> None:
        """End a loop that may have no end as soon as an error is found."""
        last = terminator(condition)
        if not any(k in ERRORS for k in self._layout.groups[0]) or counts(condition) or _has_effects(condition.owner):
            return
        with ir.InsertionPoint(last):
            none = compare(added[0], constant(added[0].type, "0"), "EQ")
            return_([elementwise("and", last.operands[0], none)])
        erase(last)


class _Stretch:
    """Conditions of operations between two loops or branches, joined to the number of the first that holds.

    Those of arrays of one shape are an array of bytes, which the kernels of these operations compute beside their
    results: the larger a byte, the earlier its operation.
    """

    def __init__(self, groups: int) -> None:
        self._scalars: list[list[tuple[int, Value | Pointwise]]] = [[] for _ in range(groups)]
        self._arrays: list[list[_Bytes]] = [[] for _ in range(groups)]

    def note(self, group: int, number: int, condition: Value | Pointwise) -> None:
        """Note a condition of an operation."""
        if not isinstance(condition, Pointwise) or not condition.shape:
            self._scalars[group].append((number, condition))
            return
        arrays = self._arrays[group]
        found = next((a for a in arrays if a.shape == condition.shape and len(a.numbers) < MOST_IN_ONE), None)
        if found is None:
            found = _Bytes(condition.shape)
            arrays.append(found)
        found.note(number, condition)

    def first(self, group: int, nan_alone: bool) -> Value | None:
        """Emit the number of the first operation whose condition holds, 0 for none; None without conditions.

        Where there are many, they are told apart in a branch, which is taken if one of them may hold.
        """
        scalars, arrays = self._scalars[group], self._arrays[group]
        largest = [each.largest() for each in arrays]
        if not scalars and not arrays:
            return None

        def number_() -> Value:
            found = [pair for each, code in zip(arrays, largest, strict=True) for pair in each.told_by(code)]
            found += [(n, c.emitted() if isinstance(c, Pointwise) else c) for n, c in scalars]
            made = constant(integer_tensor(32), "0")
            for each, condition in sorted(found, key=lambda pair: pair[0], reverse=True):
                made = select(condition, constant(integer_tensor(32), str(each)), made)
            return made

        if len(scalars) + sum(len(each.numbers) for each in arrays) < MANY:
            return number_()
        alarms = [compare(code, constant(code.type, "0"), "NE", None) for code in largest]
        return choose(one_of([*alarms, *_alarms([c for _, c in scalars], nan_alone)]), number_, 32)


def _alarms(conditions: Sequence[Value | Pointwise], nan_alone: bool) -> list[Value]:
    """Return conditions of which one holds wherever one of the scalars does: the ends of chains tell of the whole."""
    shown = list(dict.fromkeys(c.result for c in conditions if isinstance(c, Pointwise) and c.result is not None))
    makers = {value.owner.operation for value in shown}
    made = [
        c if not isinstance(c, Pointwise) else c.emitted() for c in conditions if getattr(c, "result", None) is None
    ]
    for value in shown:
        if not any(use.owner.operation in makers and passes(value, use, nan_alone=nan_alone) for use in value.uses):
            made.append(is_nan(value) if nan_alone else _is_not_finite(value))
    return made


def _is_not_finite(value: Value) -> Value:
    """Return whether a scalar is NaN or infinite: x - x is NaN then, in fewer instructions than a comparison takes."""
    is_complex = isinstance(value.type.element_type, ir.ComplexType)
    return is_not_finite(value) if is_complex else is_nan(elementwise("subtract", value, value))


class _Bytes:
    """Conditions on arrays of one shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.numbers: list[int] = []
        self._value: Value = None

    def note(self, number_: int, condition: Pointwise) -> None:
        """Join a further condition; one operation computes it and joins it, so that kernels stay small."""
        element = ir.IntegerType.get_unsigned(8)
        code = str(MOST_IN_ONE - len(self.numbers))
        before = () if self._value is None else (self._value,)

        def compute(*scalars: Value) -> Value:
            type_ = ir.RankedTensorType.get([], element)
            holds = condition.compute(*scalars[len(before) :])
            if not before:
                return select(holds, constant(type_, code), constant(type_, "0"))
            larger = elementwise("maximum", scalars[0], constant(type_, code))  # masked, one instruction of AVX-512
            return select(holds, larger, scalars[0])

        self._value = mapped([*before, *condition.values], element, compute)
        self.numbers.append(number_)

    def largest(self) -> Value:
        """Emit the largest byte, 0 where no condition holds."""
        none, value = constant(tensor(self._value.type, []), "0"), self._value
        if value.type.rank > 1 and value.type.shape[-1] >= LEAST_ROW:
            value = reduce(value, none, [value.type.rank - 1], "maximum")
        return reduce(value, none, list(range(value.type.rank)), "maximum")

    def told_by(self, largest: Value) -> list[tuple[int, Value]]:
        """Emit a scalar for each operation; of those that hold anywhere only the first must be true."""
        codes = [constant(largest.type, str(MOST_IN_ONE - i)) for i in range(len(self.numbers))]
        return [(n, compare(largest, code, "EQ", None)) for n, code in zip(self.numbers, codes, strict=True)]


def captured_values(op: Any) -> list[Value]:
    """Return the values that are captured of an operation: its operands, then its results; none of None."""
    return [] if op is None else [value for value in (*op.operands, *op.results) if not is_token(value.type)]


def _zeros(type_: Any) -> Value:
    one = "1" if "E8M0" in str(type_.element_type) else "0"  # a type without zero
    scalar = number(type_, one)
    return broadcast(scalar, list(type_.shape)) if type_.rank else scalar


def _next(op: Any) -> Any:
    operations = [view.operation for view in op.block.operations]
    return operations[operations.index(op) + 1]


def _with_results(old: Any, operands: Sequence[Value], types: Sequence[Any]) -> Any:
    """Create the operation with further results, with its regions moved into it."""
    attributes = {name: old.attributes[name] for name in old.attributes if name != "result_layouts"}
    new = operation(old.name, operands, [*(r.type for r in old.results), *types], attributes, len(old.regions))
    for mine, theirs in zip(new.regions, old.regions, strict=True):
        theirs.blocks[0].append_to(mine)
    return new


def _return_more(block: Any, values: Sequence[Value]) -> None:
    last = terminator(block)
    with last.location, ir.InsertionPoint(last):
        return_([*last.operands, *values])
    erase(last)


def _walk(op: Any) -> list[Any]:
    found: list[Any] = []

    def note(inner: Any) -> ir.WalkResult:
        found.append(inner.operation)
        return ir.WalkResult.ADVANCE

    op.operation.walk(note, ir.WalkOrder.PRE_ORDER)
    return found


def _map_operands(copy: Any, mapping: dict[Value, Value]) -> None:
    for inner in _walk(copy):
        for i, operand in enumerate(inner.operands):
            if operand in mapping:
                inner.operands[i] = mapping[operand]


def _has_effects(loop: Any) -> bool:
    names = {op.name.partition(".")[2] for op in _walk(loop)}
    return any(name.startswith(prefix) for name in names for prefix in _EFFECTS)


@module_pass(
    "stablexla-check-values",
    "adds results to main that say which operation was the first to make a NaN, or what else is asked for",
    side="stablehlo",
)
def check_values(module: ir.Module, *, kinds: str = "nan", least: bool = False) -> None:
    """Add checks to `main`; no pipeline has this pass, as the program's signature is another one then.

    Args:
        kinds: words of `CompileOptions.check`, joined by `+`.
        least: checks the fewest operations that tell of every NaN or infinity.
    """
    words = tuple(word for word in kinds_of(kinds.replace("+", ",")) if word != CONSTANTS)
    operations = checked_operations(main_of(module), words)
    chosen = sinks(operations, words) if least else operations
    instrument(module, chosen, Layout(operations, words))
