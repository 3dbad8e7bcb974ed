"""Expansion of `ragged_all_to_all` (pieces of dynamic sizes) to StableHLO.

In XLA and JAX it is a custom call of that name. All inputs of a group are gathered on each of its devices, which then
picks the rows that were sent to it: any target and transport can do that, at the cost of sending every input to every
device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects import hlo
from stablexla.dialects.attributes.device_groups import Grid, grid_of
from stablexla.dialects.custom_calls import registered
from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import UnsupportedError, VerificationError
from stablexla.lowering.support.context import place_of
from stablexla.targets.pipeline.contents import for_any
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.imports.shapes.calls import replace_value
from stablexla.targets.stablehlo.inlining import operations_of
from stablexla.targets.stablehlo.meshes import call_target

RAGGED = "ragged_all_to_all"
_CONFIGS = ("backend_config", "mhlo.backend_config")
_DEVICE_TO_DEVICE = 1


@module_pass(
    "stablexla-expand-ragged-exchanges",
    "writes calls of @ragged_all_to_all out as all_gather, all_to_all, and a gather of the rows that came",
    side="stablehlo",
    acts_on=for_any(["stablehlo.custom_call"]),
)
def expand_ragged_exchanges(module: ir.Module) -> None:
    """Expand the calls, unless a user has registered a function of that name.

    Raises:
        VerificationError: operands that do not fit one another, or the devices that there are.
        UnsupportedError: groups of different sizes.
    """
    if registered(RAGGED) is not None:
        return
    for op in operations_of(module, "stablehlo.custom_call"):
        if call_target(op) == RAGGED:
            with op.context, op.location, ir.InsertionPoint(op):
                replace_value(op.results[0], _expanded(_Exchange(op, grid_of(module))))
            erase(op)


class _Exchange:
    """A call: its participating devices, and its pieces.

    Attributes:
        operands: input, output, input offsets, send sizes, output offsets, and sizes to receive.
        table: the groups, as numbers of replicas, or of partitions where there is a channel.
        size: how many devices a group has.
        pieces: how many pieces a device sends.
    """

    def __init__(self, op: Any, grid: Grid) -> None:
        self.operands = list(op.operands)
        self.grid = grid
        self.place = place_of(op.location)
        config = next((op.attributes[name] for name in _CONFIGS if name in op.attributes), None)
        named = {n.name: n.attr for n in ir.DictAttr(config)} if isinstance(config, ir.DictAttr) else {}
        self.channel = int(ir.IntegerAttr(named["channel_id"]).value) if "channel_id" in named else 0
        rows = np.atleast_2d(np.array(named["replica_groups"])).tolist() if "replica_groups" in named else []
        counted = grid.partitions if self.channel > 0 else grid.replicas
        self.table = [row for row in rows if row] or [list(range(counted))]
        self.size = len(self.table[0])
        self._check(op)
        self.pieces = self.operands[2].type.shape[0]

    def _check(self, op: Any) -> None:
        if any(-1 in row for row in self.table):
            raise UnsupportedError(f"groups of different sizes{self.place}", operation=RAGGED)
        if len(self.operands) != 6 or len(op.results) != 1:
            raise VerificationError(f"it has six operands and one result{self.place}", operation=RAGGED)
        types = [v.type for v in self.operands]
        if not all(t.has_static_shape for t in types):
            raise UnsupportedError(f"arrays of sizes at run time{self.place}", operation=RAGGED)
        x, out, *vectors = types
        fits = x.rank and x.element_type == out.element_type and x.shape[1:] == out.shape[1:]
        if not fits or op.results[0].type != out:
            raise VerificationError(f"input, output and result do not fit: {x}, {out}{self.place}", operation=RAGGED)
        shape = list(vectors[0].shape)
        if any(list(v.shape) != shape for v in vectors) or len(shape) != 1 or not shape[0] or shape[0] % self.size:
            wanted = f"vectors of a multiple of {self.size} numbers, as many as a group has devices"
            raise VerificationError(f"offsets and sizes must be {wanted}{self.place}", operation=RAGGED)

    def received(self, vectors: Sequence[Any]) -> list[Any]:
        """Exchange vectors by one all-to-all: the parts for this device from each of the group, in order, as s64."""
        i64 = ir.IntegerType.get_signless(64)
        shapes = [ir.RankedTensorType.get([self.pieces, n], i64) for n in (1, len(vectors))]
        wide = [hlo.emit("stablehlo.convert", [v], [ir.RankedTensorType.get([self.pieces], i64)]) for v in vectors]
        columns = [hlo.emit("stablehlo.reshape", [v], shapes[:1]) for v in wide]
        sent = hlo.emit("stablehlo.concatenate", columns, shapes[1:], {"dimension": hlo.i64(1)})
        attributes = {"split_dimension": hlo.i64(0), "concat_dimension": hlo.i64(0), "split_count": hlo.i64(self.size)}
        attributes |= {"replica_groups": hlo.table(self.table), **self._channel()}
        received = hlo.emit("stablehlo.all_to_all", [sent], shapes[1:], attributes)
        cut = [stablehlo.slice(received, [0, i], [self.pieces, i + 1], [1, 1]) for i in range(len(vectors))]
        return [hlo.emit("stablehlo.reshape", [column], [wide[0].type]) for column in cut]

    def gathered(self, x: Any) -> Any:
        """Gather the inputs of all devices of the group, concatenated."""
        type_ = hlo.tensor(x.type, [self.size * x.type.shape[0], *x.type.shape[1:]])
        attributes = {"all_gather_dim": hlo.i64(0), "replica_groups": hlo.table(self.table), **self._channel()}
        if self.channel > 0:  # with a channel all_gather numbers all devices, all_to_all only partitions
            rows = [[self.grid.device(r, p) for p in row] for row in self.table for r in range(self.grid.replicas)]
            attributes |= {"replica_groups": hlo.table(rows), "use_global_device_ids": ir.UnitAttr.get()}
        return hlo.emit("stablehlo.all_gather", [x], [type_], attributes)

    def _channel(self) -> dict[str, ir.Attribute]:
        if self.channel <= 0:
            return {}
        return {"channel_handle": stablehlo.ChannelHandle.get(self.channel, _DEVICE_TO_DEVICE)}


def _expanded(exchange: _Exchange) -> Any:
    """Compute the call's result: the last piece that covers a row of the output determines its source row."""
    x, out, begins, sizes, places, _ = exchange.operands
    rows, extents = x.type.shape[0], list(out.type.shape)
    if not rows or 0 in extents:
        return out
    taken = _rows_taken(exchange, begins, sizes, places, extents[0], rows)
    nobody = hlo.constant(hlo.tensor(taken.type, extents[:1]), "-1")
    came = hlo.compare(taken, nobody, "GT")
    found = _gather_rows(exchange.gathered(x), taken, out.type)
    return hlo.select(hlo.broadcast(came, extents, [0]), found, out)


