"""Parcels, their bodies, and the messages inside message data.

Source: manual/dev-oxen.md, "Parcel schema" and "Message data (`md`) body types"; for the
flat dialect src/oxen/data.rs of ircd-oxide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from itertools import compress
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from culm.buffer import Buffer
from culm.wire import xenc
from culm.wire.errors import DecodeError
from culm.wire.xenc import Timestamp, Value

ID_MAX = 2**32 - 1
SEQUENCE_MAX = 2**63 - 1

T = TypeVar("T", bound=tuple[object, ...])


class _New(Protocol):
    def __call__(self, cls: type[T], values: Iterable[object], /) -> T: ...


new_tuple: _New = tuple[object, ...].__new__
"""Makes a named tuple at half the cost of its own constructor; each message takes five."""

# The levels of a parcel: dictionary, body, message or rows, and at most two more below.
_DEPTH_MAX = 5


class Dialect(Enum):
    """How a parcel holds its body."""

    KEYED = "keyed"
    """Under a key of its own: ``{ka: 1, md: {to: ...}}``, as the specification has it."""
    FLAT = "flat"
    """Beside ``ka`` and ``kk``, its kind under ``pt``: ``{ka: 1, pt: "md", to: ...}``, and
    the message beside that.  This is the dialect of ircd-oxide's last published code."""


_KEYED = Dialect.KEYED


class ParcelError(ValueError):
    """A value that is not a parcel, or not a message."""


class MessageData(NamedTuple):
    """``md``.  `read_message` reads `d`; without an `id` no acknowledgement is wanted."""

    to: bytes
    fr: bytes
    id: int | None
    d: Value


class MessageAck(NamedTuple):
    """``ma``: `fr` has got the message `id` of `to`."""

    to: bytes
    fr: bytes
    id: int


class Gossip(NamedTuple):
    """``lc``: rows of the last contact table (Unix seconds), and the servers of their columns."""

    rows: Mapping[bytes, list[float]]
    columns: list[bytes]


Body: TypeAlias = MessageData | MessageAck | Gossip


class Parcel(NamedTuple):
    """The content of one datagram."""

    ka: int | None = None
    """The ID of a keepalive that asks for a response."""
    kk: int | None = None
    """The ID of the keepalive that this parcel responds to."""
    body: Body | None = None


class Datagram(NamedTuple):
    """A plain message: `d` is an octet string."""

    data: bytes


class Synchronize(NamedTuple):
    """``s``: the last numbers before the next messages to be delivered."""

    broadcast: int
    one: int
    message_size_max: int = 0
    """``z``: bytes of the largest message that the sender takes in pieces; absent if none."""
    tags_size_max: int = 0
    """``t``: bytes of tags that the sender takes; absent if none."""
    known: int = 0
    """``a``: the receiver's one-to-one number as the sender knows it; absent if unknown."""


class Finalize(NamedTuple):
    """``f``: the numbers of the last messages in order."""

    broadcast: int
    one: int
    known: int = 0
    """``a``: as in `Synchronize`."""


class Tags(NamedTuple):
    """``t``: the tags of the sending node, which replace earlier ones.

    one: as in `Synchronize`, to identify the association;
    version: of several tables the one with the highest version counts.
    """

    one: int
    version: int
    table: Mapping[str, str]


class Position(Enum):
    """The place of a piece in its message, as the letter after the kind in ``m``."""

    FIRST = b"f"
    MIDDLE = b"m"
    LAST = b"l"


class Broadcast(NamedTuple):
    """``b``: a message for the sending node's broadcast buffer."""

    sequence: int
    data: bytes


class OneToOne(NamedTuple):
    """``1``: a message for the one-to-one buffer of the sending node on the receiving one."""

    sequence: int
    data: bytes


class Piece(NamedTuple):
    """Part of a message larger than a datagram; the piece with the next number continues it.

    kind: of the message, ``1`` or ``b``.
    """

    kind: bytes
    sequence: int
    position: Position
    data: bytes


class Turn(NamedTuple):
    """The answer to a first piece, by its number: wait for a place (``w``), or come (``c``).

    kind: of the message, ``1`` or ``b``.
    """

    kind: bytes
    sequence: int
    has_come: bool


class Missing(NamedTuple):
    """The question (``q``) whether the message with that number will never come.

    It is acknowledged if so, and else not answered.

    kind: of the stream, ``1`` or ``b``.
    """

    kind: bytes
    sequence: int


