"""Annotations of emitted operations: shardings, operation metadata, frontend attributes.

All of them hold from where they are set until they are cleared, or as long as a `with` lasts. None changes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.builder.checking import Rules, checking
from stablexla.builder.op import XlaOp
from stablexla.builder.source import Locations

SHARDING, FRONTEND = "mhlo.sharding", "mhlo.frontend_attributes"
UNKNOWN = "{unknown}"
"""The sharding of a result about which nothing is said, beside others."""


@dataclass(frozen=True)
class OpMetadata:
    """Where operations come from in the program of a framework; shown in errors, profiles and explanations.

    Attributes:
        op_name: what the framework calls the operation, as "jit(step)/dense/add".
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
    """The part of a builder that knows them."""

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
        """Gives all operations from now on a sharding, in XLA's text: "{devices=[2,1]<=[2]}", "{replicated}".

        It says how each array among their results lies on the partitions of a program that is compiled for several
        (`sx.compile(..., num_partitions=)`), and nothing where there is one.

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
        """Gives operations from now on no sharding."""
        self._sharding = None

    def swap_sharding(self, sharding: str | None) -> str | None:
        """Sets or, with None, clears the sharding, and returns the one before."""
        with checking("set_sharding", sharding=sharding) as rule:
            before, self._sharding = self._sharding, _sharding(rule, sharding)
        return before

    @contextmanager
    def scoped_sharding(self, sharding: str | None) -> Iterator[None]:
        """Gives the operations inside of a `with` a sharding."""
        before = self.swap_sharding(sharding)
        try:
            yield
        finally:
            self._sharding = before

    def set_instruction_sharding(self, op: XlaOp, sharding: str | None) -> None:
        """Gives one operation, or parameter, another sharding, or none."""
        with checking("set_instruction_sharding", op=op, sharding=sharding) as rule:
            text = _sharding(rule, sharding)
            values = self._own(rule, op)
        self._shard(values, text)

    def get_op_sharding(self, op: XlaOp) -> str | None:
        """The sharding of an operation; of a tuple those of its arrays, "{{...}, {...}}"."""
        with checking("get_op_sharding", op=op) as rule:
            values = self._own(rule, op)
        return self._text_of(values)

    def _text_of(self, values: Sequence[ir.Value]) -> str | None:
        found = [self._shardings.get(value) for value in values]
        if not any(found):
            return None
        return str(found[0]) if len(found) == 1 else f"{{{', '.join(text or UNKNOWN for text in found)}}}"

    def _shard(self, values: Sequence[ir.Value], text: str | None) -> None:
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
        """Gives all operations from now on an origin.

        Raises:
            ShapeError: no `sx.OpMetadata`.

        Source: `SetOpMetadata` of XLA's builder.
        """
        self.swap_op_metadata(metadata)

    def set_one_shot_op_metadata(self, metadata: OpMetadata) -> None:
        """Gives the next operation an origin."""
        with checking("set_one_shot_op_metadata", metadata=metadata) as rule:
            self._next_metadata = _metadata(rule, metadata)

    def clear_op_metadata(self) -> None:
        """Operations from now on come from the line of Python that writes them."""
        self._metadata = None

    def swap_op_metadata(self, metadata: OpMetadata | None) -> OpMetadata | None:
        """Sets or, with None, clears the origin, and returns the one before."""
        with checking("set_op_metadata", metadata=metadata) as rule:
            before, self._metadata = self._metadata, None if metadata is None else _metadata(rule, metadata)
        return before

    @contextmanager
    def scoped_op_metadata(self, metadata: OpMetadata | None) -> Iterator[None]:
        """Gives the operations inside of a `with` an origin."""
        before = self.swap_op_metadata(metadata)
        try:
            yield
        finally:
            self._metadata = before

    def _location(self, locations: Locations) -> ir.Location:
        """Where the operation comes from that is emitted now."""
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
        """The free attributes that operations get."""
        return dict(self._frontend)

    def set_frontend_attributes(self, attributes: Mapping[str, str]) -> None:
        """Gives all operations from now on free attributes: texts by name, which stay in the module for its readers.

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
        """Gives operations from now on no free attributes."""
        self._frontend = {}

    def swap_frontend_attributes(self, attributes: Mapping[str, str]) -> dict[str, str]:
        """Sets the free attributes, and returns those before."""
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
        """Gives the operations inside of a `with` free attributes, in place of those around it."""
        before = self.swap_frontend_attributes(attributes)
        try:
            yield
        finally:
            self._frontend = before

    def set_instruction_frontend_attribute(self, op: XlaOp, attribute: str, value: str) -> None:
        """Gives one operation, or parameter, a free attribute; another one of that name is replaced."""
        with checking("set_instruction_frontend_attribute", op=op, attribute=attribute, value=value) as rule:
            rule("", isinstance(attribute, str) and attribute != "", f"attribute must be a name, not {attribute!r}")
            rule("", isinstance(value, str), f"value must be a text, not {value!r}")
            values = self._own(rule, op)
        for each in values:
            self._free(each, {attribute: value})

    def _free(self, value: ir.Value, attributes: Mapping[str, str]) -> None:
        """Adds free attributes to what made a value; several results of an operation share them."""
        owner = value.owner
        key = value if isinstance(owner, ir.Block) else owner.results[0]
        known = self._frontend_of.setdefault(key, {})
        known.update(attributes)
        if not isinstance(owner, ir.Block):
            self._note(owner, FRONTEND, known)

    # ---- what the builder does with them -----------------------------------------------------------------------------

    def _own(self, rule: Rules, op: object) -> tuple[ir.Value, ...]:
        """The values of an operation of this builder."""
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
        """Gives new values what is set now."""
        if self._sharding is not None:
            self._shard(values, self._sharding)
        if self._frontend:
            for value in values:
                self._free(value, self._frontend)

    def _argument_attributes(self, value: ir.Value) -> dict[str, ir.Attribute]:
        """The argument attributes of a parameter of main."""
        noted = {SHARDING: self._shardings.get(value), FRONTEND: self._frontend_of.get(value)}
        return {key: self._spelled(text) for key, text in noted.items() if text}


def _sharding(rule: Rules, given: str | None) -> str | None:
    fits = given is None or (isinstance(given, str) and given.startswith("{") and given.endswith("}"))
    rule("", fits, f"a sharding is a text in braces, not {given!r}", '"{devices=[2,1]<=[2]}" or "{replicated}"')
    rule(
        "", given is None or not given.startswith("{{"), "a sharding is that of one array: it holds for each of a tuple"
    )
    return given


def _metadata(rule: Rules, given: object) -> OpMetadata:
    if not isinstance(given, OpMetadata):
        rule.broken("", f"metadata must be an OpMetadata, not {given!r}", 'sx.OpMetadata(op_name="dense/add")')
    texts = isinstance(given.op_name, str) and isinstance(given.source_file, str)
    rule("", texts, "op_name and source_file must be texts")
    line = rule.integer("source_line", given.source_line)
    rule("", 0 <= line < 1 << 32, "source_line must be a line's number")
    return given
