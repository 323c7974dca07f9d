"""Any value that passes between a machine and its driver as data of CBOR, and back.

Plain data are themselves.  Everything else is a map with the key ``""`` for its kind::

    {"": "tuple", "items": [...]}
    {"": "culm.oxen.events:PeerState", "member": "JOINED"}
    {"": "culm.bamboo.entry:LogKey", "fields": {...}}
    {"": "culm.wire.multihash:HashFamily", "constant": "YAMF"}
    {"": "object", "number": 3}          a handle: the result of an earlier call
    {"": "chance"}                       the generator that was recorded
    {"": "key", "type": "SigningKey", "secret": b"..."}
    {"": "secret", "type": "SigningKey"}  a key that was left out
    {"": "payload", "type": "bytes", "size": 5}  was left out
    {"": "opaque", "type": "function"}   cannot be written

Reading builds enums, dataclasses, named tuples and objects with slots, and only those of the
packages that the reader allows.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum, EnumType
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from culm.capture.errors import CaptureError, ErrorCode
from culm.machine import STAND_IN, ProtocolError
from culm.reconcile import Tree, View

_Read = Callable[[Any], Any]

_INT_MAX = 1 << 64
MARK, CHANCE = "", "chance"


class RecordedError(Exception):
    """The stand-in, in a replay, for an error of the store that was recorded.

    It is written, and reads, as that error does; its arguments are the name of the class, and the
    message.
    """

    def __str__(self) -> str:
        return str(self.args[-1])


class Hidden(NamedTuple):
    """The value of a field that its dataclass does not show (``repr=False``)."""

    value: object


Special = Callable[[object], Any]
_Writer = Callable[[Any, Special], Any]


def to_value(value: object, special: Special = lambda _: None) -> Any:
    """`value` as data of CBOR.

    special: the form of an object that is no data, such as a handle or a secret key, or is
        `Hidden`; ``None`` for all that have no special one.
    """
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    write = _writers.get(kind)
    if write is None:
        write = _writers[kind] = _writer_of(kind)
    return write(value, special)


_AS_THEY_ARE = frozenset({type(None), bool, str, bytes, float})
_writers: dict[type, _Writer] = {}


def _writer_of(kind: type) -> _Writer:
    """The function that writes the values of a class."""
    for known, write in _OF_CLASSES.items():
        if issubclass(kind, known):
            return write
    if fields_of := _fields_of(kind):
        return _record_writer(kind, *fields_of)
    return _write_other


def class_form(kind: type) -> tuple[str, str, Sequence[str], bool] | None:
    """How records of a class are written: its name, the name and the names of its parts.

    The last says whether every record is written so, whatever its parts are.  ``None`` for classes
    that are no records.
    """
    known = next((known for known in _OF_CLASSES if issubclass(kind, known)), None)
    if known is tuple and (named := getattr(kind, "_fields", None)):
        return name_of(kind), "fields", named, True
    parts = None if known is not None else _fields_of(kind)
    if parts is None:
        return None
    return name_of(kind), *parts, not (constants_of(kind) or _hidden_in(kind))


def _write_int(value: int, _special: Special) -> Any:
    plain = int(value)
    return plain if -_INT_MAX <= plain < _INT_MAX else marked("int", hex=hex(plain))


def _write_tuple(value: tuple[Any, ...], special: Special) -> Any:
    items = [to_value(each, special) for each in value]
    if named := getattr(value, "_fields", None):
        return marked(name_of(type(value)), fields=dict(zip(named, items, strict=True)))
    return marked("tuple", items=items)


def _write_mapping(value: Mapping[Any, Any], special: Special) -> Any:
    if _is_plain(list(value)):
        return {key: to_value(each, special) for key, each in value.items()}
    pairs = [[to_value(key, special), to_value(each, special)] for key, each in value.items()]
    return marked("dict", pairs=pairs)


def _write_error(value: BaseException, special: Special) -> Any:
    if isinstance(value, ProtocolError):
        code = to_value(value.code, special)
        return marked(name_of(type(value)), code=code, message=value.message)
    if isinstance(value, RecordedError):
        kind, message = value.args
        return marked("exception", type=kind, message=message)
    return marked("exception", type=type(value).__qualname__, message=str(value))


def _write_tree(value: View, _special: Special) -> Any:
    form = {"item_size": value.item_size, "varying": value.varying, "monoid": value.monoid.name}
    return marked("tree", form=form, items=value.read(0, len(value)))


_OF_CLASSES: dict[type, _Writer] = {
    Enum: lambda value, _: marked(name_of(type(value)), member=value.name),
    EnumType: lambda value, special: _write_tuple(tuple(value), special),
    int: _write_int,
    list: lambda value, special: [to_value(each, special) for each in value],
    bytes: lambda value, _: bytes(value),
    bytearray: lambda value, _: bytes(value),
    memoryview: lambda value, _: bytes(value),
    tuple: _write_tuple,
    Mapping: _write_mapping,
    Set: lambda value, special: marked(
        "set", items=sorted((to_value(each, special) for each in value), key=repr)
    ),
    range: lambda value, _: marked("range", items=[value.start, value.stop, value.step]),
    BaseException: _write_error,
    View: _write_tree,
}


def _fields_of(kind: type) -> tuple[str, Sequence[str]] | None:
    """How the state of a dataclass, or of a class with slots only, is named; and its names."""
    if is_dataclass(kind):
        return "fields", [each.name for each in fields(kind) if each.init]
    if hasattr(kind, "__slots__") and not kind.__dictoffset__ and not hasattr(kind, STAND_IN):
        return "slots", copyreg._slotnames(kind)  # type: ignore[attr-defined]
    return None


def _record_writer(kind: type, part: str, names: Sequence[str]) -> _Writer:
    name, constants, hidden = name_of(kind), constants_of(kind), _hidden_in(kind)

    def write(value: Any, special: Special) -> Any:
        for constant, each in constants:
            if each is value:
                return {MARK: name, "constant": constant}
        written = {each: to_value(getattr(value, each), special) for each in names}
        for each in hidden:
            if (form := special(Hidden(getattr(value, each)))) is not None:
                written[each] = form
        return {MARK: name, part: written}

    return write


def _hidden_in(kind: type) -> list[str]:
    """The fields of a dataclass that it does not show."""
    if not is_dataclass(kind):
        return []
    return [each.name for each in fields(kind) if each.init and not each.repr]


@lru_cache(maxsize=1024)
def constants_of(kind: type) -> list[tuple[str, object]]:
    """The objects of that class that its module keeps under a name."""
    if not kind.__module__.startswith("culm."):
        return []
    names = vars(import_module(kind.__module__)).items()
    return [(name, each) for name, each in names if type(each) is kind]


def _write_other(value: object, special: Special) -> Any:
    written = special(value)
    if written is not None:
        return written
    kind = type(value)
    if isinstance(value, (PrivateKey, SigningKey)):
        return marked("key", type=kind.__name__, secret=bytes(value))
    return marked("opaque", type=kind.__qualname__)


def _is_plain(keys: list[object]) -> bool:
    """Whether a mapping with these keys comes back as it is: CBOR puts them in an order."""
    texts = [key for key in keys if type(key) is str and key != MARK]
    encoded = [key.encode(errors="surrogatepass") for key in texts]
    return len(texts) == len(keys) and encoded == sorted(encoded, key=lambda one: (len(one), one))


def _tree(value: dict[str, Any], _read: _Read) -> View:
    tree = Tree(**value["form"])
    tree.load_items(value["items"])
    return tree.snapshot()


def marked(mark: str, **parts: Any) -> dict[str, Any]:
    """A value with a mark of its kind."""
    return {MARK: mark, **parts}


def name_of(kind: type) -> str:
    """The name by which a class is found again."""
    return f"{kind.__module__}:{kind.__qualname__}"


def from_value(
    value: Any, object_of: Callable[[int], object], packages: Set[str] = frozenset({"culm"})
) -> Any:
    """Inverse of `to_value`.

    object_of: the handle of that number; for -1 the chance that was recorded.
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
    if MARK not in value:
        return {key: read(each) for key, each in value.items()}
    mark = value[MARK]
    try:
        build = _BUILT_IN.get(mark)
        if build is not None:
            return build(value, read)
        if mark == "object":
            return object_of(value["number"])
        if mark == CHANCE:
            return object_of(-1)
        if mark in _LEFT_OUT:
            raise CaptureError(ErrorCode.OPAQUE, f"a {value['type']} {_LEFT_OUT[mark]}")
        return _built(class_of(mark, packages), value, read)
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CaptureError(ErrorCode.BAD_VALUE, f"{mark}: {error}") from None