class Outlived(NamedTuple):
    """``o``: the receiving server has sealed datagrams in a later life than its present one.

    milliseconds: Unix time at which its latest known life began; datagrams of earlier lives have
        no effect.
    """

    milliseconds: int


Message: TypeAlias = (
    Datagram
    | Synchronize
    | Finalize
    | Broadcast
    | OneToOne
    | Piece
    | Turn
    | Missing
    | Tags
    | Outlived
)


def encode_parcel(
    parcel: tuple[int | None, int | None, Body | None], dialect: Dialect = Dialect.KEYED
) -> bytes:
    """The canonical encoding of `parcel`, a `Parcel` or a tuple of its three fields.

    Numbers must be within their ranges.
    """
    ka, kk, body = parcel
    if dialect is not _KEYED or body is None or type(body) is Gossip:
        return _encode_any(ka, kk, body, dialect)
    # Message data and acknowledgements are frequent: this costs a third of `xenc.encode`.
    head = b"" if ka is None else b"2:kai%de" % ka
    if kk is not None:
        head += b"2:kki%de" % kk
    if type(body) is MessageAck:
        to, fr, id = body
        return b"d%b2:mad2:fr%d:%b2:idi%de2:to%d:%bee" % (head, len(fr), fr, id, len(to), to)
    assert type(body) is MessageData
    to, fr, wanted, d = body
    ending = b"" if wanted is None else b"2:idi%de" % wanted
    encoded = xenc.encode(d)
    return b"d%b2:mdd1:d%b2:fr%d:%b%b2:to%d:%bee" % (
        head,
        encoded,
        len(fr),
        fr,
        ending,
        len(to),
        to,
    )


def _encode_any(ka: int | None, kk: int | None, body: Body | None, dialect: Dialect) -> bytes:
    fields: dict[bytes, Value] = {}
    if ka is not None:
        fields[b"ka"] = ka
    if kk is not None:
        fields[b"kk"] = kk
    if body is not None:
        kind, content = _write_body(body)
        if dialect is _KEYED:
            fields[kind] = content
        else:
            message = content.pop(b"d", None) if kind == b"md" else None
            fields |= content
            fields[b"pt"] = kind
            if message is not None:
                fields |= message if isinstance(message, dict) else {b"d": message}
    return xenc.encode(fields)


def decode_parcel(
    data: Buffer, dialect: Dialect = Dialect.KEYED, *, sid_size_max: int = 32
) -> Parcel:
    """The parcel that `data` encodes; unknown keys are ignored.

    Raises `ParcelError` if it encodes none.  The `d` of message data is not interpreted, as it
    does not concern servers that only forward it.
    """
    try:
        fields = xenc.decode(data, depth_max=_DEPTH_MAX)
    except DecodeError as error:
        raise ParcelError(str(error)) from error
    if type(fields) is not dict:
        raise ParcelError("a parcel is a dictionary")
    read_body = _read_keyed if dialect is _KEYED else _read_flat
    body = read_body(fields, sid_size_max)
    ka, kk = fields.get(b"ka"), fields.get(b"kk")
    if ka is not None:
        ka = _number(ka)
    if kk is not None:
        kk = _number(kk)
    return new_tuple(Parcel, (ka, kk, body))


def write_message(message: Message) -> Value:
    """The `d` of message data that holds `message`."""
    if isinstance(message, OneToOne):
        return write_one_to_one(*message)
    if isinstance(message, Broadcast):
        return write_broadcast(*message)
    if isinstance(message, Datagram):
        return message.data
    if isinstance(message, Piece):
        kind = message.kind + message.position.value
        return {b"d": message.data, b"m": kind, b"s": message.sequence}
    if isinstance(message, Outlived):
        return {b"m": b"o", b"s": message.milliseconds}
    if isinstance(message, Turn):
        return {b"m": message.kind + (b"c" if message.has_come else b"w"), b"s": message.sequence}
    if isinstance(message, Missing):
        return {b"m": message.kind + b"q", b"s": message.sequence}
    if isinstance(message, Tags):
        table = write_table(message.table)
        return {b"m": b"t", b"1": message.one, b"t": table, b"v": message.version}
    kind = b"f" if isinstance(message, Finalize) else b"s"
    d: dict[bytes, Value] = {b"m": kind, b"b": message.broadcast, b"1": message.one}
    if message.known:
        d[b"a"] = message.known
    if isinstance(message, Synchronize):
        if message.message_size_max:
            d[b"z"] = message.message_size_max
        if message.tags_size_max:
            d[b"t"] = message.tags_size_max
    return d


