"""MuxRPC: calls of every type, refused and given up, and floods."""

from __future__ import annotations

from collections.abc import Sequence

from culm.machines import call, lookup, operations
from culm.ssb.muxrpc import BodyType, CallType
from culm.ssb.muxrpc.calls import GOODBYE, encode_header
from culm.testing.contents import JSON
from culm.testing.registry import register
from culm.testing.spec import (
    Attacks,
    Bounds,
    Conversation,
    Flood,
    Frame,
    MachineSpec,
    Scenario,
    Usage,
    Work,
)

__all__ = ["MUXRPC"]

_METHODS = {
    "whoami": "async",
    "blobs.get": "source",
    "blobs.put": "sink",
    "ebt.replicate": "duplex",
}

_OFFER = {"methods": _METHODS}

_TIGHT = {
    **_OFFER,
    "body_size_max": 4096,
    "control_size_max": 4096,
    "calls_max": 8,
    "unanswered_max": 16,
    "answers_max": 64,
    "answers_size_max": 2000,
    "unsent_size_max": 400,
}


def _packet(number: int, body: bytes, *, stream: bool = True, end: bool = False) -> bytes:
    return encode_header(number, len(body), BodyType.JSON, stream=stream, end=end) + body


def _request(name: str, call_type: CallType) -> bytes:
    parts = '","'.join(name.split("."))
    if call_type is CallType.ASYNC:
        return f'{{"name":["{parts}"],"args":[]}}'.encode()
    return f'{{"name":["{parts}"],"args":[],"type":"{call_type.value}"}}'.encode()


_DUPLEX = _request("ebt.replicate", CallType.DUPLEX)

_UNKNOWN = _request("foo.bar", CallType.DUPLEX)

_ASYNC = _request("whoami", CallType.ASYNC)

_DEEP = b'{"name":["whoami"],"args":' + b"[" * 80 + b"]" * 80 + b"}"


def _long_refused(number: int) -> bytes:
    """A name that would grow if it were repeated: these bytes are not UTF-8."""
    return _packet(number + 1, b'{"name":["' + b"\xff" * 4000 + b'"],"args":[]}', stream=False)


def _long_ended(number: int) -> bytes:
    """A stream that ends with a wordy error."""
    body = b'{"message":"' + b"\xff" * 4000 + b'"}'
    return _packet(number + 1, _DUPLEX) + _packet(number + 1, body, end=True)


def _opened(number: int) -> bytes:
    return _packet(number + 1, _DUPLEX)


def _opened_and_ended(number: int) -> bytes:
    return _packet(number + 1, _DUPLEX) + _packet(number + 1, b"true", end=True)


def _refused(number: int) -> bytes:
    return _packet(number + 1, _UNKNOWN)


def _refused_and_ended(number: int) -> bytes:
    return _packet(number + 1, _UNKNOWN) + _packet(number + 1, b"true", end=True)


def _asked(number: int) -> bytes:
    return _packet(number + 1, _ASYNC, stream=False)


def _too_deep(number: int) -> bytes:
    return _packet(number + 1, _DEEP, stream=False)


def _ended_by_us(number: int) -> Sequence[operations.Call]:
    return [call("end", number=-number - 1)]


def _answered(number: int) -> Sequence[operations.Call]:
    return [call("reply", number=-number - 1, value={"id": "@x"})]


def _many_calls(count: int) -> Scenario:
    """`count` streams at once, each with a value, ended in the order of their start."""
    numbers = range(1, count + 1)
    make = call("make_call", name=["ebt", "replicate"], call_type="duplex")
    return Scenario(
        name=f"{count} calls at once",
        right={**_OFFER, "calls_max": count},
        script=(
            *(("left", make) for _ in numbers),
            *(("right", call("send", number=-number, value=[number])) for number in numbers),
            *(("left", call("end", number=number)) for number in numbers),
        ),
    )


def _in_one_go(spec: MachineSpec) -> Sequence[Conversation]:
    """A peer's packets that need no answer in between, as JavaScript's peers send at connect."""
    data = b"".join(
        [
            _packet(1, _DUPLEX),
            _packet(1, b'{"@alice":6}'),
            _packet(2, _UNKNOWN),
            _packet(2, b"1700000000000"),
            _packet(3, _ASYNC, stream=False),
            _packet(0, b'["a message to nobody"]', stream=False),
            _packet(2, b"true", end=True),
            _packet(1, b'{"message":"enough","name":"Error","stack":""}', end=True),
            GOODBYE,
        ]
    )
    return [
        Conversation(
            name="everything in one go",
            operations=[operations.Receive(data), operations.Eof()],
            config=_OFFER,
        )
    ]


