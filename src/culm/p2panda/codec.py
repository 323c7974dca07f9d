"""Messages as CBOR, in either dialect, and cut out of a byte stream.

Sources: seed, "Encoding" and the form of each message; decisions 1 to 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from culm.arguments import UINT64_MAX, is_list
from culm.bamboo.entry import AUTHOR_SIZE, LogKey, encoded_size_max
from culm.buffer import ReceiveBuffer
from culm.kernels import cbor as _kernel
from culm.machine import RemoteProtocolError
from culm.p2panda.errors import ErrorCode
from culm.p2panda.heights import ITEM_SIZE_MAX, ITEM_SIZE_MIN, Height, decode_item, encode_item
from culm.p2panda.limits import Limits
from culm.p2panda.messages import (
    LIFT_SIZE_MAX,
    Announce,
    Done,
    EmptyPayload,
    EmptySet,
    Fingerprint,
    Have,
    LowerBound,
    Message,
    MessageType,
    Payload,
    RangeMessage,
    Reconcile,
    SendEntry,
    SyncDone,
    SyncRequest,
    Terminal,
)
from culm.wire import cbor
from culm.wire.cbor import ARRAY, BYTES, Scanner, encode_head
from culm.wire.errors import DecodeError, WireErrorCode
from culm.wire.multihash import YASMF

ENTRY_SIZE_MAX = encoded_size_max(YASMF)
_HEAD_SIZE = 9
_FRONT_SIZE = 3 + _HEAD_SIZE  # the array, the type, the session id
_ARRAY = 0x80
_ARITIES = range(2, 6)
_DIRECT_MAX = 23
_ONE_BYTE = 24
_TYPE_SIZE_MAX = 3  # of the bytes that tell a message's type
_ENTRY = b"\x84\x02"  # the first bytes of an entry's message, before the session id
_FRONT_SIZE_MAX = 2 + 3 * 9  # of an entry's message, besides the entry and the operation
ENTRY_OVERHEAD = 1500
"""Bytes that an entry takes besides those of itself and its operation, until it is stored."""
_RUN_MAX = 64
_RUN_SIZE_MAX = 1 << 16

_Type = MessageType


class Dialect(Enum):
    """How keys and log heights are encoded, and which ids sessions get.

    SEED
        Keys are hex text; ``Have`` is a list of triples; session ids count our requests.
    AQUADOGGO
        Keys are bytes, and ``Have`` groups its logs by them; an operation may be missing; session
        ids are the lowest that is free.
    """

    SEED = "seed"
    AQUADOGGO = "aquadoggo"


class MessageBounds(NamedTuple):
    """Those of a message type: its own items, bytes, nested arrays, and all items in these.

    items_max, item_size: the items that any message may have, and the bytes that allow one more.
    passed_item_size: the bytes that do so in one that is passed over.
    """

    arities: frozenset[int]
    size_max: int
    depth_max: int
    items_max: int = 16
    item_size: int = 1 << 30
    passed_item_size: int = 0

    def scanner(self) -> Scanner:
        return Scanner(
            size_max=self.size_max,
            depth_max=self.depth_max,
            items_max=self.items_max,
            item_size=self.item_size,
        )


@lru_cache(maxsize=16)
def _bounds(dialect: Dialect, limits: Limits) -> Mapping[int, MessageBounds]:
    """The same for all connections that have these limits."""
    ids = _FRONT_SIZE + 2 * _HEAD_SIZE
    ids += limits.schemas_max * (_HEAD_SIZE + limits.schema_id_size_max)
    entry = _FRONT_SIZE + 2 * _HEAD_SIZE + ENTRY_SIZE_MAX + limits.operation_size_max
    have = _FRONT_SIZE + _HEAD_SIZE + limits.logs_max * (ITEM_SIZE_MAX + 1)
    named = 5 + limits.schemas_max
    depth, *heights = 3, 5, ITEM_SIZE_MIN // 4, ITEM_SIZE_MIN // 4
    if dialect is Dialect.AQUADOGGO:
        depth, *heights = 5, 4 + 6 * limits.logs_max, have, 2
    ranges = _FRONT_SIZE + 2 * ITEM_SIZE_MAX + _HEAD_SIZE + LIFT_SIZE_MAX
    return {
        _Type.ANNOUNCE: MessageBounds(frozenset({4}), ids, 2, named),
        _Type.SYNC_REQUEST: MessageBounds(frozenset({4}), ids, 2, named),
        _Type.ENTRY: MessageBounds(frozenset({4}), entry, 1),
        _Type.SYNC_DONE: MessageBounds(frozenset({3}), _FRONT_SIZE + 1, 1),
        _Type.HAVE: MessageBounds(frozenset({3}), have, depth, *heights),
        _Type.EMPTY_SET: MessageBounds(frozenset({3}), ranges, 1),
        _Type.LOWER_BOUND: MessageBounds(frozenset({3}), ranges, 2),
        _Type.PAYLOAD: MessageBounds(frozenset({3, 5}), ranges, 2),
        _Type.EMPTY_PAYLOAD: MessageBounds(frozenset({3}), ranges, 2),
        _Type.DONE: MessageBounds(frozenset({3}), ranges, 2),
        _Type.FINGERPRINT: MessageBounds(frozenset({4}), ranges, 2),
        _Type.TERMINAL: MessageBounds(frozenset({2}), ranges, 1),
    }


class Codec:
    """Encodes and decodes messages; stateless."""

    __slots__ = ("_dialect", "_limits", "_operation_size_max", "bounds")

    bounds: Mapping[int, MessageBounds]
    """By type; there are no others."""

    def __init__(self, *, dialect: Dialect, limits: Limits) -> None:
        self._dialect = dialect
        self._limits = limits
        self._operation_size_max = limits.operation_size_max
        self.bounds = _bounds(dialect, limits)

    # Encoding.

    def encode(self, message: Message) -> bytes:
        """The canonical encoding of a message whose parts are valid."""
        match message:
            case Announce(timestamp, schema_ids, version):
                return cbor.encode([_Type.ANNOUNCE, version, timestamp, list(schema_ids)])
            case SyncRequest(session_id, mode, schema_ids):
                return cbor.encode([_Type.SYNC_REQUEST, session_id, mode, list(schema_ids)])
            case SendEntry(session_id, entry, operation):
                return self.encode_entry(session_id, entry, operation)
            case SyncDone(session_id, live_mode):
                return cbor.encode([_Type.SYNC_DONE, session_id, live_mode])
            case Have(session_id, heights):
                return _front(3, _Type.HAVE, session_id) + self._encode_heights(heights or ())
            case Reconcile(session_id, inner):
                return self._encode_range(session_id, inner)

    def encode_entry(self, session_id: int, entry: bytes, operation: bytes | None) -> bytes:
        """The encoding of `SendEntry`."""
        if operation is not None:
            return self.encode_entries(session_id, [(entry, operation)])
        front = _front(4, _Type.ENTRY, session_id) + encode_head(BYTES, len(entry))
        return front + entry + cbor.encode(None)

    def encode_entries(self, session_id: int, entries: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The encodings of `SendEntry` for entries with their operations."""
        front = _front(4, _Type.ENTRY, session_id)
        pieces: list[bytes] = []
        for entry, operation in entries:
            entry_head, head = encode_head(BYTES, len(entry)), encode_head(BYTES, len(operation))
            pieces += (front, entry_head, entry, head, operation)
        return b"".join(pieces)

    def _encode_range(self, session_id: int, message: RangeMessage) -> bytes:
        item = self._encode_item
        match message:
            case EmptySet(can_respond):
                return _front(3, _Type.EMPTY_SET, session_id) + cbor.encode(can_respond)
            case LowerBound(bound):
                return _front(3, _Type.LOWER_BOUND, session_id) + item(bound)
            case Payload(value, None):
                return _front(3, _Type.PAYLOAD, session_id) + item(value)
            case Payload(value, upper_bound, can_respond):
                assert upper_bound is not None
                answer = cbor.encode(can_respond)
                front = _front(5, _Type.PAYLOAD, session_id)
                return b"".join((front, item(value), answer, item(upper_bound)))
            case EmptyPayload(upper_bound):
                return _front(3, _Type.EMPTY_PAYLOAD, session_id) + item(upper_bound)
            case Done(upper_bound):
                return _front(3, _Type.DONE, session_id) + item(upper_bound)
            case Fingerprint(lift, upper_bound):
                front = _front(4, _Type.FINGERPRINT, session_id)
                return front + cbor.encode(lift) + item(upper_bound)
            case Terminal():
                return _front(2, _Type.TERMINAL, session_id)

    def _encode_item(self, item: bytes) -> bytes:
        if self._dialect is Dialect.SEED:
            return item  # it is in this form already
        (author, log_id), seqnum = decode_item(item)
        return cbor.encode([author, log_id, seqnum])

    def _encode_heights(self, heights: Iterable[Height]) -> bytes:
        """Log heights, ascending in either dialect."""
        ordered = sorted(heights)
        if self._dialect is Dialect.SEED:
            items = [encode_item(log, seqnum) for log, seqnum in ordered]
            return encode_head(ARRAY, len(items)) + b"".join(items)
        groups = groupby(ordered, key=lambda height: height.log.author)
        return cbor.encode(
            [
                [author, [[height.log.log_id, height.seqnum] for height in group]]
                for author, group in groups
            ]
        )

    # Decoding.

    def decode(self, encoded: bytes) -> Message:
        """Decode one item of a known type, as the scanner has found it.

        Raises `RemoteProtocolError` (``MALFORMED``).
        """
        try:
            value = cbor.decode(encoded)
        except DecodeError as error:
            raise _malformed(str(error)) from None
        return self._read(value)

    def _read(self, value: list[Any]) -> Message:
        kind, number, *rest = value
        _check_number(number)
        match kind:
            case _Type.ANNOUNCE:
                _check_number(rest[0])
                return Announce(rest[0], self._read_schema_ids(rest[1]), number)
            case _Type.SYNC_REQUEST:
                _check_number(rest[0])
                return SyncRequest(number, rest[0], self._read_schema_ids(rest[1]))
            case _Type.ENTRY:
                return self._read_entry(number, *rest)
            case _Type.SYNC_DONE:
                return SyncDone(number, _read_bool(rest[0]))
            case _Type.HAVE:
                return Have(number, tuple(self._read_heights(rest[0])))
            case _:
                return Reconcile(number, self._read_range(kind, rest))

    def _read_entry(self, session_id: int, entry: Any, operation: Any) -> SendEntry:
        if self.is_entry(entry, operation):
            return SendEntry(session_id, entry, operation)
        if operation is None and self._dialect is Dialect.AQUADOGGO and self.is_entry(entry, b""):
            return SendEntry(session_id, entry, None)
        if self.is_entry(entry, b"") and type(operation) is bytes:
            return SendEntry(session_id, entry, None)  # the operation is too large
        raise _malformed("an entry, or an operation, that cannot be one")

    def is_entry(self, entry: object, operation: object) -> bool:
        """Whether an entry and its operation have the right types and sizes."""
        if type(entry) is not bytes or type(operation) is not bytes:
            return False
        return len(entry) <= ENTRY_SIZE_MAX and len(operation) <= self._operation_size_max

    def _read_schema_ids(self, value: Any) -> tuple[str, ...]:
        ids = _check_list(value)
        if len(ids) > self._limits.schemas_max:
            raise RemoteProtocolError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(ids)} schema ids")
        for each in ids:
            if type(each) is not str:
                raise _malformed("a schema id that is no text")
            if len(each.encode()) > self._limits.schema_id_size_max:
                raise RemoteProtocolError(ErrorCode.MESSAGE_TOO_LARGE, "the size of a schema id")
        if len(set(ids)) < len(ids):
            raise _malformed("a schema id twice")
        return tuple(ids)

    def _read_range(self, kind: int, rest: list[Any]) -> RangeMessage:
        match kind:
            case _Type.EMPTY_SET:
                return EmptySet(_read_bool(rest[0]))
            case _Type.LOWER_BOUND:
                return LowerBound(self._read_item(rest[0]))
            case _Type.PAYLOAD if len(rest) == 1:
                return Payload(self._read_item(rest[0]))
            case _Type.PAYLOAD:
                item, upper_bound = self._read_item(rest[0]), self._read_item(rest[2])
                return Payload(item, upper_bound, _read_bool(rest[1]))
            case _Type.EMPTY_PAYLOAD:
                return EmptyPayload(self._read_item(rest[0]))
            case _Type.DONE:
                return Done(self._read_item(rest[0]))
            case _Type.FINGERPRINT:
                if type(rest[0]) is not bytes or len(rest[0]) > LIFT_SIZE_MAX:
                    raise _malformed("a fingerprint that cannot be one")
                return Fingerprint(rest[0], self._read_item(rest[1]))
            case _:
                return Terminal()

    def _read_item(self, value: Any) -> bytes:
        height = self._read_height(value)
        return encode_item(height.log, height.seqnum)

    def _read_height(self, value: Any) -> Height:
        parts = _check_list(value)
        if len(parts) != 3:
            raise _malformed("a log height that has not three parts")
        return _height(self._read_key(parts[0]), parts[1], parts[2])

    def _read_heights(self, value: Any) -> Iterator[Height]:
        """Decode log heights in the form of `_encode_heights`, in any order."""
        groups = _check_list(value)
        if self._dialect is Dialect.SEED:
            yield from map(self._read_height, groups)
            return
        for group in groups:
            if len(_check_list(group)) != 2:
                raise _malformed("a key and its logs that are not two parts")
            key = self._read_key(group[0])
            for pair in _check_list(group[1]):
                if len(_check_list(pair)) != 2:
                    raise _malformed("a log height that has not two parts")
                yield _height(key, pair[0], pair[1])

    def _read_key(self, value: Any) -> bytes:
        key = _read_hex(value) if self._dialect is Dialect.SEED else value
        if type(key) is not bytes or len(key) != AUTHOR_SIZE:
            raise _malformed("a public key that cannot be one")
        return key