def write_table(table: Mapping[str, str]) -> dict[bytes, Value]:
    """Tags as an XENC dictionary."""
    return {name.encode(): value.encode() for name, value in table.items()}


def write_one_to_one(sequence: int, data: bytes) -> Value:
    """The `d` of message data that holds a one-to-one message."""
    return {b"d": data, b"m": b"1", b"s": sequence}


def write_broadcast(sequence: int, data: bytes) -> Value:
    """The `d` of message data that holds a broadcast."""
    return {b"d": data, b"m": b"b", b"s": sequence}


def read_message(d: Value) -> Message:
    """The message in message data.  Raises `ParcelError` if there is none."""
    if type(d) is bytes:
        return Datagram(d)
    if type(d) is not dict:
        raise ParcelError("a message is an octet string or a dictionary")
    kind = d.get(b"m")
    if kind == b"1" or kind == b"b":
        sequence, data = d.get(b"s"), d.get(b"d")
        if type(sequence) is not int or not 0 <= sequence <= SEQUENCE_MAX:
            raise ParcelError("a sequence number was expected")
        if type(data) is not bytes:
            raise ParcelError("an octet string was expected")
        if kind == b"1":
            return new_tuple(OneToOne, (sequence, data))
        return new_tuple(Broadcast, (sequence, data))
    if kind == b"s" or kind == b"f":
        broadcast = _number(d.get(b"b"), SEQUENCE_MAX)
        one = _number(d.get(b"1"), SEQUENCE_MAX)
        known = _number(d.get(b"a", 0), SEQUENCE_MAX)
        if kind == b"f":
            return Finalize(broadcast, one, known)
        pieces, tags = (_number(d.get(key, 0), SEQUENCE_MAX) for key in (b"z", b"t"))
        return Synchronize(broadcast, one, pieces, tags, known)
    if type(kind) is bytes and kind in _PIECES:
        whole, position = _PIECES[kind]
        return Piece(whole, _number(d.get(b"s"), SEQUENCE_MAX), position, _octets(d.get(b"d")))
    if type(kind) is bytes and kind in _TURNS:
        whole, has_come = _TURNS[kind]
        return Turn(whole, _number(d.get(b"s"), SEQUENCE_MAX), has_come)
    if type(kind) is bytes and kind in _QUESTIONS:
        return Missing(_QUESTIONS[kind], _number(d.get(b"s"), SEQUENCE_MAX))
    if kind == b"t":
        one, version = (_number(d.get(key), SEQUENCE_MAX) for key in (b"1", b"v"))
        return Tags(one, version, _read_table(d.get(b"t")))
    if kind == b"o":
        return Outlived(_number(d.get(b"s"), SEQUENCE_MAX))
    raise ParcelError("a message of unknown kind")


def _write_body(body: Body) -> tuple[bytes, dict[bytes, Any]]:
    # The keys are in canonical order, which spares the encoder sorting them.
    if type(body) is MessageData:
        to, fr, id, d = body
        if id is None:
            return b"md", {b"d": d, b"fr": fr, b"to": to}
        return b"md", {b"d": d, b"fr": fr, b"id": id, b"to": to}
    if type(body) is MessageAck:
        to, fr, id = body
        return b"ma", {b"fr": fr, b"id": id, b"to": to}
    assert isinstance(body, Gossip)
    rows = {sid: [_timestamp(time) for time in row] for sid, row in body.rows.items()}
    return b"lc", {b"lc": rows, b"p": body.columns}


def _read_keyed(fields: dict[bytes, Value], sid_size_max: int) -> Body | None:
    body: Body | None = None
    for kind, content in fields.items():
        read = _READERS.get(kind)
        if read is not None:
            if body is not None:
                raise ParcelError("a parcel has one body")
            if type(content) is not dict:
                raise ParcelError("a body is a dictionary")
            body = read(content, sid_size_max)
    return body


def _read_flat(fields: dict[bytes, Value], sid_size_max: int) -> Body | None:
    if b"pt" not in fields:
        return None
    kind = _octets(fields[b"pt"])
    if kind not in _READERS:
        raise ParcelError("a body of unknown kind")
    if kind == b"md":
        fields[b"d"] = (
            {key: fields[key] for key in _MESSAGE_KEYS if key in fields}
            if b"m" in fields
            else fields.get(b"d", b"")
        )
    return _READERS[kind](fields, sid_size_max)


