"""The manifest of a GPU program beside its PTX: all that it takes to launch its kernels, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stablexla.compiling.c_header import array_names
from stablexla.dialects.element_types import element_type
from stablexla.targets.gpu.chips import GpuName
from stablexla.targets.gpu.launch.steps import CopyStep, GpuProgram, LaunchStep, Place, Scalar, Step
from stablexla.targets.runtime import ArraySpec
from stablexla.targets.signature.interface import Signature
from stablexla.version import VERSION

FORMAT, FORMAT_VERSION = "stablexla-gpu-program", 1
ALIGNMENT = 256
"""Of each constant in their file, as of allocations of the driver."""
ARRAY_ALIGNMENT = 16
"""Of parameters and results: kernels load and store 16 bytes at once."""


def manifest(
    program: GpuProgram, signature: Signature, *, name: str, target: str, image: Path, constants: Path | None
) -> dict[str, Any]:
    """Return the manifest as plain values; docs/gpu_from_c.md describes the fields.

    Args:
        program: the kernels and steps.
        signature: parameters and results.
        name: the prefix of the functions in the C header.
        target: as `sx.compile` takes it.
        image: the file with the kernels.
        constants: the file with the constants, if there are any.
    """
    parameters, results = names_of(signature)
    offsets, constant_bytes = constant_offsets(program)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "made_by": f"stablexla {VERSION}",
        "name": name,
        "target": target,
        "chip": GpuName.parse(target).chip,
        "image": image.name,
        "devices": signature.num_devices,
        "alignment": ARRAY_ALIGNMENT,
        "parameters": _arrays(signature.parameter_specs(), parameters, signature.dynamic_parameters),
        "results": [
            row | ({"may_be_parameter": program.aliases[number]} if number in program.aliases else {})
            for number, row in enumerate(_arrays(signature.result_specs(), results, signature.dynamic_results))
        ],
        "constants": {
            "file": None if constants is None else constants.name,
            "bytes": constant_bytes,
            "arrays": [
                {"offset": offset, "bytes": array.nbytes}
                for offset, array in zip(offsets, program.constants, strict=True)
            ],
        },
        "arena_bytes": program.arena_bytes,
        "kernels": [
            {"name": kernel, "grid": [at.blocks, 1, 1], "block": [at.threads, 1, 1], "shared_bytes": at.shared}
            for kernel, at in program.launches.items()
        ],
        "steps": None if program.obstacle is not None else [_step(step) for step in program.steps],
        "obstacle": None
        if program.obstacle is None
        else {
            "operation": program.obstacle.operation,
            "message": program.obstacle.message,
            "location": program.obstacle.location,
        },
    }


def names_of(signature: Signature) -> tuple[list[str], list[str]]:
    """Return the C names of the parameters and of the results, and of the sizes of their dynamic dimensions."""
    return array_names(signature, taken=("ARENA", "CONSTANT"))


def constant_offsets(program: GpuProgram) -> tuple[list[int], int]:
    """Return where each constant begins in the file of all of them, and how many bytes that has."""
    offsets, end = list[int](), 0
    for array in program.constants:
        offsets.append(end)
        end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, end


def _arrays(specs: Sequence[ArraySpec], names: Sequence[str], dynamic: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"name": name, "type": str(element_type(spec.dtype)), "shape": list(spec.shape), "bytes": spec.nbytes}
        for spec, name in zip(specs, names, strict=True)
    ]
    sizes = [(number, dimension) for number, dimensions in enumerate(dynamic) for dimension in dimensions]
    for row, (number, dimension) in zip(rows[len(rows) - len(sizes) :], sizes, strict=True):
        row["size_of"] = {"array": number, "dimension": dimension}
    return rows


def _step(step: Step) -> dict[str, Any]:
    if isinstance(step, LaunchStep):
        return {"step": "launch", "kernel": step.kernel, "arguments": [_operand(each) for each in step.arguments]}
    if isinstance(step, CopyStep):
        places = {"to": _operand(step.target), "from": _operand(step.source)}
        return {"step": "copy", **places, "bytes": step.target.nbytes}
    return {"step": "write", "to": _operand(step.target), "value": _operand(step.value)}


def _operand(value: Place | Scalar) -> dict[str, Any]:
    if isinstance(value, Scalar):
        return {"scalar": value.type, "data": value.data.hex()}
    if value.base == "arena":
        return {"arena": value.offset}
    return {value.base: value.number, **({"offset": value.offset} if value.offset else {})}
