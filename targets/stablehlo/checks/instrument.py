"""Programs that check themselves: further results say which operation was the first to show a NaN or the like.

They are plain StableHLO: conditions become numbers of operations, carried through loops and branches as further state.
A loop that does not count to a known end is left as soon as something is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.dialects.hlo import (
    block,
    broadcast,
    compare,
    constant,
    elementwise,
    integer_tensor,
    number,
    operation,
    return_,
    select,
)
from stablexla.dialects.value_checks import CONSTANTS, ERRORS, INF, NAN, WARNINGS, kinds_of
from stablexla.lowering.support.types import is_token
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.signature.signature import main_of
from stablexla.targets.stablehlo.checks.conditions import (
    Condition,
    bad,
    choose,
    condition_of,
    is_bad,
    joined,
    mapped,
    on_elements,
    reduced,
)
from stablexla.targets.stablehlo.checks.operations import Checked, checked_operations, counts, terminator
from stablexla.targets.stablehlo.checks.sinks import passes, sinks
from stablexla.targets.stablehlo.inlining import all_operations, clone

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
        groups: the kinds that are checked of `ERRORS` and of `WARNINGS`, if there are any.
        depth: the loops around the innermost operation that is checked.
        size: how many scalars there are.
        places: for each group where its number is.
    """

    def __init__(self, operations: Sequence[Checked], kinds: Sequence[str]) -> None:
        both = {words: tuple(k for k in kinds if k in words) for words in (ERRORS, WARNINGS)}
        self.groups = {words: own for words, own in both.items() if own}
        self.depth = max((len(each.loops) for each in operations), default=0)
        self.size = len(self.groups) * (1 + self.depth)
        self.places = dict(zip(self.groups, range(0, self.size, 1 + self.depth), strict=True))


def instrument(
    module: ir.Module,
    operations: Sequence[Checked],
    kinds: Sequence[str],
    *,
    captures: bool = False,
    returned: Mapping[int, Sequence[str]] | None = None,
) -> Layout:
    """Replace `main` by one with checks; return the layout of its further results.

    Args:
        operations: those that are checked.
        kinds: for what.
        captures: there is one of them, of which the values at the finding are returned as well.
        returned: results of `main` that are looked at in the end, and for what; their number is that of no operation.
    """
    old, layout = main_of(module), Layout(operations, kinds)
    with module.context, ir.Location.unknown(), ir.InsertionPoint(old):
        new = operation("func.func", attributes={name: old.attributes[name] for name in old.attributes}, regions=1)
        _Instrumenter(operations, layout, captures).main(old.regions[0].blocks[0], new, returned or {})
    erase(old)
    return layout