def _rows_taken(exchange: _Exchange, begins: Any, sizes: Any, places: Any, length: int, rows: int) -> Any:
    """Compute for each row of the output its source row among all inputs; -1 where it stays."""
    shape = [exchange.pieces, length]
    begin, size, place = (hlo.broadcast(v, shape, [0]) for v in exchange.received([begins, sizes, places]))
    counting = begin.type
    each = exchange.pieces // exchange.size
    first = np.repeat(np.arange(exchange.size, dtype=np.int64) * rows, each)
    sender = hlo.broadcast(hlo.array(first), shape, [0])
    row = hlo.iota(counting, 1)
    within = hlo.elementwise("subtract", row, place)
    is_below, is_above = hlo.compare(within, size, "LT"), hlo.compare(within, hlo.constant(counting, "0"), "GE")
    covered = hlo.elementwise("and", is_below, is_above)
    source = hlo.elementwise("add", hlo.elementwise("add", sender, begin), within)
    chosen = hlo.select(covered, source, hlo.constant(counting, "-1"))
    return _largest(chosen)


def _largest(rows: Any) -> Any:
    """Reduce each column by maximum."""
    return hlo.reduce(rows, hlo.constant(hlo.tensor(rows.type, []), "-1"), [0], "maximum")


def _gather_rows(x: Any, rows: Any, type_: Any) -> Any:
    """Gather rows of an array by number; negative numbers are clamped to the first."""
    others = list(range(1, len(type_.shape)))
    numbers = stablehlo.GatherDimensionNumbers.get(
        offset_dims=others, collapsed_slice_dims=[0], operand_batching_dims=[], start_indices_batching_dims=[],
        start_index_map=[0], index_vector_dim=1,
    )  # fmt: skip
    attributes = {
        "dimension_numbers": numbers,
        "slice_sizes": hlo.i64s([1, *x.type.shape[1:]]),
        "indices_are_sorted": ir.BoolAttr.get(False),
    }
    return hlo.emit("stablehlo.gather", [x, rows], [type_], attributes)