_KEYS: dict[str, type[PrivateKey] | type[SigningKey]] = {
    each.__name__: each for each in (PrivateKey, SigningKey)
}
_LEFT_OUT = {"opaque": "cannot be written", "payload": "was left out", "secret": "was left out"}

_BUILT_IN: dict[object, Callable[[dict[str, Any], _Read], Any]] = {
    "dict": lambda value, read: {read(key): read(each) for key, each in value["pairs"]},
    "exception": lambda value, read: RecordedError(value["type"], value["message"]),
    "key": lambda value, read: _KEYS[value["type"]](value["secret"]),
    "int": lambda value, read: int(value["hex"], 16),
    "range": lambda value, read: range(*value["items"]),
    "set": lambda value, read: frozenset(read(each) for each in value["items"]),
    "tree": _tree,
    "tuple": lambda value, read: tuple(read(each) for each in value["items"]),
}


def class_of(name: str, packages: Set[str] = frozenset({"culm"})) -> type:
    """Inverse of `name_of`.  Raises `CaptureError`, and the errors of an import."""
    module, _, path = name.partition(":")
    if module.partition(".")[0] not in packages:
        raise CaptureError(ErrorCode.BAD_VALUE, f"{name} is of no package that may be built")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    if not isinstance(found, type) or found.__module__ != module:
        raise TypeError("no class of that module")
    return found


def _built(kind: type, value: dict[str, Any], read: _Read) -> Any:
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
