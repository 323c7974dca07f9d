"""Garlic Farm: ``garlic-node``, a server with its connections.

Members of a meeting are named by their ids.  Verbs: ``accepted`` and ``dialled`` open links
(with the handshake, if the config says so), ``add_server`` takes an id and whether it votes,
``close_link`` gives up one connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from random import Random
from typing import Any

from culm.garlic import raft
from culm.garlic.digest import Challenge, CredentialCache, Nonces
from culm.garlic.events import DialWanted
from culm.garlic.handshake import ClientHandshake, Credentials, ServerHandshake
from culm.garlic.limits import Limits, Timing
from culm.garlic.messages import REQUEST_HEADER_SIZE, RESPONSE_SIZE, MessageType, is_request
from culm.garlic.node import Node
from culm.garlic.raft import Server, Stored
from culm.garlic.store import MemoryStore
from culm.machine import Event, Link
from culm.machines import (
    Codec,
    Config,
    Dialling,
    Key,
    MachineType,
    Responder,
    call,
    keys_of,
    register,
)
from culm.machines.encodings import BIG_ENDIAN
from culm.machines.machine_type import close_link
from culm.machines.messages import measured

_USER, _PASSWORD = "farm", "wonderland"

CORE_KEYS = (
    Key(name="id", type=int, default=1, meaning="The server's id."),
    Key(
        name="founders",
        type=list,
        default=(1, 2, 3),
        meaning="Ids of the servers that found the cluster; none for who will be added.",
    ),
    *keys_of(raft.Timing),
    *keys_of(raft.Limits),
)

_LIMITS = keys_of(Limits, without=["raft"])

_TIMING = keys_of(Timing, without=["raft"])

_NODE = keys_of(Node, without=("timing", "limits"))

_KEYS = (
    *CORE_KEYS,
    *(
        key for key in _LIMITS if key not in CORE_KEYS
    ),  # those of a configuration are the core's, too
    *_NODE,
    *_TIMING,
    Key(name="handshake", type=bool, default=False, meaning="Connections begin with it."),
)


def _frame_size(data: bytes) -> int | None:
    """The size of the frame at the beginning of `data`; ``None`` before and in a handshake."""
    try:
        kind = MessageType(data[0])
    except ValueError:
        return None
    if not is_request(kind):
        return RESPONSE_SIZE
    size = int.from_bytes(data[REQUEST_HEADER_SIZE - 4 : REQUEST_HEADER_SIZE], "big", signed=True)
    return REQUEST_HEADER_SIZE + max(0, size)


FRAMED = Codec(encodings=BIG_ENDIAN, messages=measured(_frame_size))
"""Of frames, after a handshake or without one."""


def chance(seed: int) -> Random:
    """The random numbers of a server, told by its number or seed."""
    return Random(seed)


def _chosen(config: Config, keys: Sequence[Key]) -> dict[str, Any]:
    """The values in the config of `keys`, by name."""
    return {key.name: config[key.name] for key in keys}


class Values:
    """A state machine that keeps the last few values."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def apply(self, index: int, value: bytes) -> None:
        self.values = [*self.values[-7:], value]

    def snapshot(self) -> bytes:
        return b"\n".join(self.values)

    def restore(self, image: bytes) -> None:
        self.values = image.split(b"\n") if image else []


def server(number: int) -> Server:
    """The server with that id."""
    return Server(number, f"tcp://farm:{9000 + number}")


def founded(config: Config) -> Stored:
    """The initial state of a server: the cluster of ``founders``, or none without any."""
    founders = tuple(server(number) for number in config["founders"])
    return Stored.founding(founders)


def timing_of(config: Config) -> raft.Timing:
    """The core's times from the config."""
    return raft.Timing(**_chosen(config, keys_of(raft.Timing)))


def limits_of(config: Config) -> raft.Limits:
    """The core's limits from the config."""
    return raft.Limits(**_chosen(config, keys_of(raft.Limits)))


class _Cache(CredentialCache):
    """A cache that counts a use of a challenge only when told, not when a handshake takes it."""

    def use(self, server: str, now: float) -> tuple[Challenge, int] | None:
        entry = self._entries.get(server)
        found = super().use(server, now)
        if entry is not None and found is not None:
            self._entries[server] = entry
        return found

    def count(self, server: str) -> None:
        super().use(server, 0.0)


class _Member(Node):
    """A node with a challenge cache and a source of randomness for its handshakes."""

    def __init__(self, config: Config) -> None:
        number = config["id"]
        super().__init__(
            server_id=number,
            stored=founded(config),
            rng=chance(number),
            now=0.0,
            timing=Timing(**_chosen(config, _TIMING), raft=timing_of(config)),
            limits=Limits(**_chosen(config, _LIMITS), raft=limits_of(config)),
            **_chosen(config, _NODE),
        )
        self.shakes_hands = config["handshake"]
        self.nonces = Nonces(rng=chance(number), nonces_max=8)
        self.cache = _Cache(entries_max=8)
        self._chance = chance(number)

    def reach(self, peer: int) -> Link:
        """Open a connection that begins with a handshake; a refused one uses up nothing."""
        host, chance = server(peer).endpoint, copy(self._chance)
        handshake = ClientHandshake(
            host=host, user=_USER, password=_PASSWORD, cache=self.cache, rng=chance
        )
        link = self.dialled(peer, handshake=handshake)
        self._chance = chance
        self.cache.count(host)
        return link


def _accepted(machine: _Member) -> Link:
    handshake = ServerHandshake(lookup={_USER: _PASSWORD}.get, nonces=machine.nonces)
    return machine.accepted(handshake=handshake if machine.shakes_hands else None)


def _dialled(machine: _Member, peer: int) -> Link:
    return machine.reach(peer) if machine.shakes_hands else machine.dialled(peer)


def _add_server(machine: _Member, server_id: int, voter: bool = True) -> None:
    machine.add_server(replace(server(server_id), voter=voter))


def _respond(config: Config) -> Responder:
    return MemoryStore(Values(), founded(config)).perform


def _wanted(event: Event) -> str | None:
    return str(event.server.server_id) if isinstance(event, DialWanted) else None


NODE = register(
    MachineType(
        name="garlic-node",
        build=_Member,
        keys=_KEYS,
        verbs={
            "accepted": _accepted,
            "dialled": _dialled,
            "close_link": close_link,
            "add_server": _add_server,
        },
        respond=_respond,
        dialling=Dialling(
            wanted=_wanted,
            made=lambda name: call("dialled", peer=int(name)),
            failed=lambda name: call("dial_failed", peer=int(name)),
            accepted=call("accepted"),
        ),
        codec=FRAMED,
        helpers=(Credentials,),
    )
)
