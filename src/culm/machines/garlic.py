"""Garlic Farm: ``garlic`` (frames) and ``garlic-handshake`` (frames after it).

Verbs: ``ask`` sends a request, ``answer`` answers the oldest unanswered one.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any

from culm.garlic.connection import Connection
from culm.garlic.digest import Challenge, CredentialCache, Nonces
from culm.garlic.events import Authenticated
from culm.garlic.handshake import ClientHandshake, ServerHandshake
from culm.garlic.limits import Limits
from culm.garlic.messages import RESPONSE_OF, MessageType, RequestFrame, ResponseFrame
from culm.garlic.states import ConnectionRole
from culm.machine import Event, LocalProtocolError, StreamMachine
from culm.machines import Codec, Config, Key, MachineType, VerbErrorCode, keys_of, register
from culm.machines.encodings import BIG_ENDIAN, DECIMAL
from culm.machines.garlic_node import FRAMED
from culm.machines.signatures import by_name
from culm.stack import then

_HOST, _USER, _PASSWORD, _REALM = "farm.i2p", "alice", "wonderland", "GarlicFarm"

_LIMITS = keys_of(Limits, without=("links_max", "strangers_max", "raft"))

_FRAMES_KEYS = (
    Key(
        name="role",
        type=ConnectionRole,
        default=ConnectionRole.LISTENER,
        meaning="Who opened the connection; only the dialler asks.",
    ),
    *_LIMITS,
)


class _HandshakeRole(Enum):
    """The side of the handshake that a machine takes."""

    CLIENT = 1
    SERVER = 2


_HANDSHAKE_KEYS = (
    Key(
        name="role",
        type=_HandshakeRole,
        default=_HandshakeRole.SERVER,
        meaning="Which side of the handshake it is.",
    ),
    Key(
        name="challenged",
        type=bool,
        default=True,
        meaning="Of a client: it knows the server's challenge from an earlier connection.",
    ),
    Key(
        name="password",
        type=str,
        default=_PASSWORD,
        meaning="Of a client: the user's password.",
        secret=True,
    ),
    Key(name="cluster", type=str, default="farm", meaning="Of a client: the cluster's name."),
    Key(
        name="first",
        type=list,
        default=(),
        meaning="Of a client: the types of the requests that it sends at once, by name.",
    ),
    *_LIMITS,
)


def _limits(config: Config) -> Limits:
    return Limits(**{key.name: config[key.name] for key in _LIMITS})


def _connection(config: Config, role: ConnectionRole) -> Connection:
    return Connection(role=role, limits=_limits(config))


def _build_frames(config: Config) -> Connection:
    return _connection(config, config["role"])


def _chance(seed: int) -> Random:
    return Random(seed)


def _nonces() -> Nonces:
    return Nonces(rng=_chance(1))


def _build_server(config: Config) -> StreamMachine:
    nonces = _nonces()
    nonces.issue(0.0)
    handshake = ServerHandshake(
        lookup={_USER: _PASSWORD}.get, nonces=nonces, realm=_REALM, limits=_limits(config)
    )
    connection = _connection(config, ConnectionRole.LISTENER)
    return then(handshake, _followed_by(connection))


def _build_client(config: Config) -> StreamMachine:
    cache = CredentialCache()
    if config["challenged"]:
        challenge = Challenge(_REALM, _nonces().issue(0.0), "SHA-256")
        cache.store(_HOST, challenge, 0.0)
    handshake = ClientHandshake(
        host=_HOST,
        user=_USER,
        password=config["password"],
        cache=cache,
        rng=_chance(2),
        cluster=config["cluster"],
        limits=_limits(config),
    )
    connection = _connection(config, ConnectionRole.DIALLER)
    for kind in config["first"]:
        _ask(connection, by_name("a type in first", MessageType, kind))
    return then(handshake, _followed_by(connection))


def _build_handshake(config: Config) -> StreamMachine:
    if config["role"] is _HandshakeRole.CLIENT:
        return _build_client(config)
    return _build_server(config)


def _followed_by(connection: Connection) -> Callable[[Event], StreamMachine | None]:
    return lambda event: connection if isinstance(event, Authenticated) else None


def _ask(machine: Connection, kind: MessageType, log: bytes = b"", **numbers: int) -> None:
    machine.send_request(RequestFrame(type=kind, log=log, **numbers))


def _answer(machine: Connection, kind: MessageType | None = None, **numbers: Any) -> None:
    if kind is None:
        if machine.oldest is None:
            raise LocalProtocolError(VerbErrorCode.NO_SUCH_HANDLE, "nothing to answer")
        kind = RESPONSE_OF[machine.oldest.type]
    made: dict[str, Any] = {
        "source": 1,
        "destination": 2,
        "term": 3,
        "next_index": 4,
        "accepted": True,
        **numbers,
    }
    machine.send_response(ResponseFrame(type=kind, **made))


FRAMES = register(
    MachineType(
        name="garlic",
        build=_build_frames,
        keys=_FRAMES_KEYS,
        verbs={"ask": _ask, "answer": _answer},
        codec=FRAMED,
    )
)

HANDSHAKE = register(
    MachineType(
        name="garlic-handshake",
        build=_build_handshake,
        keys=_HANDSHAKE_KEYS,
        codec=Codec(encodings=(DECIMAL, *BIG_ENDIAN), messages=FRAMED.messages),
    )
)
