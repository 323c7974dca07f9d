"""Secure Scuttlebutt: ``ssb-muxrpc``.

Config: the procedures that the peer may call, and the limits.  Verbs name calls by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from culm.arguments import check_type
from culm.machines import Codec, Config, Key, MachineType, Verb, keys_of, register
from culm.machines.encodings import BIG_ENDIAN
from culm.machines.messages import sized
from culm.machines.signatures import by_name, on_handle
from culm.ssb.muxrpc import Call, CallType, Connection, Limits, Manifest

_LIMITS = keys_of(Limits)


def _build(config: Config) -> Connection:
    check_type("methods", config["methods"], dict)
    methods = {
        name: by_name("a type", CallType, call_type)
        for name, call_type in config["methods"].items()
    }
    limits = Limits(**{key.name: config[key.name] for key in _LIMITS})
    return Connection(manifest=Manifest(methods), limits=limits)


def _make_call(
    machine: Connection, name: Sequence[str], call_type: CallType, args: Sequence[Any] = ()
) -> int:
    return machine.make_call(name, call_type, *args).number


def _on_call(verb: Verb) -> Verb:
    return on_handle("number", Connection.call, verb)


MUXRPC = register(
    MachineType(
        name="ssb-muxrpc",
        build=_build,
        keys=(
            Key(
                name="methods",
                type=dict,
                default={},
                meaning="What the peer may call: by name, `ASYNC`, `SOURCE`, `SINK` or `DUPLEX`.",
            ),
            *_LIMITS,
        ),
        verbs={
            "make_call": _make_call,
            "send": _on_call(Call.send),
            "send_body": _on_call(Call.send_body),
            "reply": _on_call(Call.reply),
            "reply_body": _on_call(Call.reply_body),
            "end": _on_call(Call.end),
            "fail": _on_call(Call.fail),
        },
        codec=Codec(encodings=BIG_ENDIAN, messages=sized(9, slice(1, 5))),
    )
)