def _read_data(fields: dict[bytes, Value], sid_size_max: int) -> MessageData:
    to, fr, id = _read_envelope(fields, sid_size_max)
    d = fields.get(b"d")
    if d is None:
        raise ParcelError("message data without `d`")
    return new_tuple(MessageData, (to, fr, id, d))


def _read_ack(fields: dict[bytes, Value], sid_size_max: int) -> MessageAck:
    to, fr, id = _read_envelope(fields, sid_size_max)
    if id is None:
        raise ParcelError("an acknowledgement of nothing")
    return new_tuple(MessageAck, (to, fr, id))


def _read_gossip(fields: dict[bytes, Value], sid_size_max: int) -> Gossip:
    """Gossip without the servers whose IDs are too long here: others may know them."""
    columns = [_sid(sid) for sid in _list(fields.get(b"p"))]
    taken = [len(sid) <= sid_size_max for sid in columns]
    rows: dict[bytes, list[float]] = {}
    for sid, row in _dictionary(fields.get(b"lc")).items():
        times = [_seconds(time) for time in _list(row)]
        if len(times) != len(columns):
            raise ParcelError("a row has one time for each column")
        if len(_sid(sid)) <= sid_size_max:
            rows[sid] = list(compress(times, taken))
    return Gossip(rows, list(compress(columns, taken)))


_READERS: dict[bytes, Callable[[dict[bytes, Value], int], Body]] = {
    b"md": _read_data,
    b"ma": _read_ack,
    b"lc": _read_gossip,
}
_MESSAGE_KEYS = (b"m", b"s", b"d", b"b", b"1", b"z", b"t", b"v", b"a")
_PIECES = {
    kind + position.value: (kind, position) for kind in (b"1", b"b") for position in Position
}
_QUESTIONS = {b"1q": b"1", b"bq": b"b"}
_TURNS = {b"1w": (b"1", False), b"1c": (b"1", True), b"bw": (b"b", False), b"bc": (b"b", True)}


def _read_table(value: Value | None) -> dict[str, str]:
    try:
        return {
            name.decode(): _octets(octets).decode() for name, octets in _dictionary(value).items()
        }
    except UnicodeDecodeError as error:
        raise ParcelError("tags are text") from error


def _dictionary(value: Value | None) -> dict[bytes, Value]:
    if not isinstance(value, dict):
        raise ParcelError("a dictionary was expected")
    return value


def _list(value: Value | None) -> list[Value]:
    if not isinstance(value, list):
        raise ParcelError("a list was expected")
    return value


def _octets(value: object) -> bytes:
    if type(value) is not bytes:
        raise ParcelError("an octet string was expected")
    return value


def _sid(value: object) -> bytes:
    if type(value) is not bytes or not value:
        raise ParcelError("a server ID was expected")
    return value


def _read_envelope(
    fields: dict[bytes, Value], sid_size_max: int
) -> tuple[bytes, bytes, int | None]:
    """The receiver, the sender, and the ID, if any."""
    to, fr, id = fields.get(b"to"), fields.get(b"fr"), fields.get(b"id")
    if (
        type(to) is not bytes
        or type(fr) is not bytes
        or not 0 < len(to) <= sid_size_max
        or not 0 < len(fr) <= sid_size_max
    ):
        raise ParcelError("two server IDs were expected")
    if id is None:
        return to, fr, None
    if type(id) is not int or not 0 <= id <= ID_MAX:
        raise ParcelError("an ID was expected")
    return to, fr, id


def _number(value: object, number_max: int = ID_MAX) -> int:
    if type(value) is not int or not 0 <= value <= number_max:
        raise ParcelError("a number within its range was expected")
    return value


def _seconds(value: object) -> float:
    """Unix time in seconds, which the specification's example of gossip writes as an integer."""
    if isinstance(value, Timestamp):
        return value.seconds + value.nanoseconds * 1e-9
    if type(value) is int:
        return float(value)
    raise ParcelError("a time was expected")


def _timestamp(time: float) -> Timestamp:
    seconds = math.floor(time)
    return Timestamp(seconds, min(int((time - seconds) * 1e9), 999_999_999))
