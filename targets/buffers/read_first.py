"""Pass that moves reads of an array before an update of it, which then need not begin with a copy.

Programs as JAX traces them often read the old array after the update, as in `a.at[i].set(x), a[i]`. What is moved are
calls of kernels and scalar operations in the update's own block, all without effects.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cmp_to_key

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.lowering.support.kernels import EFFECT
from stablexla.lowering.support.operations import defining, is_inside, is_tensor, main_of
from stablexla.targets.buffers.assignment import block_of, users_of, viewed_array
from stablexla.targets.buffers.donation import donated_parameters
from stablexla.targets.codegen.calls import call_of
from stablexla.targets.pipeline.passes import module_pass

MOST = Gate("read-first.most", 64, eager=1)
"""Operations that are moved before one update at most: results that wait for their users take memory."""


@module_pass(
    "stablexla-read-before-updates",
    "moves what reads an array before the update of the array, so that it can be done in place",
)
def read_before_updates(module: ir.Module) -> None:
    """Reorder operations of `main`, whose kernels are emitted and whose buffers are not assigned."""
    main = main_of(module)
    block, donated = main.regions[0].blocks[0], donated_parameters(main)
    kept = {argument for number, argument in enumerate(block.arguments) if number not in donated}
    _Reordering(ir.SymbolTable(module.operation), kept).block(block)


class _Reordering:
    """Moves operations of one module; arrays in `kept` are copied by their updates in any case."""

    def __init__(self, symbols: ir.SymbolTable, kept: set[ir.Value]) -> None:
        self._symbols = symbols
        self._kept = kept
        self._users: dict[ir.Value, dict[ir.Block, list[ir.Operation]]] = {}

    def block(self, block: ir.Block) -> list[ir.Value]:
        """Reorder a block and those nested in it; return the arrays that updates in it change, of other blocks too."""
        found: dict[ir.Value, None] = {}
        for op in [view.operation for view in block.operations]:
            changed = [array for array in self._changed(op) if not is_inside(array, op)]
            for array in changed:
                self._move_reads(array, op)
            found.update(dict.fromkeys(changed))
        return list(found)

    def _changed(self, op: ir.Operation) -> Iterable[ir.Value]:
        """Return the arrays that an operation changes, if that may be done in place."""
        if op.name == "func.call":
            return self._updated(op)
        if not len(op.regions):
            return ()
        inside = [array for region in op.regions for block in region.blocks for array in self.block(block)]
        if op.name == "scf.while":
            return dict.fromkeys(viewed_array(v) for v in op.operands if is_tensor(v))
        return inside if op.name == "scf.if" else ()

    def _updated(self, call: ir.Operation) -> list[ir.Value]:
        return [viewed_array(call.operands[pair.input]) for pair in call_of(call, self._symbols).updates]

    def _move_reads(self, array: ir.Value, update: ir.Operation) -> None:
        """Move all later uses of an array, with what they are computed from, before its update; or none."""
        maker = defining(array)
        if array in self._kept or (maker is not None and maker.name == "arith.constant"):
            return
        users = self._users_in(array, update.block)
        needed = dict.fromkeys(op for op in users if update.is_before_in_block(op)) if len(users) <= MOST() else {}
        waiting = list(needed)
        while waiting:
            op = waiting.pop()
            if len(needed) > MOST() or not self._may_precede(op, update, array):
                return
            makers = [maker for maker in map(defining, op.operands) if maker is not None]
            if update in makers:
                return
            new = (m for m in makers if m.block == update.block and m not in needed and update.is_before_in_block(m))
            for maker in new:
                needed[maker] = None
                waiting.append(maker)
        for op in sorted(needed, key=cmp_to_key(_in_order)):
            op.move_before(update)

    def _may_precede(self, op: ir.Operation, update: ir.Operation, array: ir.Value) -> bool:
        """Whether an operation may run before an update of an array, and then makes no other update copy its array."""
        if len(op.regions) or op.name in ("scf.yield", "scf.condition", "func.return") or EFFECT in op.attributes:
            return False
        others = self._updated(op) if op.name == "func.call" else []
        users = (user for other in others for user in self._users_in(other, op.block))
        return array not in others and all(u == op or u.is_before_in_block(update) for u in users)

    def _users_in(self, array: ir.Value, block: ir.Block) -> list[ir.Operation]:
        """Return the operations of a block that use an array or a view of it, themselves or within their regions."""
        if array not in self._users:
            found: dict[ir.Block, dict[ir.Operation, None]] = {}
            home = block_of(array)
            for user in users_of(array):
                found.setdefault(user.block, {})[user] = None
                while user.block != home:
                    user = user.parent.operation
                    found.setdefault(user.block, {})[user] = None
            self._users[array] = {block: list(users) for block, users in found.items()}
        return self._users[array].get(block, [])


def _in_order(one: ir.Operation, other: ir.Operation) -> int:
    return -1 if one.is_before_in_block(other) else 1
