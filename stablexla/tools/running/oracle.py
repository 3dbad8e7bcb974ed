"""Runs a program by another implementation, in a process of its own: its crash must not end ours.

StableHLO's reference interpreter comes with jaxlib; XLA:CPU is reached through jax.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
import numpy.typing as npt

from stablexla.dialects.errors import ExecutionError
from stablexla.inspection.judging.oracles import NAMES, shared_oracle
from stablexla.processes.questions import Refusal
from stablexla.targets.signature.signature import Signature

Array = npt.NDArray[Any]
ORACLES = tuple(NAMES)


def evaluate(oracle: str, module: ir.Module, signature: Signature, arguments: Sequence[Array]) -> list[Array]:
    """Return the results of a program by an oracle.

    Raises:
        ExecutionError: the oracle failed; some programs that are right make it.
    """
    found = shared_oracle(NAMES[oracle]).run(module, [np.asarray(a) for a in arguments])
    if isinstance(found, Refusal):
        raise ExecutionError(f"{oracle} failed: {found}")
    types = signature.results
    return [array.view(t.element.dtype).reshape(t.shape) for array, t in zip(found, types, strict=True)]
