"""Secure Scuttlebutt: the handshake, and the box stream after it."""

from __future__ import annotations

from culm.machines import Advance, call, lookup
from culm.ssb.box_stream import BODY_SIZE_MAX
from culm.testing.registry import register
from culm.testing.spec import (
    Attacks,
    Bounds,
    Conversation,
    Flood,
    MachineSpec,
    Scenario,
    Usage,
    Work,
)

__all__ = ["BOX_STREAM", "HANDSHAKE"]

_CLIENT = {"role": "client"}

_SERVER = {"role": "server"}

HANDSHAKE = register(
    MachineSpec(
        machine=lookup("ssb-handshake"),
        bounds=Bounds(
            retained_max=16_000,
            # Two hundred lines for a message of 64 bytes or more; the returned bytes count as well.
            work=Work(base=300, per_byte=10),
        ),
        usage=Usage(
            scenarios=(
                Scenario(
                    name="both prove who they are, then say goodbye",
                    left=_CLIENT,
                    right=_SERVER,
                    script=(("left", call("close")),),
                ),
            ),
            conversations=lambda spec: [
                Conversation(
                    name=f"nobody answers the {config['role']}",
                    config=config,
                    operations=(Advance(0.0), Advance(60.0)),
                )
                for config in (_CLIENT, _SERVER)
            ],
        ),
        attacks=Attacks(floods=(Flood(unit=b"x"), Flood(unit=b"x", config=_CLIENT))),
    )
)

BOX_STREAM = register(
    MachineSpec(
        machine=lookup("ssb-box-stream"),
        bounds=Bounds(
            retained_max=32_000,
            work=Work(base=200, per_byte=4),
        ),
        usage=Usage(
            scenarios=(
                Scenario(
                    name="bodies of all sizes, both ways, then goodbye",
                    left={"dialler": True},
                    script=(
                        ("left", call("send", data=b"hello")),
                        ("right", call("send", data=b"\0")),
                        ("right", call("send", data=bytes(BODY_SIZE_MAX))),
                        ("left", call("send", data=bytes(BODY_SIZE_MAX + 1))),
                        ("left", call("send", data=b"")),
                        ("left", call("close")),
                    ),
                ),
            ),
            bad_calls=(call("send", data=b"too late"),),
        ),
        attacks=Attacks(floods=(Flood(unit=b"x"),)),
    )
)
