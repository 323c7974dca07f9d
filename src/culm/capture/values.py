"""Any value that passes between a machine and its driver as data of CBOR, and back.

Plain data are themselves.  Everything else is a map with the key ``""``, which says what it is::

    {"": "tuple", "items": [...]}
    {"": "culm.oxen.events:PeerState", "member": "JOINED"}
    {"": "culm.bamboo.entry:LogKey", "fields": {...}}
    {"": "culm.wire.multihash:HashFamily", "constant": "YAMF"}
    {"": "object", "number": 3}          a handle: the result of an earlier call
    {"": "secret", "type": "SigningKey"}  was left out
    {"": "opaque", "type": "function"}   cannot be written

Reading builds enums, dataclasses, named tuples and objects with slots, and only those of the
packages that the reader allows.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum, EnumType
from importlib import import_module
from typing import Any, cast

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from culm.arguments import is_buffer, is_mapping, is_set
from culm.capture.errors import CaptureError, ErrorCode
from culm.machine import ProtocolError
from culm.reconcile import Tree, View

__all__ = ["RecordedError", "from_value", "key_value", "marked", "to_value"]

Read = Callable[[Any], Any]

_INT_MAX = 1 << 64
_MARK = ""


class RecordedError(Exception):
    """The stand-in, in a replay, for an error of the store that was recorded."""


def to_value(value: object, special: Callable[[object], Any] = lambda _: None) -> Any:
    """`value` as data of CBOR.

    special: the form of an object that is no data, such as a handle; ``None`` for all others.
    """
    kind = type(value)
    if value is None or kind in (bool, str, bytes, float):
        return value
    if isinstance(value, Enum):
        return marked(_name_of(kind), member=value.name)
    if isinstance(value, int):
        plain = int(value)
        return plain if -_INT_MAX <= plain < _INT_MAX else marked("int", hex=hex(plain))
    if kind is list:
        return [to_value(each, special) for each in value]  # type: ignore[attr-defined]
    if is_buffer(value):
        return bytes(value)
    written = special(value)
    return _written(value, kind, special) if written is None else written


def key_value(key: object, *, secrets: bool) -> Any:
    """The form of a secret key, or of what is left of it; ``None`` for everything else."""
    kind = type(key).__name__
    if not isinstance(key, (PrivateKey, SigningKey)):
        return None
    return marked("key", type=kind, secret=bytes(key)) if secrets else marked("secret", type=kind)


def _written(value: Any, kind: type, special: Callable[[object], Any]) -> Any:
    def write(part: object) -> Any:
        return to_value(part, special)

    if isinstance(value, ProtocolError):
        return marked(_name_of(kind), code=write(value.code), message=value.message)
    if isinstance(value, BaseException):
        return marked("exception", type=kind.__qualname__, message=str(value))
    if isinstance(value, tuple):
        if named := getattr(value, "_fields", None):
            parts = dict(zip(named, map(write, value), strict=True))
            return marked(_name_of(kind), fields=parts)
        return marked("tuple", items=[write(each) for each in value])
    if is_mapping(value):
        if _is_plain(list(value)):
            return {key: write(each) for key, each in value.items()}
        pairs = [[write(key), write(each)] for key, each in value.items()]
        return marked("dict", pairs=pairs)
    if is_set(value):
        return marked("set", items=sorted((write(each) for each in value), key=repr))
    if isinstance(value, EnumType):
        return marked("tuple", items=[write(each) for each in cast(Iterable[Enum], value)])
    if isinstance(value, range):
        return marked("range", items=[value.start, value.stop, value.step])
    if isinstance(value, View):
        return marked("tree", form=_form_of(value), items=value.read(0, len(value)))
    if (name := _constant(value, kind)) is not None:
        return marked(_name_of(kind), constant=name)
    if is_dataclass(value) and not isinstance(value, type):
        named = [each.name for each in fields(value) if each.init]
        return marked(_name_of(kind), fields={name: write(getattr(value, name)) for name in named})
    if (slots := _slots_of(value)) is not None:
        parts = {name: write(part) for name, part in slots.items()}
        return marked(_name_of(kind), slots=parts)
    return marked("opaque", type=kind.__qualname__)


def _is_plain(keys: list[object]) -> bool:
    """Whether a mapping with these keys comes back as it is: CBOR puts them in an order."""
    texts = [key for key in keys if type(key) is str and key != _MARK]
    encoded = [key.encode(errors="surrogatepass") for key in texts]
    return len(texts) == len(keys) and encoded == sorted(encoded, key=lambda one: (len(one), one))


def _form_of(tree: View) -> dict[str, Any]:
    return {"item_size": tree.item_size, "varying": tree.varying, "monoid": tree.monoid.name}


def _tree(value: dict[str, Any], _read: Read) -> View:
    tree = Tree(**value["form"])
    tree.load_items(value["items"])
    return tree.snapshot()


def _constant(value: Any, kind: type) -> str | None:
    """The name under which the module of its class has just this object."""
    if not kind.__module__.startswith("culm."):
        return None
    names = vars(import_module(kind.__module__)).items()
    return next((name for name, each in names if each is value), None)


def _slots_of(value: Any) -> Mapping[str, object] | None:
    """The state of an object that has nothing but slots; ``None`` for all others."""
    kind = type(value)
    if hasattr(value, "__dict__") or not hasattr(kind, "__slots__"):
        return None
    names: list[str] = copyreg._slotnames(kind)  # type: ignore[attr-defined]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def marked(mark: str, **parts: Any) -> dict[str, Any]:
    """A value that says what it is."""
    return {_MARK: mark, **parts}


def _name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def from_value(
    value: Any, object_of: Callable[[int], object], packages: Set[str] = frozenset({"culm"})
) -> Any:
    """Inverse of `to_value`.

    object_of: the handle of that number.
    packages: whose classes may be built.
    Raises `CaptureError`: ``OPAQUE`` for values that could not be written, ``BAD_VALUE`` for those
    that are none.
    """

    def read(part: Any) -> Any:
        return from_value(part, object_of, packages)

    if isinstance(value, list):
        return [read(each) for each in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {key: read(each) for key, each in value.items()}
    mark = value[_MARK]
    try:
        build = _BUILT_IN.get(mark)
        if build is not None:
            return build(value, read)
        if mark == "object":
            return object_of(value["number"])
        if mark in _LEFT_OUT:
            raise CaptureError(ErrorCode.OPAQUE, f"a {value['type']} {_LEFT_OUT[mark]}")
        return _built(_class_of(mark, packages), value, read)
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CaptureError(ErrorCode.BAD_VALUE, f"{mark}: {error}") from None


_KEYS: dict[str, type[PrivateKey] | type[SigningKey]] = {
    each.__name__: each for each in (PrivateKey, SigningKey)
}
_LEFT_OUT = {"opaque": "cannot be written", "secret": "was left out"}

_BUILT_IN: dict[object, Callable[[dict[str, Any], Read], Any]] = {
    "dict": lambda value, read: {read(key): read(each) for key, each in value["pairs"]},
    "exception": lambda value, read: RecordedError(value["type"], value["message"]),
    "key": lambda value, read: _KEYS[value["type"]](value["secret"]),
    "int": lambda value, read: int(value["hex"], 16),
    "range": lambda value, read: range(*value["items"]),
    "set": lambda value, read: frozenset(read(each) for each in value["items"]),
    "tree": _tree,
    "tuple": lambda value, read: tuple(read(each) for each in value["items"]),
}


def _class_of(name: str, packages: Set[str]) -> type:
    module, _, path = name.partition(":")
    if module.partition(".")[0] not in packages:
        raise CaptureError(ErrorCode.BAD_VALUE, f"{name} is of no package that may be built")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    if not isinstance(found, type) or found.__module__ != module:
        raise TypeError("no class of that module")
    return found


def _built(kind: type, value: dict[str, Any], read: Read) -> Any:
    if issubclass(kind, Enum):
        return kind[value["member"]]
    if issubclass(kind, ProtocolError):
        return kind(read(value["code"]), value["message"])
    if issubclass(kind, BaseException):
        raise TypeError("no error that is built")
    if "constant" in value:
        constant = getattr(import_module(kind.__module__), value["constant"])
        if type(constant) is not kind:
            raise TypeError("another constant")
        return constant
    if "fields" in value and (is_dataclass(kind) or hasattr(kind, "_fields")):
        return kind(**{name: read(part) for name, part in value["fields"].items()})
    slots: list[str] = copyreg._slotnames(kind)  # type: ignore[attr-defined]
    made: Any = object.__new__(kind)
    for name, part in value["slots"].items():
        if name not in slots:
            raise KeyError(name)
        object.__setattr__(made, name, read(part))
    return made