class _Instrumenter:
    """Copies a function, operation by operation, with the checks between them.

    Attributes:
        at: the value in the copy for each value of the function.
    """

    def __init__(self, operations: Sequence[Checked], layout: Layout, captures: bool) -> None:
        self._checked = {each.op: each for each in operations}
        self._inside = {op for each in operations for op, _ in each.path}  # loops and branches that hold one of them
        self._layout = layout
        self._captured = captured(operations[0]) if captures else []
        self._counters: list[Value] = []
        self.at: dict[Value, Value] = {}

    def main(self, old: Any, new: Any, returned: Mapping[int, Sequence[str]]) -> None:
        made = new.regions[0].blocks.append(
            *(a.type for a in old.arguments), arg_locs=[a.location for a in old.arguments]
        )
        last = terminator(old)
        shown = [bad([last.operands[i]], NAN if tuple(kinds) == (NAN,) else INF) for i, kinds in returned.items()]
        with ir.InsertionPoint(made):
            state = self._block(old, made.arguments, self._start(), shown)
            results = [*self._of(last.operands), *state]
            operation("func.return", results)
        types = ir.FunctionType.get([a.type for a in made.arguments], [v.type for v in results])
        new.attributes["function_type"] = ir.TypeAttr.get(types)
        if "res_attrs" in new.attributes:
            own = [*ir.ArrayAttr(new.attributes["res_attrs"]), *(ir.DictAttr.get({}) for _ in state)]
            new.attributes["res_attrs"] = ir.ArrayAttr.get(own)

    def _of(self, values: Iterable[Value]) -> list[Value]:
        return [self.at[value] for value in values]

    # ---- state -----------------------------------------------------------------------------------------------------

    def _start(self) -> list[Value]:
        """Return the state before anything is found: number 0, iterations -1, values 0."""
        i32 = integer_tensor(32)
        each = [constant(i32, "0"), *(constant(i32, "-1") for _ in range(self._layout.depth))]
        return each * len(self._layout.groups) + [_zeros(type_) for type_, _ in self._captured]

    def _found(self, state: list[Value], words: tuple[str, ...], first: Value) -> list[Value]:
        """Return the state after a stretch of operations, of which `first` is the number of the first that shows."""
        at, none = self._layout.places[words], constant(integer_tensor(32), "0")
        is_new = elementwise("and", compare(first, none, "NE"), compare(state[at], none, "EQ"))
        new = dict(enumerate([first, *self._counters], at))
        new |= {self._layout.size + i: emit(self.at) for i, (_, emit) in enumerate(self._captured)}
        return [select(is_new, new[i], value) if i in new else value for i, value in enumerate(state)]

    # ---- blocks ----------------------------------------------------------------------------------------------------

    def _block(
        self, old: Any, arguments: Iterable[Value], state: list[Value], returned: Sequence[Condition] = ()
    ) -> list[Value]:
        """Copy a block's operations with their checks; return the state at its end."""
        self.at.update(zip(old.arguments, arguments, strict=True))
        return self._operations([view.operation for view in old.operations][:-1], state, returned)

    def _operations(
        self, operations: Sequence[Any], state: list[Value], returned: Sequence[Condition] = ()
    ) -> list[Value]:
        stretch = self._stretch()
        for op in operations:
            with op.location:
                if op in self._inside:
                    state, stretch = self._flush(stretch, state), self._stretch()
                    state = self._while(op, state) if op.name == "stablehlo.while" else self._branches(op, state)
                else:
                    clone(op, self.at)
                for each in stretch.values() if op in self._checked else ():
                    each.note(self._checked[op], self.at)
        for condition in returned:
            stretch[ERRORS].add(RETURNED, condition, self.at)
        return self._flush(stretch, state)

    def _stretch(self) -> dict[tuple[str, ...], _Stretch]:
        return {words: _Stretch(kinds) for words, kinds in self._layout.groups.items()}

    def _flush(self, stretch: Mapping[tuple[str, ...], _Stretch], state: list[Value]) -> list[Value]:
        for words, each in stretch.items():
            first = each.first(self.at)
            if first is not None:
                state = self._found(state, words, first)
        return state

    def _control(self, op: Any, operands: Sequence[Value], added: Sequence[Value]) -> Any:
        """Create a loop or branches with further results."""
        attributes = {name: op.attributes[name] for name in op.attributes if name != "result_layouts"}
        types = [value.type for value in (*op.results, *added)]
        new = operation(op.name, operands, types, attributes, len(op.regions))
        self.at.update(zip(op.results, new.results, strict=False))
        return new

    def _branches(self, op: Any, state: list[Value]) -> list[Value]:
        new = self._control(op, self._of(op.operands), state)
        for old, region in zip(op.regions, new.regions, strict=True):
            with block(region):
                inner = self._block(old.blocks[0], (), state)
                return_([*self._of(terminator(old.blocks[0]).operands), *inner])
        return list(new.results)[len(op.results) :]

    def _while(self, op: Any, state: list[Value]) -> list[Value]:
        """Carry the state and a count of iterations.

        The condition is checked where the body begins, and behind the loop, in copies: it returns nothing else.
        """
        carried = [*self._of(op.operands), *state, constant(integer_tensor(32), "0")]
        new = self._control(op, carried, carried[len(op.results) :])
        condition, body = (region.blocks[0] for region in op.regions)
        asked = [view.operation for view in condition.operations][:-1]
        last = max((i for i, each in enumerate(asked) if each in self._checked or each in self._inside), default=-1)
        types, count = [value.type for value in carried], len(op.results)
        with block(new.regions[0], types) as given:
            self.at.update(zip(condition.arguments, given, strict=False))
            for each in asked:
                clone(each, self.at)
            goes_on = self.at[terminator(condition).operands[0]]
            if ERRORS in self._layout.groups and not counts(condition) and not _has_effects(op):
                none = compare(given[count], constant(given[count].type, "0"), "EQ")
                goes_on = elementwise("and", goes_on, none)
            return_([goes_on])
        with block(new.regions[1], types) as given:
            self._counters.append(given[-1])
            self.at.update(zip((*condition.arguments, *body.arguments), given[:count] * 2, strict=True))
            own = [view.operation for view in body.operations][:-1]
            inner = self._operations([*asked[: last + 1], *own], given[count:-1])
            following = elementwise("add", given[-1], constant(given[-1].type, "1"))
            return_([*self._of(terminator(body).operands), *inner, following])
        *state, self._counters[-1] = list(new.results)[count:]
        self.at.update(zip(condition.arguments, new.results, strict=False))
        state = self._operations(asked[: last + 1], state)
        self._counters.pop()
        return state