class Framer:
    """Takes messages, which stand back to back, from the front of `inbox`.

    skip_max: the size of an operation, or of ``Have``, that is passed over since it is too large.
    """

    __slots__ = ("_bounds", "_codec", "_inbox", "_left", "_passing", "_scanner", "_skip_max")

    def __init__(self, inbox: ReceiveBuffer, codec: Codec, *, skip_max: int = 0) -> None:
        self._inbox = inbox
        self._codec = codec
        self._bounds: MessageBounds | None = None  # of the message that has begun
        self._scanner: Scanner | None = None
        self._skip_max = skip_max
        self._left = 0  # bytes of such an operation that are still to come
        self._passing: Scanner | None = None  # through such a ``Have``

    @property
    def passes(self) -> bool:
        """Whether more is to come of something that is passed over."""
        return self._left > 0 or self._passing is not None

    @property
    def size_max(self) -> int:
        """The size that the next message may have, as far as its first bytes tell."""
        if self._passing is not None:
            return _HEAD_SIZE
        return _TYPE_SIZE_MAX if self._bounds is None else self._bounds.size_max

    def take(self) -> bytes | SendEntry | Have | None:
        """The next message, if it is complete; without what is too large in it.

        Raises `RemoteProtocolError`, the same for every chunking: ``MALFORMED``,
        ``UNKNOWN_MESSAGE``, ``MESSAGE_TOO_LARGE``.
        """
        self._pass_over()
        if self.passes:
            return None
        if self._scanner is None:
            self._bounds = bounds = self._begin()
            if bounds is None:
                return None
            self._scanner = bounds.scanner()
        try:
            size = self._scan(self._scanner)
        except DecodeError as error:
            cut = error.code is WireErrorCode.LIMIT_EXCEEDED and (
                self._without_operation() or self._without_heights()
            )
            if cut:
                self._bounds = self._scanner = None
                return cut
            raise _refusal(error) from None
        if size is None:
            return None
        if self._scanner.pairs:
            raise RemoteProtocolError(ErrorCode.MALFORMED, "a map")
        self._bounds = self._scanner = None
        return self._inbox.take(size)

    def _scan(self, scanner: Scanner) -> int | None:
        with self._inbox.view() as data:
            return scanner.scan(data, len(data))

    def _pass_over(self) -> None:
        """Drop what has come of something that is too large."""
        if self._left:
            skipped = min(self._left, self._inbox.size)
            self._inbox.consume(skipped)
            self._left -= skipped
        elif self._passing is not None:
            try:
                size = self._scan(self._passing)
            except DecodeError as error:
                raise _refusal(error) from None
            if size is None:
                size = self._passing.pass_over(self._inbox.size)
            else:
                self._passing = None
            self._inbox.consume(size)

    def entry_session(self) -> int | None:
        """The session of the next message, if that is an entry and the session's id is small."""
        inbox = self._inbox
        if self._scanner is not None or self.passes or inbox.size < 3 or inbox.peek(2) != _ENTRY:
            return None
        session_id = inbox[2]
        if session_id <= _DIRECT_MAX:
            return session_id
        if session_id == _ONE_BYTE and inbox.size > 3 and inbox[3] > _DIRECT_MAX:
            return inbox[3]
        return None

    def take_entries(self, size_max: int) -> tuple[tuple[bytes, bytes], ...]:
        """Entries and operations of the session that `entry_session` returned, in order.

        Only complete ones, up to the first that is unusual: that one is left for `take`.  The last
        is the one that exceeds `size_max`, if any does; see `ENTRY_OVERHEAD`.
        """
        data = self._inbox.peek(_RUN_SIZE_MAX)
        front = data[: 4 if data[2] == _ONE_BYTE else 3]
        found: list[tuple[bytes, bytes]] = []
        end_of_last = 0
        room = size_max
        while room >= 0 and len(found) < _RUN_MAX and data.startswith(front, end_of_last):
            message, end = cbor.decode_first(data, end_of_last, 1)
            if end < 0:
                break
            _, _, entry, operation = message
            if not self._codec.is_entry(entry, operation):
                break
            found.append((entry, operation))
            room -= ENTRY_OVERHEAD + len(entry) + len(operation)
            end_of_last = end
        self._inbox.consume(end_of_last)
        return tuple(found)

    def _without_operation(self) -> SendEntry | None:
        """An entry alone, if its operation is the part that is too large and is passed over."""
        if self._bounds is not self._codec.bounds[MessageType.ENTRY]:
            return None
        data = self._inbox.peek(_FRONT_SIZE_MAX + ENTRY_SIZE_MAX)
        session_id, end = cbor.decode_first(data, 2, 0)
        entry, end = cbor.decode_first(data, end, 0) if end > 0 else (b"", end)
        if type(session_id) is not int or not self._codec.is_entry(entry, b"") or end < 0:
            return None
        kind, size, head_size = _kernel.head(data[end : end + _HEAD_SIZE], 0)
        if kind != BYTES or head_size < 0 or size > self._skip_max:
            return None
        self._inbox.consume(end + head_size)
        self._left = size
        return SendEntry(session_id, entry, None)

    def _without_heights(self) -> Have | None:
        """``Have`` with its session alone, if it names too many logs, which are passed over."""
        bounds = self._codec.bounds[MessageType.HAVE]
        if self._bounds is not bounds:
            return None
        data = self._inbox.peek(_FRONT_SIZE_MAX)
        session_id, end = cbor.decode_first(data, 2, 0)
        if end < 0 or type(session_id) is not int or session_id < 0:
            return None
        kind, count, head_size = _kernel.head(data[end : end + _HEAD_SIZE], 0)
        if kind != ARRAY or head_size < 0 or count > self._skip_max:
            return None
        passed = bounds._replace(size_max=self._skip_max, item_size=bounds.passed_item_size)
        self._passing = passed.scanner()
        return Have(session_id, None)

    def _begin(self) -> MessageBounds | None:
        """The bounds of the message that begins here; ``None`` if too little has arrived."""
        inbox = self._inbox
        if not inbox.size:
            return None
        arity = inbox[0] - _ARRAY
        if arity not in _ARITIES:
            raise RemoteProtocolError(ErrorCode.MALFORMED, "no array of 2 to 5 items")
        if inbox.size < 2:
            return None
        kind = inbox[1]
        if kind == _ONE_BYTE:
            if inbox.size < 3:
                return None
            kind = inbox[2]
            if kind <= _DIRECT_MAX:
                raise RemoteProtocolError(ErrorCode.MALFORMED, "a type in too many bytes")
        elif kind > _DIRECT_MAX:
            raise RemoteProtocolError(ErrorCode.UNKNOWN_MESSAGE, "the type is no small number")
        bounds = self._codec.bounds.get(kind)
        if bounds is None:
            raise RemoteProtocolError(ErrorCode.UNKNOWN_MESSAGE, f"type {kind}")
        if arity not in bounds.arities:
            raise RemoteProtocolError(ErrorCode.MALFORMED, f"{arity} items in type {kind}")
        return bounds


