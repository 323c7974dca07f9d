"""The methods that may be called, with their types and permissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from culm.arguments import check_type
from culm.ssb.muxrpc.requests import CallType, check_name, shortened
from culm.ssb.v8json import JsonValue

_Name = tuple[str, ...]


class Manifest:
    """Methods by name, with the type of call of each.

    Names are written with dots, as in permissions of other implementations:
    ``Manifest({"ebt.replicate": CallType.DUPLEX})``; parts of names cannot contain dots
    themselves.  Immutable.

    Raises `TypeError` and `ValueError` for invalid names and types, and for a method within a
    method.
    """

    __slots__ = ("_methods",)

    def __init__(self, methods: Mapping[str, CallType] | None = None) -> None:
        check_type("methods", methods, Mapping, type(None))
        found: dict[_Name, CallType] = {}
        for name, call_type in (methods or {}).items():
            check_type("name", name, str)
            check_type("type", call_type, CallType)
            found[check_name(name.split("."))] = call_type
        for parts in found:
            if any(parts[:end] in found for end in range(1, len(parts))):
                raise ValueError(f"{'.'.join(parts)} is within another method")
        self._methods: Final = found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Manifest) and other._methods == self._methods

    def __hash__(self) -> int:
        return hash(frozenset(self._methods.items()))

    def __repr__(self) -> str:
        methods = {".".join(name): call_type.name for name, call_type in self._methods.items()}
        return f"Manifest({methods})"

    def allowed(self, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> Manifest:
        """The methods that a peer may call: in `allow` (all if ``None``) and not in `deny`.

        A name stands for everything below it: ``blobs`` for ``blobs.get``.
        """
        allowed = None if allow is None else {tuple(name.split(".")) for name in allow}
        denied = {tuple(name.split(".")) for name in deny}
        return Manifest(
            {
                ".".join(name): call_type
                for name, call_type in self._methods.items()
                if (allowed is None or _covered(name, allowed)) and not _covered(name, denied)
            }
        )

    def refusal(self, name: _Name, call_type: CallType) -> str | None:
        """The reason to refuse a call, worded as by other peers; ``None`` if it is allowed."""
        offered = self._methods.get(name)
        if offered is None:
            return f"method:{shortened(','.join(name))} is not in list of allowed methods"
        if offered is not call_type:
            return f"no {call_type.value}:{','.join(name)}"
        return None

    def to_json(self) -> dict[str, JsonValue]:
        """The manifest in the form that peers expect: objects in objects, types at the end."""
        tree: dict[str, JsonValue] = {}
        for name, call_type in self._methods.items():
            inner = tree
            for part in name[:-1]:
                inner = inner.setdefault(part, {})
            inner[name[-1]] = call_type.value
        return tree


def _covered(name: _Name, names: set[_Name]) -> bool:
    return any(name[:end] in names for end in range(1, len(name) + 1))
