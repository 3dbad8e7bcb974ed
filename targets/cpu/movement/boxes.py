"""Analysis of kernels that assemble arrays: pad, concatenate, stack, and one block inserted into a larger array.

The result is a background (a splat, or the previous contents of its memory) with boxes in it. Each box holds a loop
nest of elementwise operations: producers are fused into the stores, without a temporary. Dimensions are collapsed where
no box and no array tells them apart. Emits no code.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.tensor_types import row_major
from stablexla.lowering.support.operations import defining
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.loop_nest import Load, LoopNest, Map, Ref, analyze_nest, collapse_loops, slice_starts

# The most parts that are interleaved, such as pairs of numbers.
MOST_WOVEN = Gate("assembly.most-woven", 4, eager=2)


@dataclass(eq=False)
class Box:
    """A part of the result.

    Attributes:
        nest: the loop nest of its elements; its loops are the result's dimensions.
        starts: offset in each dimension; a scalar argument of the kernel for some of an update's.
        steps: stride in each dimension, in elements of the result.
    """

    nest: LoopNest
    starts: list[int | ir.Value]
    steps: list[int]

    @property
    def ref(self) -> Ref:
        """The stored value."""
        return self.nest.stores[0].ref

    @property
    def sizes(self) -> list[int]:
        """Elements in each dimension."""
        return self.nest.extents

    def ends(self, dim: int) -> int:
        """Return the end of the box in a dimension, exclusive."""
        start = self.starts[dim]
        assert isinstance(start, int)
        return start + (self.sizes[dim] - 1) * self.steps[dim] + 1

    def rows(self) -> tuple[tuple[object, int, int], ...]:
        """Return the range that the box covers in all dimensions but the last."""
        return tuple(zip(self.starts, self.sizes, self.steps, strict=True))[:-1]


@dataclass
class Assembly:
    """A result of `shape`, assembled from boxes.

    Attributes:
        background: value between the boxes; None when they cover the result, or it is updated in place.
        base: the input that the result updates in place; None otherwise.
    """

    shape: list[int]
    element: ir.Type
    boxes: list[Box]
    background: Ref | None
    base: int | None


def match_assembly(kernel: Kernel) -> Assembly | None:
    """Match a kernel as an assembly, or return None."""
    if len(kernel.results) != 1 or not isinstance(kernel.results[0].type, ir.RankedTensorType):
        return None
    result = kernel.results[0]
    inserts: list[ir.Operation] = []
    value = result
    while (maker := defining(value)) is not None and maker.name == "tensor.insert_slice":
        inserts.insert(0, maker)
        value = maker.operands[1]
    if not inserts or 0 in result.type.shape:
        return None
    base = value.arg_number if maker is None else None
    background = None
    if maker is not None and maker.name != "tensor.empty":
        background = _one_number(kernel, value)
        if background is None:
            return None
    boxes = [_box(kernel, op) for op in inserts]
    found = [box for box in boxes if box is not None]
    if len(found) != len(boxes):
        return None
    made = Assembly(list(result.type.shape), result.type.element_type, found, background, base)
    return made if _simple(made) else None


@dataclass
class _PartOfKernel:
    """Some operations of a kernel, in the form of a kernel."""

    ops: list[ir.Operation]
    results: list[ir.Value]


def _nest_of(kernel: Kernel, value: ir.Value) -> LoopNest | None:
    """Return the loop nest that computes a value of the kernel."""
    needed, waiting = set(), [value]
    while waiting:
        maker = defining(waiting.pop())
        if maker is not None and maker not in needed:
            needed.add(maker)
            waiting += list(maker.operands)
    part = _PartOfKernel([op for op in kernel.ops if op in needed], [value])
    nest = analyze_nest(part, merge=False, parts=True)
    everything = frozenset(range(len(nest.extents))) if nest is not None else frozenset()
    if nest is None or nest.folds or nest.stores[0].domain != everything:
        return None
    return nest


def _one_number(kernel: Kernel, value: ir.Value) -> Ref | None:
    nest = _nest_of(kernel, value)
    if nest is None or nest.loads or any(node.deps for node in nest.nodes):
        return None
    return nest.stores[0].ref


def _box(kernel: Kernel, op: ir.Operation) -> Box | None:
    source = op.operands[0]
    nest, starts = _nest_of(kernel, source), slice_starts(op)
    shape = list(source.type.shape)
    if nest is None or starts is None or len(shape) != op.operands[1].type.rank:
        return None
    steps = list(ir.DenseI64ArrayAttr(op.attributes["static_strides"]))
    if not _spread(nest, shape):
        return None
    return Box(nest, starts, [1 if n == 1 else step for n, step in zip(shape, steps, strict=True)])


def _spread(nest: LoopNest, shape: list[int]) -> bool:
    """Give the nest a loop for each dimension of `shape`, including those of extent 1."""
    wide = [d for d, n in enumerate(shape) if n != 1]
    if [shape[d] for d in wide] != (nest.extents if wide else []):
        return False
    if list(nest.stores[0].strides) != ([row_major(shape)[d] for d in wide] if wide else [0]):
        return False
    place = dict(enumerate(wide))

    def strides(old: Sequence[int]) -> tuple[int, ...]:
        made = [0] * len(shape)
        for d, stride in enumerate(old):
            if d in place:
                made[place[d]] = stride
        return tuple(made)

    everything = frozenset(range(len(shape)))
    for node in nest.nodes:
        if isinstance(node, Load):
            node.strides = strides(node.strides)
        elif isinstance(node, Map):
            node.domain = everything
            node.deps = frozenset(place[d] for d in node.deps if d in place)
            node.indices = {k: place.get(d) if d is not None else None for k, d in node.indices.items()}
    (store,) = nest.stores
    store.strides, store.domain = strides(store.strides), everything
    nest.extents = list(shape)
    return True


# --- canonical form -------------------------------------------------------------------------------------------------


def _simple(whole: Assembly) -> bool:
    """Collapse dimensions; return whether boxes are disjoint and the updated array has no other uses."""
    moving = any(isinstance(start, ir.Value) for box in whole.boxes for start in box.starts)
    if moving and (len(whole.boxes) > 1 or whole.base is None):
        return False
    read = {node.buffer for box in whole.boxes for node in box.nest.loads}
    if whole.base is not None and whole.base in read:
        return False
    for number, one in enumerate(whole.boxes):
        if any(not _apart(one, other) for other in whole.boxes[:number]):
            return False
    if whole.background is None and whole.base is None:
        written = sum(_count(box.sizes) for box in whole.boxes)
        if written != _count(whole.shape):
            return False
    _drop_unit_dimensions(whole)
    _weave_last(whole)
    _join_dimensions(whole)
    return True


def _count(shape: Sequence[int]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def _apart(one: Box, other: Box) -> bool:
    """Whether two boxes are disjoint."""
    for d in range(len(one.sizes)):
        a, b = one.starts[d], other.starts[d]
        assert isinstance(a, int)
        assert isinstance(b, int)
        if one.ends(d) <= b or other.ends(d) <= a:
            return True
        step = one.steps[d] if one.sizes[d] > 1 else other.steps[d]
        same = one.steps[d] == other.steps[d] or 1 in (one.sizes[d], other.sizes[d])
        if same and (a - b) % step:
            return True
    return False


def _drop_unit_dimensions(whole: Assembly) -> None:
    """Drop dimensions of extent 1, but for the last one left."""
    kept = [d for d, n in enumerate(whole.shape) if n != 1] or [len(whole.shape) - 1]
    if len(kept) == len(whole.shape) or not whole.shape:
        return
    groups: list[list[int]] = []
    waiting: list[int] = []
    for d in range(len(whole.shape)):
        waiting.append(d)
        if d in kept:
            groups.append(waiting)
            waiting = []
    if waiting:  # trailing ones go behind the last that is kept
        groups[-1] = [*waiting, *groups[-1]]
    _regroup(whole, groups)


def _weave_last(whole: Assembly) -> None:
    """Turn boxes that each hold one index of a short last dimension into boxes with that stride."""
    if len(whole.shape) < 2 or not 1 < whole.shape[-1] <= MOST_WOVEN() or whole.base is not None:
        return
    if any(box.sizes[-1] != 1 for box in whole.boxes):
        return
    apart = whole.shape[-1]
    for box in whole.boxes:
        last = box.starts[-1]
        outer, step = box.starts[-2], box.steps[-2]
        assert isinstance(last, int)
        assert isinstance(outer, int)
        collapse_loops(box.nest, [*([d] for d in range(len(box.sizes) - 2)), [len(box.sizes) - 1, len(box.sizes) - 2]])
        box.starts[-2:] = [outer * apart + last]
        box.steps[-2:] = [step * apart]
    whole.shape[-2:] = [whole.shape[-2] * apart]


def _join_dimensions(whole: Assembly) -> None:
    groups = [[0]]
    for d in range(1, len(whole.shape)):
        if all(_inseparable(whole, box, d - 1, d) for box in whole.boxes):
            groups[-1].append(d)
        else:
            groups.append([d])
    if len(groups) < len(whole.shape):
        _regroup(whole, groups)


def _inseparable(whole: Assembly, box: Box, outer: int, inner: int) -> bool:
    """Whether two dimensions collapse: the box covers the inner one, and its arrays are contiguous over both."""
    if box.starts[inner] != 0 or box.sizes[inner] != whole.shape[inner] or box.steps[outer] != 1:
        return False
    if isinstance(box.starts[outer], ir.Value):
        return False
    for node in box.nest.nodes:
        if isinstance(node, Map) and not {outer, inner}.isdisjoint(node.indices.values()):
            return False
        in_line = not isinstance(node, Load) or node.strides[outer] == node.strides[inner] * box.sizes[inner]
        if not in_line and box.sizes[outer] > 1:
            return False
    return True


def _regroup(whole: Assembly, groups: Sequence[Sequence[int]]) -> None:
    """Collapse each group of dimensions; of all but the first a box covers the whole, or they have extent 1."""
    shape = whole.shape
    for box in whole.boxes:
        starts: list[int | ir.Value] = []
        for group in groups:
            start: int | ir.Value = box.starts[group[0]]
            for d in group[1:]:
                if shape[d] != 1 and isinstance(start, int):
                    start = start * shape[d]
                own = box.starts[d]
                start = own if isinstance(own, ir.Value) or not isinstance(start, int) else start + own
            starts.append(start)
        box.starts = starts
        box.steps = [max(box.steps[d] for d in group) for group in groups]
        collapse_loops(box.nest, [_widest_last(box, group) for group in groups])
    whole.shape = [_count([shape[d] for d in group]) for group in groups]


def _widest_last(box: Box, group: Sequence[int]) -> list[int]:
    """Put a loop of extent above 1 last in a group, if there is one: arrays keep the last loop's stride."""
    wide = [d for d in group if box.sizes[d] > 1]
    last = wide[-1] if wide else group[-1]
    return [*(d for d in group if d != last), last]
