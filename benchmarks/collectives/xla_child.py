"""XLA:CPU with several devices, in a process of its own: how many there are is said before it starts.

Reads lines of JSON and answers each by one: a case to make ready, or a number of calls to time. The operands lie on
the devices, and a call has ended when every device's result is there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.collectives.cases import Array, Case, difference


class Xla:
    """The child, as its parent sees it; leave it as a context, or it waits for ever."""

    name = "xla"

    def __init__(self, devices: int) -> None:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        environment = os.environ | {"XLA_FLAGS": flags.strip(), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, "-m", "benchmarks.collectives.xla_child"]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.version = f"jaxlib {version('jaxlib')}"

    def __enter__(self) -> Xla:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.stdin:
            self._child.stdin.close()
        self._child.wait(30)

    def prepare(self, case: Case) -> float:
        """Compiles and runs it; how far the results are from the right ones."""
        return float(self._ask(vars(case)))

    def time(self, calls: int) -> float:
        """Seconds of a call."""
        return float(self._ask(calls))

    def _ask(self, question: object) -> Any:
        assert self._child.stdin
        assert self._child.stdout
        self._child.stdin.write(json.dumps(question) + "\n")
        self._child.stdin.flush()
        if not (line := self._child.stdout.readline()):
            raise RuntimeError("XLA's process has ended")
        answer = json.loads(line)
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer


class _Prepared:
    def __init__(self, case: Case) -> None:
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        from jaxlib import xla_client

        devices = jax.devices("cpu")[: case.devices]
        options = xla_client.CompileOptions()
        options.num_replicas, options.num_partitions = case.devices, 1
        own = xla_client.DeviceList(tuple(devices))
        self._executable: Any = devices[0].client.compile_and_load(case.text(), own, options)
        sharding = NamedSharding(Mesh(np.array(devices), ("device",)), PartitionSpec("device"))
        with jax.enable_x64(True):
            self._operands = jax.device_put(np.concatenate(case.arguments()), sharding)
        self._operands.block_until_ready()

    def results(self) -> list[Array]:
        return [np.asarray(each) for each in self._run()]

    def _run(self) -> list[Any]:
        (arrays,) = self._executable.execute_sharded([self._operands]).disassemble_into_single_device_arrays()
        for each in arrays:
            each.block_until_ready()
        return list(arrays)

    def time(self, calls: int) -> float:
        start = perf_counter()
        for _ in range(calls):
            self._run()
        return (perf_counter() - start) / calls


def main() -> None:
    prepared: list[_Prepared] = []
    for line in sys.stdin:
        try:
            answer: float | str = _answer(json.loads(line), prepared)
        except Exception as error:  # the parent goes on with the next case
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)


def _answer(question: dict[str, Any] | int, prepared: list[_Prepared]) -> float:
    if isinstance(question, int):
        return prepared[0].time(question)
    prepared.clear()  # its memory is free before the next one's is taken
    case = Case(**question)
    prepared.append(_Prepared(case))
    return difference(prepared[0].results(), case.results(case.arguments()))


if __name__ == "__main__":
    main()