def _front(count: int, kind: MessageType, session_id: int) -> bytes:
    return encode_head(ARRAY, count) + encode_head(0, kind) + encode_head(0, session_id)


def _read_hex(value: Any) -> bytes | None:
    """Decode lower-case hex."""
    try:
        key = bytes.fromhex(value)
    except (TypeError, ValueError):
        return None
    return key if key.hex() == value else None


def _read_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _malformed("neither true nor false")
    return value


def _height(author: bytes, log_id: Any, seqnum: Any) -> Height:
    _check_number(log_id)
    _check_number(seqnum)
    return Height(LogKey(author, log_id), seqnum)


def _check_number(value: Any) -> None:
    if type(value) is not int or not 0 <= value <= UINT64_MAX:
        raise _malformed("no unsigned 64-bit integer where there must be one")


def _check_list(value: Any) -> list[Any]:
    if not is_list(value):
        raise _malformed("no array where there must be one")
    return value


def _refusal(error: DecodeError) -> RemoteProtocolError:
    too_large = error.code is WireErrorCode.LIMIT_EXCEEDED
    code = ErrorCode.MESSAGE_TOO_LARGE if too_large else ErrorCode.MALFORMED
    return RemoteProtocolError(code, str(error))


def _malformed(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.MALFORMED, message)
