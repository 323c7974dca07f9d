"""Secure Scuttlebutt: ``ssb-handshake`` and ``ssb-box-stream``.

All keys are derived from names, so that a conversation is the same in every run.
"""

from __future__ import annotations

from enum import Enum
from hashlib import sha256

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from culm.machine import Event, StreamMachine
from culm.machines import Config, Key, MachineType, register
from culm.ssb import Authenticated, BoxStream, ClientHandshake, Keys, ServerHandshake, SessionKeys
from culm.stack import then


class HandshakeRole(Enum):
    """The side of the handshake that a machine takes."""

    CLIENT = 1
    SERVER = 2


def _seed(name: str) -> bytes:
    return sha256(name.encode()).digest()


_IDENTITY = {role: SigningKey(_seed(f"{role.name} identity")) for role in HandshakeRole}

_EPHEMERAL = {role: PrivateKey(_seed(f"{role.name} ephemeral")) for role in HandshakeRole}


def _build_handshake(config: Config) -> StreamMachine:
    """A handshake and, if it succeeds, the box stream after it."""
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


HANDSHAKE = register(
    MachineType(
        name="ssb-handshake",
        build=_build_handshake,
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
    )
)

BOX_STREAM = register(
    MachineType(
        name="ssb-box-stream",
        build=_build_box_stream,
        keys=(
            Key(
                name="dialler",
                type=bool,
                default=False,
                meaning="It seals with the keys with which the other end opens.",
            ),
        ),
        verbs={"send": BoxStream.send_data},
    )
)
