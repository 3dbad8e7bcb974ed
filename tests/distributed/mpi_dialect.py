"""A process of two that runs reductions by MLIR's `mpi` dialect, and holds the results against the default's."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx

CASES = {
    sx.f32: (sx.add,),
    sx.f64: (sx.mul,),
    sx.s8: (sx.max,),
    sx.u16: (sx.or_, sx.xor),
    sx.s32: (sx.mul, sx.and_),
    sx.s64: (sx.add, sx.min),
}


def program(devices: int = 2) -> sx.XlaComputation:
    """All that MPI takes over, a gathering that it leaves, and the number of the device."""
    b = sx.XlaBuilder("dialect")
    made, number = [], 0
    for element, folds in CASES.items():
        for fold in folds:
            made.append(sx.all_reduce(b.parameter(number, element[7, 3]), fold))
            number += 1
    made.append(sx.all_gather(made[0], 0, devices))
    return b.build(sx.tuple([*made, b.replica_id()]))


def options(implementation: str, *more: Any) -> sx.CompileOptions:
    step = sx.Step("mpi", f"stablexla-collectives-to-mpi{{implementation={implementation}}}")
    pipeline = sx.pipeline("cpu").inserting(step, after="buffers")
    for each in more:
        pipeline = pipeline.inserting(each, after="mpi")
    return sx.CompileOptions(pipeline=pipeline)


def mpi_fails(module: ir.Module) -> None:
    """As if every call of MPI had reported an error."""
    body = re.sub(
        r"(%\d+) = builtin.unrealized_conversion_cast %\d+ : !mpi.retval to i32",
        r"\1 = arith.constant 1 : i32",
        str(module),
    )
    with module.context:
        changed = ir.Module.parse(body)
        for view in list(module.body.operations):
            view.operation.erase()
        with ir.InsertionPoint(module.body), ir.Location.unknown():
            for view in changed.body.operations:
                view.operation.clone()


def arguments() -> list[list[np.ndarray[Any, Any]]]:
    random = np.random.default_rng(0)
    types = [element[()].element_type.dtype for element, folds in CASES.items() for _ in folds]
    return [[(random.standard_normal((7, 3)) * 50).astype(t) for t in types] for _ in range(2)]


def compare(found: Any, wanted: Any) -> None:
    for of_one, right in zip(found, wanted, strict=True):
        for x, y in zip(of_one, right, strict=True):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            if x.dtype.kind == "f":
                np.testing.assert_allclose(x, y, rtol=2 * np.finfo(x.dtype).eps)  # of two numbers: one rounding
            else:
                np.testing.assert_array_equal(x, y)


def main() -> None:
    sx.distributed.initialize()
    this, other = sys.argv[1:]
    wanted = sx.compile(program(), num_replicas=2).execute_replicated(arguments())
    executable = sx.compile(program(), num_replicas=2, options=options(this))
    assert executable.ir("mpi").count("mpi.allreduce") == sum(map(len, CASES.values()))
    assert executable.ir("llvm").count("MPI_Allreduce") > 1
    compare(executable.execute_replicated(arguments()), wanted)
    with tempfile.TemporaryDirectory() as folder:
        executable.save(Path(folder) / "saved")
        compare(sx.load_executable(Path(folder) / "saved").execute_replicated(arguments()), wanted)
    failing = sx.compile(program(), num_replicas=2, options=options(this, mpi_fails))
    compare(failing.execute_replicated(arguments()), wanted)  # the runtime does it
    with pytest.raises(sx.LoadError, match="it has 4 devices, and there are 2 processes"):
        sx.compile(program(4), num_replicas=4, options=options(this))
    with pytest.raises(sx.LoadError, match=f"mpi4py has loaded {this}"):
        sx.compile(program(), num_replicas=2, options=options(other))
    print("as the default\n", end="", flush=True)


if __name__ == "__main__":
    main()
