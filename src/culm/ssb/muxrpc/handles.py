"""The caller's view of calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from culm.arguments import check_type
from culm.buffer import Buffer
from culm.ssb.muxrpc.calls import CallScope
from culm.ssb.muxrpc.packets import BODY_SIZE_MAX, BodyType
from culm.ssb.muxrpc.requests import CallError, CallType, encode_end, encode_error
from culm.ssb.muxrpc.states import CallState, Packet
from culm.ssb.v8json import JsonValue, stringify

__all__ = ["Call", "Calls"]


class Call:
    """A light handle on one call of a `Connection`.

    Handles on the same call are equal.  A handle outlives its call.

    Every method raises `LocalProtocolError`, and changes nothing, if the rules of the call forbid
    it (the code tells why), or if nothing more can be sent (``ContractErrorCode.ALREADY_CLOSED``).
    """

    __slots__ = ("_scope",)

    def __init__(self, scope: CallScope) -> None:
        self._scope = scope

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and other._scope is self._scope

    def __hash__(self) -> int:
        return hash(self._scope)

    def __repr__(self) -> str:
        return f"<Call {self.number} {'.'.join(self.name)} {self.state.name}>"

    @property
    def number(self) -> int:
        """Its number in events: positive if it is ours, negative if it is the peer's."""
        return self._scope.number

    @property
    def name(self) -> tuple[str, ...]:
        return self._scope.name

    @property
    def type(self) -> CallType:
        return self._scope.type

    @property
    def state(self) -> CallState:
        return self._scope.state

    def send(self, value: JsonValue) -> None:
        """Send a value in a stream, as JSON; a str is sent as text.

        Raises `LocalProtocolError`: ``EMPTY_BODY`` for an empty text, which peers take for a
        goodbye, ``UNEXPECTED_VALUE`` where only the peer sends, ``WRONG_PACKET`` in an async
        call, ``CALL_ENDED``; `TypeError` and `ValueError` for values that JSON does not have.
        """
        self._scope.send(Packet.VALUE, *_encode(value))

    def send_body(self, body: Buffer, body_type: BodyType = BodyType.JSON) -> None:
        """Send an encoded value, or bytes (``BodyType.BINARY``); see `send`."""
        self._scope.send(Packet.VALUE, _check_body(body, body_type), body_type)

    def reply(self, value: JsonValue) -> None:
        """Answer an async call of the peer, which ends it; see `send`."""
        self._scope.send(Packet.REPLY, *_encode(value))

    def reply_body(self, body: Buffer, body_type: BodyType = BodyType.JSON) -> None:
        """Answer with an encoded value, or bytes; see `send_body`."""
        self._scope.send(Packet.REPLY, _check_body(body, body_type), body_type)

    def end(self) -> None:
        """End a stream, after all values sent before.

        `CallEnded` follows when the peer has ended it, too; anything it sends until then is
        dropped.
        """
        self._scope.send(Packet.END, encode_end(None))

    def fail(self, error: CallError | str) -> None:
        """End a stream, or answer an async call, with an error."""
        if isinstance(error, str):
            error = CallError(error)
        check_type("error", error, CallError)
        packet = Packet.FAILURE if self.type is CallType.ASYNC else Packet.END
        self._scope.send(packet, encode_error(error))


def _encode(value: JsonValue) -> tuple[bytes, BodyType]:
    if isinstance(value, str):
        return _encode_text(value), BodyType.TEXT
    return stringify(value).encode(), BodyType.JSON


def _encode_text(value: str) -> bytes:
    """Encode as UTF-8; half a surrogate pair becomes U+FFFD, as in Node.js."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _check_body(body: Buffer, body_type: BodyType) -> bytes:
    check_type("body_type", body_type, BodyType)
    data = body if isinstance(body, bytes) else memoryview(body).tobytes()
    if len(data) > BODY_SIZE_MAX:
        raise ValueError(f"a body has at most {BODY_SIZE_MAX} bytes")
    return data


class Calls(Mapping[int, Call]):
    """The open calls by number: a live view of the connection."""

    __slots__ = ("_scopes",)

    def __init__(self, scopes: Mapping[int, CallScope]) -> None:
        self._scopes = scopes

    def __getitem__(self, number: int) -> Call:
        return Call(self._scopes[number])

    def __iter__(self) -> Iterator[int]:
        return iter(self._scopes)

    def __len__(self) -> int:
        return len(self._scopes)
