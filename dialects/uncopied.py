"""Base of objects that hold memory of this process, and that copy and pickle refuse with a way out."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex

from stablexla.dialects.errors import UnsupportedError


class Uncopied:
    """Base of classes whose objects can be neither pickled nor copied.

    Attributes:
        _in_place: what to do instead.
    """

    __slots__ = ()
    _in_place: ClassVar[str]

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise UnsupportedError(
            f"{self!r} belongs to this process, and can be neither pickled nor copied", hint=self._in_place
        )


__all__ = ["Uncopied"]
