"""`dataclass` whose methods are generated at the first use of the class instead of at the import of its module.

The standard one compiles six functions for a class, 0.4 ms in Python 3.11. The compiler has 400 such classes, of which
a small program uses sixty; here a class costs nothing until then, and one compiled function, its constructor, at that.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import reprlib
import threading
from collections.abc import Callable
from dataclasses import MISSING, Field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Do what `dataclasses.dataclass` does, but late: `frozen` and `eq`, any other option at once.

        >>> @dataclass(frozen=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1) == Point(1, 0), dataclasses.replace(Point(1), y=2)
        (True, Point(x=1, y=2))
        """
        if cls is None:
            return lambda given: dataclass(given, **options)
        if options.keys() - {"frozen", "eq"} or {"__init__", "__setstate__"} & vars(cls).keys():
            return dataclasses.dataclass(cls, **options)
        _Pending(cls, **options)
        return cls


_lock = threading.RLock()  # a class completes those that it is derived from


class _Pending:
    """The class attribute `__dataclass_fields__` until the class is complete; reading it completes the class.

    So do the constructor, the state that `pickle` sets in an instance that was made without it, and the signature.
    """

    def __init__(self, cls: type, frozen: bool = False, eq: bool = True) -> None:
        self._cls, self._frozen, self._eq, self._is_complete = cls, frozen, eq, False

        def construct(instance: Any, /, *args: Any, **kwargs: Any) -> None:
            self.complete()
            cls.__init__(instance, *args, **kwargs)  # type: ignore[misc]

        def set_state(instance: Any, state: dict[str, Any]) -> None:
            self.complete()
            vars(instance).update(state)

        cls.__doc__ = cls.__doc__ or cls.__name__  # without one, the standard decorator spells out the signature
        stubs = {"__init__": construct, "__setstate__": set_state, "__signature__": _Signature(self)}
        for name, value in {**stubs, "__dataclass_fields__": self}.items():
            setattr(cls, name, value)

    def __get__(self, instance: object, owner: type) -> Any:
        self.complete()
        return vars(self._cls)["__dataclass_fields__"]

    def complete(self) -> None:
        """Generate the methods, the constructor last: other threads wait in the one that is there."""
        with _lock:
            if self._is_complete:
                return
            cls: Any = self._cls
            del cls.__signature__
            # Its own check of bases wants to know `frozen`, for which it compiles two functions.
            is_derived = any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
            dataclasses.dataclass(cls, init=False, repr=False, eq=False, frozen=self._frozen and is_derived)
            cls.__dataclass_params__.frozen = self._frozen
            fields = dataclasses.fields(cls)
            for name, method in _methods(cls, fields, self._frozen, self._eq).items():
                if name not in vars(cls) or (name == "__hash__" and cls.__hash__ is None):
                    setattr(cls, name, method)
            cls.__init__ = _constructor(cls, fields, self._frozen)
            del cls.__setstate__
            self._is_complete = True


class _Signature:
    """The class attribute `__signature__`, which `inspect.signature` asks for, until the class is complete."""

    def __init__(self, pending: _Pending) -> None:
        self._pending = pending

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        self._pending.complete()
        return inspect.signature(owner)


def _methods(cls: Any, fields: tuple[Field[Any], ...], frozen: bool, eq: bool) -> dict[str, Any]:
    """Return all methods but the constructor."""
    shown = [f.name for f in fields if f.repr]

    @reprlib.recursive_repr()
    def represent(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    made: dict[str, Any] = {"__repr__": represent}
    if eq:
        made |= _comparisons(fields, frozen)
    return made | (_refusals(cls, {f.name for f in fields}) if frozen else {})


def _comparisons(fields: tuple[Field[Any], ...], frozen: bool) -> dict[str, Any]:
    compared = _values([f.name for f in fields if f.compare])
    hashed = _values([f.name for f in fields if (f.compare if f.hash is None else f.hash)])

    def equal(self: Any, other: Any) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": equal, "__hash__": (lambda self: hash(hashed(self))) if frozen else None}


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function from an instance to the tuple of the attributes of these names."""
    if not names:
        return lambda instance: ()
    get = operator.attrgetter(*names)
    return get if len(names) > 1 else lambda instance: (get(instance),)


def _refusals(cls: Any, names: set[str]) -> dict[str, Any]:
    """Return `__setattr__` and `__delattr__` of frozen instances; classes derived from it may have more attributes."""

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": set_attribute, "__delattr__": delete_attribute}


class _Made:
    """The default of a parameter whose value is made anew for each instance."""

    def __repr__(self) -> str:
        return "<factory>"


def _constructor(cls: type, fields: tuple[Field[Any], ...], frozen: bool) -> Any:
    """Compile `__init__`: parameters with their defaults, assignments, and a call of `__post_init__`."""
    known: dict[str, Any] = {"__name__": cls.__module__, "_set": object.__setattr__, "_MADE": _Made()}
    parameters, keywords, lines = ["self"], list[str](), list[str]()
    for field in fields:
        name, value, default = field.name, field.name, ""
        if field.default_factory is not MISSING:
            known[f"_make_{name}"], default = field.default_factory, "=_MADE"
            value = f"_make_{name}() if {name} is _MADE else {name}" if field.init else f"_make_{name}()"
        elif not field.init:
            continue
        elif field.default is not MISSING:
            known[f"_default_{name}"], default = field.default, f"=_default_{name}"
        if field.init:
            (keywords if field.kw_only else parameters).append(name + default)
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters += ["*", *keywords] if keywords else []
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), known)
    made = known["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    made.__annotations__ = {f.name: f.type for f in fields if f.init} | {"return": None}
    return made
