"""Annotations of emitted operations: shardings, operation metadata, frontend attributes.

Each applies until it is cleared, or inside a `with`. None changes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.builder.checking import Rules, checking
from stablexla.builder.op import XlaOp
from stablexla.builder.source import Locations
from stablexla.dialects.attributes.sharding_tiles import tiles_of
from stablexla.dialects.lazy_dataclass import dataclass

SHARDING, FRONTEND = "mhlo.sharding", "mhlo.frontend_attributes"
UNKNOWN = "{unknown}"
"""The sharding of a result about which nothing is said, beside others."""


@dataclass(frozen=True)
class OpMetadata:
    """An operation's origin in a framework's program; shown in errors, profiles and explanations.

    Attributes:
        op_name: the operation's name in the framework, as "jit(step)/dense/add".
        source_file: the file of its line; without one it is the line of Python that calls the builder.
        source_line: the line.

    >>> b = sx.XlaBuilder("example")
    >>> with b.scoped_op_metadata(sx.OpMetadata(op_name="dense/scale")):
    ...     y = b.parameter(0, sx.f32[2]) * 2
    >>> "dense/scale" in b.build(y).text(locations=True)
    True
    """

    op_name: str = ""
    source_file: str = ""
    source_line: int = 0


class Annotations:
    """The builder's mixin for shardings, metadata and frontend attributes."""

    context: ir.Context
    attribute: Callable[[object], ir.Attribute]

    def _begin_annotations(self) -> None:
        self._sharding: str | None = None
        self._frontend: dict[str, str] = {}
        self._metadata: OpMetadata | None = None
        self._next_metadata: OpMetadata | None = None
        self._shardings: dict[ir.Value, str] = {}
        self._frontend_of: dict[ir.Value, dict[str, str]] = {}

    # ---- shardings ---------------------------------------------------------------------------------------------------

    @property
    def sharding(self) -> str | None:
        """The sharding that operations get, or None."""
        return self._sharding

    def set_sharding(self, sharding: str) -> None:
        """Set the sharding of later operations, in XLA's text: "{devices=[2,1]<=[2]}", "{replicated}".

        It is the sharding of each array among their results over the partitions of a program
        (`sx.compile(..., num_partitions=)`); one partition ignores it.

        Raises:
            ShapeError: no text in braces.

        Source: `SetSharding` of XLA's builder.

        >>> b = sx.XlaBuilder("example")
        >>> b.set_sharding("{devices=[2,1]<=[2]}")
        >>> y = b.parameter(0, sx.f32[4, 3]) + 1.0
        >>> b.get_op_sharding(y)
        '{devices=[2,1]<=[2]}'
        """
        self.swap_sharding(sharding)

    def clear_sharding(self) -> None:
        """Remove the sharding of later operations."""
        self._sharding = None

    def swap_sharding(self, sharding: str | None) -> str | None:
        """Set the sharding, or clear it with None, and return the previous one."""
        with checking("set_sharding", sharding=sharding) as rule:
            before, self._sharding = self._sharding, _sharding(rule, sharding)
        return before

    @contextmanager
    def scoped_sharding(self, sharding: str | None) -> Iterator[None]:
        """Set the sharding of the operations inside a `with`."""
        before = self.swap_sharding(sharding)
        try:
            yield
        finally:
            self._sharding = before

    def set_instruction_sharding(self, op: XlaOp, sharding: str | None) -> None:
        """Set, or clear, the sharding of one operation or parameter."""
        with checking("set_instruction_sharding", op=op, sharding=sharding) as rule:
            text = _sharding(rule, sharding)
            values = self._own(rule, op)
        self._shard(values, text)

    def get_op_sharding(self, op: XlaOp) -> str | None:
        """Return the sharding of an operation; of a tuple those of its arrays, "{{...}, {...}}"."""
        with checking("get_op_sharding", op=op) as rule:
            values = self._own(rule, op)
        return self._text_of(values)

    def _text_of(self, values: Sequence[ir.Value]) -> str | None:
        found = [self._shardings.get(value) for value in values]
        if not any(found):
            return None
        return str(found[0]) if len(found) == 1 else f"{{{', '.join(text or UNKNOWN for text in found)}}}"

    def _shard(self, values: Sequence[ir.Value], text: str | None) -> None:
        tiles = tiles_of(text) if text else None
        if tiles is not None:
            with checking("sharding", sharding=text) as rule:
                for value in values:
                    rank = getattr(value.type, "rank", 0)  # a token has none
                    rule("", len(tiles[0]) >= rank, f"it must have a number for each of {rank} dimensions")
        for value in values:
            if text is None:
                self._shardings.pop(value, None)
            else:
                self._shardings[value] = text
        for value in values:
            if not isinstance(value.owner, ir.Block):
                self._note(value.owner, SHARDING, self._text_of(list(value.owner.results)))

    # ---- origins -----------------------------------------------------------------------------------------------------

    def set_op_metadata(self, metadata: OpMetadata) -> None:
        """Set the metadata of later operations.

        Raises:
            ShapeError: no `sx.OpMetadata`.

        Source: `SetOpMetadata` of XLA's builder.
        """
        self.swap_op_metadata(metadata)

    def set_one_shot_op_metadata(self, metadata: OpMetadata) -> None:
        """Set the metadata of the next operation."""
        with checking("set_one_shot_op_metadata", metadata=metadata) as rule:
            self._next_metadata = _metadata(rule, metadata)

    def clear_op_metadata(self) -> None:
        """Remove the metadata: later operations have the line of Python that builds them."""
        self._metadata = None

    def swap_op_metadata(self, metadata: OpMetadata | None) -> OpMetadata | None:
        """Set the metadata, or clear it with None, and return the previous one."""
        with checking("set_op_metadata", metadata=metadata) as rule:
            before, self._metadata = self._metadata, None if metadata is None else _metadata(rule, metadata)
        return before

    @contextmanager
    def scoped_op_metadata(self, metadata: OpMetadata | None) -> Iterator[None]:
        """Set the metadata of the operations inside a `with`."""
        before = self.swap_op_metadata(metadata)
        try:
            yield
        finally:
            self._metadata = before

    def _location(self, locations: Locations) -> ir.Location:
        """Return the location of the operation that is emitted now."""
        metadata, self._next_metadata = self._next_metadata or self._metadata, None
        if metadata is None:
            return locations.here()
        place = locations.here()
        if metadata.source_file:
            place = ir.Location.file(metadata.source_file, metadata.source_line, 0, self.context)
        return ir.Location.name(metadata.op_name, place, self.context) if metadata.op_name else place

    # ---- free attributes ---------------------------------------------------------------------------------------------

    @property
    def frontend_attributes(self) -> dict[str, str]:
        """The frontend attributes of later operations."""
        return dict(self._frontend)

    def set_frontend_attributes(self, attributes: Mapping[str, str]) -> None:
        """Set the frontend attributes of later operations: texts by name, which stay in the module.

        Raises:
            ShapeError: no mapping of texts to texts.

        Source: `SetFrontendAttributes` of XLA's builder.

        >>> b = sx.XlaBuilder("example")
        >>> with b.scoped_frontend_attributes({"layer": "3"}):
        ...     y = b.parameter(0, sx.f32[2]) * 2
        >>> 'mhlo.frontend_attributes = {layer = "3"}' in str(b.build(y))
        True
        """
        self.swap_frontend_attributes(attributes)

    def clear_frontend_attributes(self) -> None:
        """Remove the frontend attributes of later operations."""
        self._frontend = {}

    def swap_frontend_attributes(self, attributes: Mapping[str, str]) -> dict[str, str]:
        """Set the frontend attributes, and return the previous ones."""
        with checking("set_frontend_attributes", attributes=attributes) as rule:
            fits = isinstance(attributes, Mapping)
            fits = fits and all(
                isinstance(text, str) and key for item in attributes.items() for key in item[:1] for text in item
            )
            rule("", fits, "attributes must be a mapping of texts to texts", '{"name": "value"}')
            before, self._frontend = self._frontend, dict(attributes)
        return before

    @contextmanager
    def scoped_frontend_attributes(self, attributes: Mapping[str, str]) -> Iterator[None]:
        """Replace the frontend attributes of the operations inside a `with`."""
        before = self.swap_frontend_attributes(attributes)
        try:
            yield
        finally:
            self._frontend = before

    def set_instruction_frontend_attribute(self, op: XlaOp, attribute: str, value: str) -> None:
        """Set a frontend attribute of one operation or parameter; one of that name is replaced."""
        with checking("set_instruction_frontend_attribute", op=op, attribute=attribute, value=value) as rule:
            rule("", isinstance(attribute, str) and attribute != "", f"attribute must be a name, not {attribute!r}")
            rule("", isinstance(value, str), f"value must be a text, not {value!r}")
            values = self._own(rule, op)
        for each in values:
            self._free(each, {attribute: value})

    def _free(self, value: ir.Value, attributes: Mapping[str, str]) -> None:
        """Add frontend attributes to the operation that defines a value; its results share them."""
        owner = value.owner
        key = value if isinstance(owner, ir.Block) else owner.results[0]
        known = self._frontend_of.setdefault(key, {})
        known.update(attributes)
        if not isinstance(owner, ir.Block):
            self._note(owner, FRONTEND, known)

    # ---- use by the builder ------------------------------------------------------------------------------------------

    def _own(self, rule: Rules, op: object) -> tuple[ir.Value, ...]:
        """Return the values of an operation of this builder."""
        found = rule.op("op", op)
        rule("", found.builder is self, f"op belongs to the builder {found.builder.name!r}")
        return found.values

    def _note(self, owner: Any, key: str, value: str | Mapping[str, str] | None) -> None:
        if value:
            owner.attributes[key] = self._spelled(value)
        elif key in owner.attributes:
            del owner.attributes[key]

    def _spelled(self, value: str | Mapping[str, str]) -> ir.Attribute:
        if isinstance(value, str):
            return self.attribute(value)
        return ir.DictAttr.get({key: self.attribute(text) for key, text in value.items()}, self.context)

    def _annotate(self, values: Sequence[ir.Value]) -> None:
        """Attach the current annotations to new values."""
        if self._sharding is not None:
            self._shard(values, self._sharding)
        if self._frontend:
            for value in values:
                self._free(value, self._frontend)

    def _argument_attributes(self, value: ir.Value) -> dict[str, ir.Attribute]:
        """Return the argument attributes of a parameter of main."""
        noted = {SHARDING: self._shardings.get(value), FRONTEND: self._frontend_of.get(value)}
        return {key: self._spelled(text) for key, text in noted.items() if text}


def _sharding(rule: Rules, given: str | None) -> str | None:
    fits = given is None or (isinstance(given, str) and given.startswith("{") and given.endswith("}"))
    rule("", fits, f"a sharding is a text in braces, not {given!r}", '"{devices=[2,1]<=[2]}" or "{replicated}"')
    if given is not None:
        rule("", not given.startswith("{{"), "a sharding is that of one array: it holds for each of a tuple")
        tiles_of(given)
    return given


def _metadata(rule: Rules, given: object) -> OpMetadata:
    if not isinstance(given, OpMetadata):
        rule.broken("", f"metadata must be an OpMetadata, not {given!r}", 'sx.OpMetadata(op_name="dense/add")')
    texts = isinstance(given.op_name, str) and isinstance(given.source_file, str)
    rule("", texts, "op_name and source_file must be texts")
    line = rule.integer("source_line", given.source_line)
    rule("", 0 <= line < 1 << 32, "source_line must be a line's number")
    return given
