"""The operations in MLIR bytecode, read without MLIR: their names in program order, each index checked.

It describes files that MLIR cannot read, and finds most damage before MLIR's reader runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.interop.encodings.bytecode import (
    HAS_PROPERTIES,
    OPERATIONS,
    OPERATIONS_ARE_COUNTED,
    REGIONS_ARE_SECTIONS,
    SECTIONS,
    USES_HAVE_ORDER,
    Bytecode,
    Cursor,
    OperationName,
)

DEEPEST = 1000
"""How deep regions may be nested: MLIR's verifier and its passes go down by recursion."""

_ATTRIBUTES, _RESULTS, _OPERANDS, _SUCCESSORS, _REGIONS, _USES, _PROPERTIES = (1 << bit for bit in range(7))


@dataclass
class _Scope:
    """The rest of a list of regions: regions, blocks, and operations of this block still to be read.

    Attributes:
        cursor: where its operations are; a section of its own when it is isolated.
        visible: how many values its operations can name.
        here: those of them that this region defines.
    """

    cursor: Cursor
    regions: int
    outside: int
    blocks: int = 0
    blocks_left: int = 0
    operations_left: int = 0
    here: int = 0


def operations(found: Bytecode) -> Iterator[OperationName]:
    """Return the name of each operation, in program order.

    Raises:
        MalformedError: something in them cannot be.
    """
    section = found.sections[OPERATIONS]
    cursor = Cursor(section.data, section.at, section.end)
    top = _Scope(cursor, regions=0, outside=0, blocks=1, blocks_left=0)
    _block(found, top)
    stack = [top]
    while stack:
        scope = stack[-1]
        if scope.operations_left:
            scope.operations_left -= 1
            name, inner = _operation(found, scope)
            yield name
            if inner is not None:
                stack.append(inner)
                if len(stack) > DEEPEST:
                    raise cursor.fail(f"regions nested more than {DEEPEST} deep")
        elif scope.blocks_left:
            scope.blocks_left -= 1
            _block(found, scope)
        elif scope.regions:
            scope.regions -= 1
            _region(found, scope)
        else:
            stack.pop()


def _region(found: Bytecode, scope: _Scope) -> None:
    cursor = scope.cursor
    scope.blocks = cursor.count("blocks")
    scope.here = 0
    if scope.blocks:
        scope.here = cursor.count("values")
        scope.blocks_left = scope.blocks - 1
        _block(found, scope)


def _block(found: Bytecode, scope: _Scope) -> None:
    cursor = scope.cursor
    scope.operations_left, has_arguments = cursor.flagged()
    if scope.operations_left > cursor.left:
        raise cursor.fail(f"{scope.operations_left} operations, in {cursor.left} bytes")
    if not has_arguments:
        return
    count = cursor.count("arguments of a block")
    for _ in range(count):
        if found.version < OPERATIONS_ARE_COUNTED:
            cursor.index(found.types, "type")
            cursor.index(found.attributes, "attribute")
            continue
        type_, has_location = cursor.flagged()
        if type_ >= found.types:
            raise cursor.fail(f"type {type_}, of {found.types}")
        if has_location:
            cursor.index(found.attributes, "attribute")
    if found.version >= USES_HAVE_ORDER and cursor.byte():
        _use_orders(cursor, count)


def _operation(found: Bytecode, scope: _Scope) -> tuple[OperationName, _Scope | None]:
    cursor = scope.cursor
    name = found.operation_names[cursor.index(len(found.operation_names), "name of an operation")]
    has = cursor.byte()
    cursor.index(found.attributes, "attribute")
    if has & _ATTRIBUTES:
        cursor.index(found.attributes, "attribute")
    if has & _PROPERTIES:
        _read_properties(found, cursor, name)
    results = 0
    if has & _RESULTS:
        results = cursor.count("results")
        for _ in range(results):
            cursor.index(found.types, "type")
    if has & _OPERANDS:
        visible = scope.outside + scope.here
        for _ in range(cursor.count("operands")):
            cursor.index(visible, "value")
    if has & _SUCCESSORS:
        for _ in range(cursor.count("successors")):
            cursor.index(scope.blocks, "block")
    if found.version >= USES_HAVE_ORDER and has & _USES:
        _use_orders(cursor, results)
    return name, _inner(found, scope) if has & _REGIONS else None


def _read_properties(found: Bytecode, cursor: Cursor, name: OperationName) -> None:
    if found.version < HAS_PROPERTIES or found.properties is None:
        raise cursor.fail(f"properties of {name}, in bytecode of version {found.version}")
    if name.registered:
        cursor.index(found.properties, "properties")
    else:
        cursor.number()


def _inner(found: Bytecode, scope: _Scope) -> _Scope | None:
    """Return the regions of an operation, which are read next."""
    count, isolated = scope.cursor.flagged()
    if count > scope.cursor.left:
        raise scope.cursor.fail(f"{count} regions, in {scope.cursor.left} bytes")
    if not count:
        return None
    if not isolated:
        return _Scope(scope.cursor, count, scope.outside + scope.here)
    if found.version < REGIONS_ARE_SECTIONS:
        return _Scope(scope.cursor, count, 0)
    kind, contents = scope.cursor.section()
    if kind != OPERATIONS:
        raise scope.cursor.fail(f"the section of {SECTIONS[kind]} where a region belongs")
    return _Scope(contents, count, 0)


def _use_orders(cursor: Cursor, values: int) -> None:
    """Skip the use-list orders of values."""
    for _ in range(cursor.count("orders of uses") if values > 1 else 1):
        if values > 1:
            cursor.index(values, "value")
        count, _ = cursor.flagged()
        if count > cursor.left:
            raise cursor.fail(f"{count} uses, in {cursor.left} bytes")
        for _ in range(count):
            cursor.number()
