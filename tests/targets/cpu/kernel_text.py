"""Spells kernels on tensors for tests: inputs, elementwise maps, reductions and constants, as MLIR text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Array:
    """A value of the kernel; `shape` is None for a scalar."""

    name: str
    shape: tuple[int, ...] | None
    element: str

    @property
    def type(self) -> str:
        """Spelling of its type."""
        if self.shape is None:
            return self.element
        return f"tensor<{'x'.join([*map(str, self.shape), self.element])}>"


Operand = Array | tuple[Array, str]


class KernelText:
    """Collects the operations of a kernel. In bodies, operands are %a, %b ..., totals follow them, %r is yielded."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._inputs: list[Array] = []
        self._lines: list[str] = []
        self._count = 0

    def input(self, element: str, shape: Sequence[int] | None = None) -> Array:
        """The next argument of the kernel."""
        made = Array(f"%in{len(self._inputs)}", None if shape is None else tuple(shape), element)
        self._inputs.append(made)
        return made

    def map(
        self, shape: Sequence[int], operands: Sequence[Operand], body: str, element: str = "f32", yields: str = "%r"
    ) -> Array:
        """An elementwise linalg.generic; an operand with a text reads through the map of these results."""
        return self.maps(shape, operands, body, [element], yields)[0]

    def maps(
        self, shape: Sequence[int], operands: Sequence[Operand], body: str, elements: Sequence[str], yields: str
    ) -> list[Array]:
        """An elementwise linalg.generic with several results."""
        outs = self._new(shape, elements)
        starts = [self._empty(out) for out in outs]
        identity = ", ".join(f"d{i}" for i in range(len(shape)))
        self._generic(shape, operands, starts, [identity] * len(outs), set(), body, yields, outs)
        return outs

    def fold(
        self,
        shape: Sequence[int],
        reduced: Sequence[int],
        operands: Sequence[Operand],
        starts: Sequence[tuple[str, str]],
        body: str,
        yields: str = "%r",
    ) -> list[Array]:
        """A reducing linalg.generic over loops of `shape`; each start is a literal or scalar name with its type."""
        kept = [d for d in range(len(shape)) if d not in reduced]
        outs = self._new([shape[d] for d in kept], [element for _, element in starts])
        filled = [self.fill(out.shape or (), start, out.element) for out, (start, _) in zip(outs, starts, strict=True)]
        map_ = ", ".join(f"d{d}" for d in kept)
        self._generic(shape, operands, filled, [map_] * len(outs), set(reduced), body, yields, outs)
        return outs

    def fill(self, shape: Sequence[int], value: str, element: str) -> Array:
        """A linalg.fill of a literal or of a scalar input."""
        if not value.startswith("%"):
            self._count += 1
            name = f"%c{self._count}"
            self._lines.append(f"{name} = arith.constant {value} : {element}")
            value = name
        (made,) = self._new(shape, [element])
        empty = self._empty(made)
        self._lines.append(
            f"{made.name} = linalg.fill ins({value} : {element}) outs({empty.name} : {made.type}) -> {made.type}"
        )
        return made

    def text(self, *results: Array) -> str:
        """The module."""
        arguments = ", ".join(f"{a.name}: {a.type}" for a in self._inputs)
        types = ", ".join(r.type for r in results)
        body = "\n  ".join(self._lines)
        names = ", ".join(r.name for r in results)
        return (
            f'func.func private @k({arguments}) -> ({types}) attributes {{stablexla.kernel = "{self._kind}"}} {{\n'
            f"  {body}\n  return {names} : {types}\n}}"
        )

    def _new(self, shape: Sequence[int], elements: Sequence[str]) -> list[Array]:
        """Names for the results of one operation."""
        self._count += 1
        names = [f"%v{self._count}#{i}" for i in range(len(elements))] if len(elements) > 1 else [f"%v{self._count}"]
        return [Array(name, tuple(shape), element) for name, element in zip(names, elements, strict=True)]

    def _empty(self, like: Array) -> Array:
        self._count += 1
        made = Array(f"%e{self._count}", like.shape, like.element)
        self._lines.append(f"{made.name} = tensor.empty() : {made.type}")
        return made

    def _generic(
        self,
        shape: Sequence[int],
        operands: Sequence[Operand],
        starts: Sequence[Array],
        out_maps: Sequence[str],
        reduced: set[int],
        body: str,
        yields: str,
        outs: Sequence[Array],
    ) -> None:
        dims = ", ".join(f"d{i}" for i in range(len(shape)))
        read = [o if isinstance(o, tuple) else (o, "" if o.shape is None else dims) for o in operands]
        maps = ", ".join(f"affine_map<({dims}) -> ({m})>" for m in [*(m for _, m in read), *out_maps])
        kinds = ", ".join('"reduction"' if d in reduced else '"parallel"' for d in range(len(shape)))
        arrays = [a for a, _ in read]
        ins = f"ins({', '.join(a.name for a in arrays)} : {', '.join(a.type for a in arrays)})" if arrays else ""
        out_types = ", ".join(o.type for o in outs)
        names = ", ".join(f"%{chr(97 + i)}: {v.element}" for i, v in enumerate([*arrays, *starts]))
        base = outs[0].name.split("#")[0]
        result = f"{base}:{len(outs)}" if len(outs) > 1 else base
        self._lines.append(
            f"{result} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} {ins} "
            f"outs({', '.join(s.name for s in starts)} : {out_types}) {{\n  ^bb0({names}):\n    {body}\n"
            f"    linalg.yield {yields} : {', '.join(o.element for o in outs)}\n  }} -> ({out_types})"
        )