class _Stretch:
    """Conditions of operations between two loops or branches, joined to the number of the first that holds.

    Those of arrays of one shape are an array of bytes, which the kernels of these operations compute beside their
    results: the larger a byte, the earlier its operation.
    """

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = kinds
        self._scalars: list[tuple[int, Condition, Value | None]] = []
        self._arrays: list[_Bytes] = []

    def note(self, checked: Checked, at: Mapping[Value, Value]) -> None:
        """Note the condition of an operation."""
        condition = condition_of(checked, self._kinds)
        if condition is not None:
            self.add(checked.number, condition, at)

    def add(self, number_: int, condition: Condition, at: Mapping[Value, Value]) -> None:
        """Add a condition; those that make kernels are emitted here, behind what they look at."""
        if not condition.shape:
            self._scalars.append((number_, condition, None if condition.is_pointwise else condition.emit(at)))
            return
        found = [a for a in self._arrays if a.shape == condition.shape and len(a.numbers) < MOST_IN_ONE]
        if not found:
            found = [_Bytes(condition.shape)]
            self._arrays += found
        found[0].add(number_, condition, at)

    def first(self, at: Mapping[Value, Value]) -> Value | None:
        """Emit the number of the first operation whose condition holds, 0 for none; None without conditions.

        Where there are many, they are told apart in a branch, which is taken if one of them may hold.
        """
        if not self._scalars and not self._arrays:
            return None
        largest = [reduced(each.value, "maximum") for each in self._arrays]

        def number_() -> Value:
            found = [
                (n, compare(code, constant(code.type, MOST_IN_ONE - i), "EQ", None))
                for each, code in zip(self._arrays, largest, strict=True)
                for i, n in enumerate(each.numbers)
            ]
            found += [(n, condition.emit(at) if made is None else made) for n, condition, made in self._scalars]
            first = constant(integer_tensor(32), "0")
            for n, holds in sorted(found, key=lambda pair: pair[0], reverse=True):
                first = select(holds, constant(integer_tensor(32), n), first)
            return first

        if len(self._scalars) + sum(len(each.numbers) for each in self._arrays) < MANY:
            return number_()
        alarms = [compare(code, constant(code.type, "0"), "NE", None) for code in largest]
        return choose(joined("or", [*alarms, *self._alarms(at)]), number_, 32)

    def _alarms(self, at: Mapping[Value, Value]) -> list[Value]:
        """Return conditions of which one holds wherever one of the scalars does: ends of chains tell of the whole."""
        shown = dict.fromkeys(c.shown_in for _, c, _ in self._scalars if c.shown_in is not None)
        makers, nan_alone = {value.owner.operation for value in shown}, self._kinds == (NAN,)
        made = [c.emit(at) if m is None else m for _, c, m in self._scalars if c.shown_in is None]
        for value in shown:
            if not any(use.owner.operation in makers and passes(use, nan_alone=nan_alone) for use in value.uses):
                x = at[value]  # x - x is NaN of an infinity too, in fewer instructions than a comparison takes
                made.append(is_bad(x if nan_alone else elementwise("subtract", x, x), NAN))
        return made


class _Bytes:
    """Conditions on arrays of one shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.numbers: list[int] = []
        self.value: Value = None

    def add(self, number_: int, condition: Condition, at: Mapping[Value, Value]) -> None:
        """Join a further condition; one operation computes it and joins it, so that kernels stay small."""
        type_ = ir.RankedTensorType.get([], ir.IntegerType.get_unsigned(8))
        code = MOST_IN_ONE - len(self.numbers)
        before = [] if self.value is None else [self.value]

        def compute(*scalars: Value) -> Value:
            holds = condition.compute(*scalars[len(before) :])
            if not before:
                return select(holds, constant(type_, code), constant(type_, 0))
            larger = elementwise("maximum", scalars[0], constant(type_, code))  # masked, one instruction of AVX-512
            return select(holds, larger, scalars[0])

        self.value = mapped([*before, *(at[value] for value in condition.values)], type_.element_type, compute)
        self.numbers.append(number_)


def captured_values(op: Any) -> list[Value]:
    """Return the values that are captured of an operation, each once: its operands, then its results."""
    return [value for value in dict.fromkeys((*op.operands, *op.results)) if not is_token(value.type)]


def captured(checked: Checked) -> list[tuple[Any, Callable[[Mapping[Value, Value]], Value]]]:
    """Return the types of what is captured of an operation, and how each is emitted from the copy's values.

    These are its values, and then where elements of the results show what is found.
    """
    found = [(value.type, itemgetter(value)) for value in captured_values(checked.op)]
    return found + [(integer_tensor(1, each.shape), each.emit) for _, _, each in on_elements(checked)]


def _zeros(type_: Any) -> Value:
    one = "1" if "E8M0" in str(type_.element_type) else "0"  # a type without zero
    return broadcast(number(type_, one), list(type_.shape)) if type_.rank else number(type_, one)


def _has_effects(loop: Any) -> bool:
    names = [op.name.partition(".")[2] for op in all_operations(loop)]
    return any(name.startswith(_EFFECTS) for name in names)


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
    instrument(module, sinks(operations, words) if least else operations, words)
