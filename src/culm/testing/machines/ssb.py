"""Secure Scuttlebutt: ``ssb-handshake`` and ``ssb-box-stream``.

All keys are derived from names, so that a conversation is the same in every run.
"""

from __future__ import annotations

from enum import Enum
from hashlib import sha256

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from culm.machine import Event, StreamMachine
from culm.ssb import (
    BODY_SIZE_MAX,
    Authenticated,
    BoxStream,
    ClientHandshake,
    Keys,
    ServerHandshake,
    SessionKeys,
)
from culm.stack import then
from culm.testing.machines import (
    Advance,
    Config,
    Conversation,
    Flood,
    Key,
    MachineSpec,
    Scenario,
    Work,
    call,
    register,
)

__all__ = ["BOX_STREAM", "HANDSHAKE", "HandshakeRole"]


class HandshakeRole(Enum):
    """Which end of the handshake a machine is."""

    CLIENT = 1
    SERVER = 2


def _seed(name: str) -> bytes:
    return sha256(name.encode()).digest()


_IDENTITY = {role: SigningKey(_seed(f"{role.name} identity")) for role in HandshakeRole}
_EPHEMERAL = {role: PrivateKey(_seed(f"{role.name} ephemeral")) for role in HandshakeRole}


def _build_handshake(config: Config) -> StreamMachine:
    """A handshake and, if it comes that far, the box stream after it."""
    role = HandshakeRole(config["role"])
    identity, ephemeral = _IDENTITY[role], _EPHEMERAL[role]
    if role is HandshakeRole.SERVER:
        client = bytes(_IDENTITY[HandshakeRole.CLIENT].verify_key)
        admitted = {client} if config["admitting"] else set[bytes]()
        handshake: StreamMachine = ServerHandshake(
            identity=identity, ephemeral=ephemeral, admits=admitted.__contains__
        )
    else:
        server = bytes(_IDENTITY[HandshakeRole.SERVER].verify_key)
        handshake = ClientHandshake(identity=identity, server=server, ephemeral=ephemeral)
    return then(handshake, _followed)


def _followed(event: Event) -> StreamMachine | None:
    return BoxStream(keys=event.keys) if isinstance(event, Authenticated) else None


def _keys(name: str) -> Keys:
    # The nonce is about to overflow: the one after the last is zero.
    return Keys(_seed(name), b"\xff" * 24)


def _build_box_stream(config: Config) -> BoxStream:
    ours, theirs = _keys("dialled"), _keys("dialler")
    if config["dialler"]:
        ours, theirs = theirs, ours
    return BoxStream(keys=SessionKeys(send=ours, receive=theirs))


_CLIENT = {"role": "client"}
_SERVER = {"role": "server"}

HANDSHAKE = register(
    MachineSpec(
        name="ssb-handshake",
        build=_build_handshake,
        retained_max=16_000,
        # Two hundred lines for a message of 64 bytes or more; what it returns counts as well.
        work=Work(base=300, per_byte=10),
        keys=(
            Key(
                name="role",
                type=HandshakeRole,
                default=HandshakeRole.SERVER,
                meaning="Which end of the handshake it is.",
            ),
            Key(
                name="admitting",
                type=bool,
                default=True,
                meaning="Of a server: it admits the client.",
            ),
        ),
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
        floods=(Flood(unit=b"x"), Flood(unit=b"x", config=_CLIENT)),
    )
)

BOX_STREAM = register(
    MachineSpec(
        name="ssb-box-stream",
        build=_build_box_stream,
        retained_max=32_000,
        work=Work(base=200, per_byte=4),
        keys=(
            Key(
                name="dialler",
                type=bool,
                default=False,
                meaning="It seals with the keys with which the other end opens.",
            ),
        ),
        verbs={"send": BoxStream.send_data},
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
        floods=(Flood(unit=b"x"),),
    )
)
