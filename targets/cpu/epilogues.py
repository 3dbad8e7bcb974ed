"""Epilogues of contractions as functions of the program, which loops of the library call back.

Contractions whose epilogues differ in strides alone share one, see `codegen/match/epilogue_form.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import KernelArguments
from stablexla.targets.codegen.match.epilogue import ContractionScene
from stablexla.targets.codegen.match.epilogue_form import form_of_epilogue, with_numbers
from stablexla.targets.cpu.callbacks import Callback, emit_callback
from stablexla.targets.cpu.shared import SharedFunctions


def emit_epilogue(
    shared: SharedFunctions,
    scene: ContractionScene,
    key: Hashable,
    count: int,
    write: Callable[[ContractionScene, list[Value]], None],
    *,
    shares: bool = True,
) -> Callback:
    """Emit the function that stores sums through the epilogue, unless there is an equal one.

    Args:
        scene: of the function that is being emitted.
        key: what the code depends on besides the epilogue.
        count: how many numbers a call gives.
        write: emits the stores, given the scene inside of the function, and the numbers of a call.
        shares: whether `key` tells all that the code depends on.
    """
    c, inputs, results = scene.contraction, scene.inputs, scene.results
    read = [inputs[number] for number in c.epilogue_inputs]
    partial = [] if scene.partial is None else [scene.partial]
    form = form_of_epilogue(c) if shares else None

    def emit(buffers: list[Value], numbers: list[Value], call: list[Value]) -> None:
        given, others = list(inputs), buffers[len(read) :]
        for number, buffer in zip(c.epilogue_inputs, buffers, strict=False):
            given[number] = buffer
        arguments = KernelArguments(given, others[: len(results)], [], call[0], call[0])
        of = c if form is None else with_numbers(c, form, numbers)
        write(ContractionScene(of, arguments, others[-1] if partial else None, scene.compute), call)

    known = None if form is None else (form.key, scene.compute, bool(partial), key)
    name = f"stablexla_epilogue_of_{scene.compute}"
    return emit_callback(
        shared, name, known, ([*read, *results, *partial], [] if form is None else form.numbers, count), emit
    )


__all__ = ["emit_epilogue"]
