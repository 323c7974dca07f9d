"""The chat as the line driver and the property suite know it."""

from __future__ import annotations

import re

from culm.machines import Config, Key, MachineType, call, keys_of
from culm.machines.machine_type import Codec
from culm.machines.messages import measured
from culm.testing.spec import Attacks, Bounds, Flood, MachineSpec, Scenario, Usage, Work
from foreign.netstrings.connection import Connection, Limits

__all__ = ["CHAT", "SPEC"]


def _build(config: Config) -> Connection:
    limits = {key.name: config[key.name] for key in keys_of(Limits)}
    return Connection(name=config["name"], limits=Limits(**limits))


def _size(data: bytes) -> int | None:
    head = re.match(rb"([0-9]{1,9}):", data)
    return head and head.end() + int(head[1]) + 1


CHAT = MachineType(
    name="netstring-chat",
    build=_build,
    keys=[Key(name="name", type=str, default="alice", meaning="Who we are."), *keys_of(Limits)],
    codec=Codec(messages=measured(_size)),
)

SPEC = MachineSpec(
    machine=CHAT,
    usage=Usage(
        scenarios=[
            Scenario(
                name="a chat",
                right={"name": "bob"},
                script=[
                    ("left", call("say", text="hi")),
                    ("right", call("say", text="grüß dich")),
                    ("left", call("say", text="x" * 300)),
                    ("right", call("close")),
                ],
            )
        ],
        bad_calls=[call("say", text="too late"), call("say", text="x" * 5000)],
    ),
    attacks=Attacks(floods=[Flood(unit=b"1:x,", opening=b"1:x,"), Flood(unit=b"9")]),
    bounds=Bounds(
        retained_max=4096,
        tight={"name_max": 8, "text_max": 64},
        work=Work(base=200, per_byte=40),
    ),
)
