"""Bymux: ``bymux``.

Config: the role, the initial state and the limits.  Verbs name streams by id.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any

from culm.arguments import check_type
from culm.bymux import INFINITE, Connection, InitialState, InitialStream, Limits, Role, Stream
from culm.machines import Codec, Config, Key, MachineType, Verb, keys_of, register
from culm.machines.encodings import BIG_ENDIAN
from culm.machines.signatures import by_name, on_handle


class Credit(Enum):
    """Values of a credit besides a number of bytes."""

    INFINITE = INFINITE


_LIMITS = keys_of(Limits)

_INITIAL = keys_of(InitialState, without=["streams"])

_KEYS = (
    Key(name="role", type=Role, default=Role.PROACTIVE, meaning="Which endpoint it is."),
    Key(
        name="streams",
        type=dict,
        default={},
        meaning="Streams from the start: by id, `[send credit, receive credit]`; a credit is a"
        " number of bytes or `INFINITE`.",
    ),
    *(
        replace(key, type=int | Credit) if key.name.endswith("creator_credit") else key
        for key in _INITIAL
    ),
    *_LIMITS,
)


def _credit(value: Any) -> Any:
    value = by_name("a credit", Credit, value)
    return value.value if isinstance(value, Credit) else value


def _build(config: Config) -> Connection:
    check_type("streams", config["streams"], dict)
    streams = {
        int(stream_id): InitialStream(send_credit=_credit(send), receive_credit=_credit(receive))
        for stream_id, (send, receive) in config["streams"].items()
    }
    return Connection(
        role=config["role"],
        limits=Limits(**{key.name: config[key.name] for key in _LIMITS}),
        initial=InitialState(
            streams=streams, **{key.name: _credit(config[key.name]) for key in _INITIAL}
        ),
    )


def _create_stream(machine: Connection, stream: int | None = None) -> int:
    return machine.create_stream(stream).stream_id


def _on_stream(verb: Verb) -> Verb:
    return on_handle("stream", Connection.stream, verb)


CONNECTION = register(
    MachineType(
        name="bymux",
        build=_build,
        keys=_KEYS,
        verbs={
            "create_stream": _create_stream,
            "send_data": _on_stream(Stream.send_data),
            "grant": _on_stream(Stream.grant),
            "grant_infinite": _on_stream(Stream.grant_infinite),
            "set_window": _on_stream(Stream.set_window),
            "consumed": _on_stream(Stream.consumed),
            "ping_stream": _on_stream(Stream.ping),
            "close_stream": _on_stream(Stream.close),
            "stop_read": _on_stream(Stream.stop_read),
        },
        codec=Codec(encodings=BIG_ENDIAN),
    )
)