MUXRPC = register(
    MachineSpec(
        machine=lookup("ssb-muxrpc"),
        bounds=Bounds(
            retained_max=40_000,
            work=Work(base=1200, per_byte=50),
            tight=_TIGHT,
        ),
        usage=Usage(
            conversations=_in_one_go,
            scenarios=(
                Scenario(
                    name="a call of each type",
                    right=_OFFER,
                    script=(
                        ("left", call("make_call", name=["whoami"], call_type="async")),
                        ("right", call("reply", number=-1, value={"id": "@x"})),
                        ("left", call("make_call", name=["blobs", "get"], call_type="source")),
                        ("right", call("send_body", number=-2, body=b"\0\1", body_type="binary")),
                        ("right", call("send", number=-2, value="text")),
                        ("right", call("end", number=-2)),
                        ("left", call("make_call", name=["blobs", "put"], call_type="sink")),
                        ("left", call("send_body", number=3, body=b"data", body_type="binary")),
                        ("left", call("end", number=3)),
                        (
                            "left",
                            call(
                                "make_call",
                                name=["ebt", "replicate"],
                                call_type="duplex",
                                args=[{"version": 3}],
                            ),
                        ),
                        ("left", call("send", number=4, value={"@alice": 6})),
                        ("right", call("send_body", number=-4, body=b'{"@bob":-1}')),
                        ("right", call("fail", number=-4, error="enough")),
                        ("left", call("close")),
                    ),
                ),
                Scenario(
                    name="refusals and failures on both sides",
                    left=_OFFER,
                    right=_OFFER,
                    script=(
                        ("left", call("make_call", name=["foo", "bar"], call_type="duplex")),
                        ("left", call("make_call", name=["whoami"], call_type="source")),
                        ("right", call("make_call", name=["foo"], call_type="async")),
                        ("right", call("make_call", name=["whoami"], call_type="async")),
                        ("left", call("fail", number=-2, error="no idea")),
                        ("right", call("make_call", name=["whoami"], call_type="async")),
                        ("left", call("reply_body", number=-3, body=b"7")),
                    ),
                ),
                Scenario(
                    name="a goodbye in the midst of calls",
                    left=_OFFER,
                    right=_OFFER,
                    script=(
                        ("left", call("make_call", name=["ebt", "replicate"], call_type="duplex")),
                        ("right", call("make_call", name=["blobs", "get"], call_type="source")),
                        ("right", call("make_call", name=["whoami"], call_type="async")),
                        ("left", call("send", number=-1, value=[1, 2.5, None])),
                        ("right", call("close")),
                    ),
                ),
            ),
            bad_calls=(
                call("call", number=77),
                call("send", number=1, value=1),
                call("send", number=2, value=1),
                call("send", number=3, value=""),
                call("send", number=-2, value=""),
                call("send_body", number=4, body=b""),
                call("reply", number=4, value=1),
                call("end", number=1),
                call("fail", number=1, error="x"),
                call("make_call", name=["whoami"], call_type="async"),
            ),
            growth={"calls": _many_calls},
        ),
        attacks=Attacks(
            floods=(
                Flood(unit=_opened),
                Flood(unit=_opened_and_ended),
                Flood(unit=_opened, calls=_ended_by_us),
                Flood(unit=_opened_and_ended, calls=_ended_by_us),
                Flood(unit=_refused),
                Flood(unit=_refused_and_ended),
                Flood(unit=_long_refused),
                Flood(unit=_long_ended),
                Flood(unit=_asked),
                Flood(unit=_asked, calls=_answered),
                Flood(unit=_too_deep),
                Flood(unit=_packet(1, b"null"), opening=_packet(1, _DUPLEX)),
                Flood(unit=_packet(1, b"null"), opening=_packet(1, _UNKNOWN)),
                Flood(unit=_packet(7, b"true", end=True)),
                Flood(unit=_packet(0, b"null", stream=False)),
                Flood(unit=b"x"),
            ),
            frames=(
                Frame(
                    name="a call", wrap=lambda body: _packet(1, body, stream=False), contents=JSON
                ),
                Frame(
                    name="what comes in a stream",
                    wrap=lambda body: _packet(1, _DUPLEX) + _packet(1, body),
                    contents=JSON,
                ),
                Frame(
                    name="arguments",
                    wrap=lambda body: _packet(
                        1,
                        b'{"name":["whoami"],"type":"async","args":[' + body + b"]}",
                        stream=False,
                    ),
                    contents=JSON,
                    config=_OFFER,
                ),
            ),
        ),
    )
)
