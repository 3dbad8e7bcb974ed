"""Programs that check themselves: further results say which operation was the first to show a NaN or the like.

They are plain StableHLO: conditions become numbers of operations, carried through loops and branches as further state.
A loop that does not count to a known end is left as soon as something is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects import hlo
from stablexla.dialects.erasing import erase
from stablexla.dialects.value_checks import CONSTANTS, kinds_of
from stablexla.lowering.support.types import is_token
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.signature.signature import main_of
from stablexla.targets.stablehlo.checks.conditions import (
    Condition,
    condition_of,
    is_bad,
    joined,
    mapped,
    on_elements,
    reduced,
)
from stablexla.targets.stablehlo.checks.operations import ERROR, Checked, Groups, checked_operations, counts, widest
from stablexla.targets.stablehlo.checks.sinks import passes, sinks
from stablexla.targets.stablehlo.computations.element_loops import where
from stablexla.targets.stablehlo.inlining import all_operations, clone

Value = Any
MOST_IN_ONE = 200
"""Operations whose conditions become one array of bytes at most."""
MANY = 4
"""Conditions that are told apart in a branch."""
_EFFECTS = ("all_", "collective_", "reduce_scatter", "custom_call", "infeed", "outfeed", "send", "recv")


class Layout:
    """The further results: for each group a number and iterations; then values.

    Attributes:
        depth: the loops around the innermost operation that is checked.
        size: how many scalars there are.
        places: for each group where its number is.
    """

    def __init__(self, groups: Groups) -> None:
        paths = [each.path for group in groups.values() for each in group]
        self.depth = max((sum(op.name == "stablehlo.while" for op, _ in path) for path in paths), default=0)
        self.size = len(groups) * (1 + self.depth)
        self.places = dict(zip(groups, range(0, self.size, 1 + self.depth), strict=True))


def instrument(module: ir.Module, groups: Groups, *, captures: bool = False) -> Layout:
    """Replace `main` by one with checks; return the layout of its further results.

    Args:
        groups: what is checked.
        captures: it is one operation, of which the values at the finding are returned as well.
    """
    old, layout = main_of(module), Layout(groups)
    with module.context, ir.Location.unknown(), ir.InsertionPoint(old):
        new = hlo.operation("func.func", attributes={name: old.attributes[name] for name in old.attributes}, regions=1)
        _Instrumenter(groups, layout, captures).main(old.regions[0].blocks[0], new)
    erase(old)
    return layout


class _Instrumenter:
    """Copies a function, operation by operation, with the checks between them.

    Attributes:
        at: the value in the copy for each value of the function.
    """

    def __init__(self, groups: Groups, layout: Layout, captures: bool) -> None:
        self._groups, self._layout = groups, layout
        self._widest = {name: widest(group) for name, group in groups.items()}
        every = [(name, each) for name, group in groups.items() for each in group]
        self._inside = {op for _, each in every for op, _ in each.path}  # loops and branches that hold one of them
        self._checked: dict[Any, list[tuple[str, Checked]]] = {}
        for name, each in every:
            self._checked.setdefault(each.op, []).append((name, each))
        self._captured = _captured(every[0][1]) if captures else []
        self._counters: list[Value] = []
        self.at: dict[Value, Value] = {}

    def main(self, old: Any, new: Any) -> None:
        types, locations = [a.type for a in old.arguments], [a.location for a in old.arguments]
        made = new.regions[0].blocks.append(*types, arg_locs=locations)
        self.at.update(zip(old.arguments, made.arguments, strict=True))
        with ir.InsertionPoint(made):
            state = self._block(_operations(old), self._start())
            results = [*self._of(_operations(old)[-1].operands), *state]
            hlo.operation("func.return", results)
        new.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, [v.type for v in results]))
        if "res_attrs" in new.attributes:
            own = [*ir.ArrayAttr(new.attributes["res_attrs"]), *(ir.DictAttr.get({}) for _ in state)]
            new.attributes["res_attrs"] = ir.ArrayAttr.get(own)

    def _of(self, values: Iterable[Value]) -> list[Value]:
        return [self.at[value] for value in values]

    # ---- state -----------------------------------------------------------------------------------------------------

    def _start(self) -> list[Value]:
        """Return the state before anything is found: number 0, iterations -1, values 0."""
        i32 = hlo.integer_tensor(32)
        each = [hlo.constant(i32, 0), *(hlo.constant(i32, -1) for _ in range(self._layout.depth))]
        return each * len(self._groups) + [_zeros(type_) for type_, _ in self._captured]

    def _found(self, state: list[Value], group: str, first: Value) -> list[Value]:
        """Return the state after a stretch of operations, of which `first` is the number of the first that shows."""
        at, none = self._layout.places[group], hlo.constant(hlo.integer_tensor(32), 0)
        is_new = hlo.elementwise("and", hlo.compare(first, none, "NE"), hlo.compare(state[at], none, "EQ"))
        new = dict(enumerate([first, *self._counters], at))
        new |= {self._layout.size + i: emit(self.at) for i, (_, emit) in enumerate(self._captured)}
        return [hlo.select(is_new, new[i], value) if i in new else value for i, value in enumerate(state)]

    # ---- blocks ----------------------------------------------------------------------------------------------------

    def _block(self, operations: Sequence[Any], state: list[Value]) -> list[Value]:
        """Copy operations of a block with their checks, but not what it returns; return the state at their end."""
        stretch: dict[str, _Stretch] = {}
        for op in operations:
            with op.location:
                if op in self._inside:
                    state, stretch = self._flush(stretch, state), {}
                    state = self._while(op, state) if op.name == "stablehlo.while" else self._branches(op, state)
                elif not op.name.endswith(".return"):
                    clone(op, self.at)
                for name, each in self._checked.get(op, ()):
                    if name not in stretch:
                        stretch[name] = _Stretch(self._widest[name])
                    stretch[name].note(each, self.at)
        return self._flush(stretch, state)

    def _flush(self, stretch: Mapping[str, _Stretch], state: list[Value]) -> list[Value]:
        for name in self._groups:
            first = stretch[name].first(self.at) if name in stretch else None
            if first is not None:
                state = self._found(state, name, first)
        return state

    def _control(self, op: Any, operands: Sequence[Value], added: Sequence[Value]) -> Any:
        """Create a loop or branches with further results."""
        attributes = {name: op.attributes[name] for name in op.attributes if name != "result_layouts"}
        types = [value.type for value in (*op.results, *added)]
        new = hlo.operation(op.name, operands, types, attributes, len(op.regions))
        self.at.update(zip(op.results, new.results, strict=False))
        return new

    def _branches(self, op: Any, state: list[Value]) -> list[Value]:
        new = self._control(op, self._of(op.operands), state)
        for old, region in zip(op.regions, new.regions, strict=True):
            operations = _operations(old.blocks[0])
            with hlo.block(region):
                inner = self._block(operations, state)
                hlo.return_([*self._of(operations[-1].operands), *inner])
        return list(new.results)[len(op.results) :]

    def _while(self, op: Any, state: list[Value]) -> list[Value]:
        """Carry the state and a count of iterations.

        The condition is checked where the body begins, and behind the loop, in copies: it returns nothing else.
        """
        carried, count = [*self._of(op.operands), *state, hlo.constant(hlo.integer_tensor(32), 0)], len(op.results)
        new = self._control(op, carried, carried[count:])
        (condition, body), types = (region.blocks[0] for region in op.regions), [value.type for value in carried]
        (*asked, goes_on), operations = _operations(condition), _operations(body)
        with hlo.block(new.regions[0], types) as given:
            self.at.update(zip(condition.arguments, given, strict=False))
            for each in asked:
                clone(each, self.at)
            holds = self.at[goes_on.operands[0]]
            if ERROR in self._groups and not counts(condition) and not _has_effects(op):
                none = hlo.compare(given[count], hlo.constant(given[count].type, 0), "EQ")
                holds = hlo.elementwise("and", holds, none)
            hlo.return_([holds])
        while asked and asked[-1] not in self._checked and asked[-1] not in self._inside:
            asked.pop()
        with hlo.block(new.regions[1], types) as given:
            self._counters.append(given[-1])
            self.at.update(zip((*condition.arguments, *body.arguments), given[:count] * 2, strict=True))
            inner = self._block([*asked, *operations], given[count:-1])
            following = hlo.elementwise("add", given[-1], hlo.constant(given[-1].type, 1))
            hlo.return_([*self._of(operations[-1].operands), *inner, following])
        *state, self._counters[-1] = list(new.results)[count:]
        self.at.update(zip(condition.arguments, new.results, strict=False))
        state = self._block(asked, state)
        self._counters.pop()
        return state


class _Stretch:
    """Conditions of operations between two loops or branches, joined to the number of the first that holds.

    Those of arrays of one shape are an array of bytes, which the kernels of these operations compute beside their
    results: the larger a byte, the earlier its operation.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._scalars: list[tuple[int, Condition, Value | None]] = []
        self._codes: list[tuple[int, tuple[Any, int], int]] = []  # an operation's number, its array and its byte
        self._arrays: dict[tuple[Any, int], Value] = {}
        self._counts: Counter[Any] = Counter()

    def note(self, checked: Checked, at: Mapping[Value, Value]) -> None:
        """Note an operation's condition; one that makes kernels is emitted here, behind what it looks at."""
        condition, number = condition_of(checked), checked.number
        if not condition.shape:
            self._scalars.append((number, condition, None if condition.is_pointwise else condition.emit(at)))
            return
        page, place = divmod(self._counts[condition.shape], MOST_IN_ONE)
        key, code, byte = (condition.shape, page), MOST_IN_ONE - place, ir.IntegerType.get_unsigned(8)
        before = [self._arrays[key]] if key in self._arrays else []

        def join(*scalars: Value) -> Value:
            """Compute it and join it in one operation, so that kernels stay small."""
            holds, type_ = condition.compute(*scalars[len(before) :]), ir.RankedTensorType.get([], byte)
            if not before:
                return hlo.select(holds, hlo.constant(type_, code), hlo.constant(type_, 0))
            larger = hlo.elementwise("maximum", scalars[0], hlo.constant(type_, code))  # masked, one of AVX-512
            return hlo.select(holds, larger, scalars[0])

        self._arrays[key] = mapped([*before, *(at[value] for value in condition.values)], join, byte)
        self._codes.append((number, key, code))
        self._counts[condition.shape] += 1

    def first(self, at: Mapping[Value, Value]) -> Value | None:
        """Emit the number of the first operation whose condition holds, 0 for none; None without conditions.

        Where there are many, they are told apart in a branch, which is taken if one of them may hold.
        """
        if not self._scalars and not self._codes:
            return None
        largest = {key: reduced(array, "maximum") for key, array in self._arrays.items()}
        none = hlo.constant(hlo.integer_tensor(32), 0)

        def number() -> Value:
            found = [(n, hlo.compare(x := largest[k], hlo.constant(x.type, c), "EQ", None)) for n, k, c in self._codes]
            found += [(n, condition.emit(at) if made is None else made) for n, condition, made in self._scalars]
            first = none
            for n, holds in sorted(found, key=lambda pair: pair[0], reverse=True):
                first = hlo.select(holds, hlo.constant(none.type, n), first)
            return first

        if len(self._scalars) + len(self._codes) < MANY:
            return number()
        alarms = [hlo.compare(code, hlo.constant(code.type, 0), "NE", None) for code in largest.values()]
        return where(joined("or", [*alarms, *self._alarms(at)]), lambda: [number()], [none])[0]

    def _alarms(self, at: Mapping[Value, Value]) -> list[Value]:
        """Return conditions of which one holds wherever one of the scalars does: ends of chains tell of the whole."""
        shown = dict.fromkeys(c.shown_in for _, c, _ in self._scalars if c.shown_in is not None)
        makers = {value.owner.operation for value in shown}
        ends = [v for v in shown if not any(u.owner.operation in makers and passes(u, self._kind) for u in v.uses)]
        made = [c.emit(at) if m is None else m for _, c, m in self._scalars if c.shown_in is None]
        return made + [is_bad(at[value], self._kind) for value in ends]


def captured_values(op: Any) -> list[Value]:
    """Return the values that are captured of an operation, each once: its operands, then its results."""
    return [value for value in dict.fromkeys((*op.operands, *op.results)) if not is_token(value.type)]


def _captured(checked: Checked) -> list[tuple[Any, Callable[[Mapping[Value, Value]], Value]]]:
    """Return the types of what is captured of an operation, and how each is emitted from the copy's values.

    These are its values, and then where elements of the results show what is found.
    """
    found = [(value.type, itemgetter(value)) for value in captured_values(checked.op)]
    return found + [(hlo.integer_tensor(1, each.shape), each.emit) for _, _, each in on_elements(checked)]


def _zeros(type_: Any) -> Value:
    one = "1" if "E8M0" in str(type_.element_type) else "0"  # a type without zero
    return hlo.broadcast(hlo.number(type_, one), list(type_.shape))


def _operations(block: Any) -> list[Any]:
    return [view.operation for view in block.operations]


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
    groups = checked_operations(main_of(module), words)
    if least and ERROR in groups:
        groups[ERROR] = sinks(groups[ERROR])
    instrument(module, groups)
