"""The Raft core: ``raft``, whose messages are datagrams of JSON.

The core knows no bytes; here a message is a JSON object, as the line driver would write it,
and a server's address is its id.  Other datagrams are dropped, and so are messages that do not
come from the server that they name; well-formed messages of any value reach the core.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import count
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from culm.arguments import is_dict, is_list
from culm.buffer import Buffer, check_buffer
from culm.garlic.raft import Configuration, Entry, Raft, Server, Snapshot, State
from culm.garlic.raft import messages as m
from culm.garlic.store import MemoryStore
from culm.machines import Codec, Config, MachineType, Responder, register
from culm.machines.encodings import DECIMAL
from culm.machines.garlic_node import (
    CORE_KEYS,
    Values,
    chance,
    founded,
    limits_of,
    server,
    timing_of,
)
from culm.machines.plain import to_plain
from culm.wire.json import read_json

UNANSWERED_MAX = 64

_NUMBER_MAX = 2**128 - 1  # sequences count in 64 bits below the term

_KINDS: dict[str, type[m.Message]] = {
    kind.__name__: kind for pair in m.RESPONSE_OF.items() for kind in pair
}

_OF_CLIENTS = m.CLIENT_REQUESTS

_HINTS: dict[type[Any], dict[str, Any]] = {
    kind: get_type_hints(kind)
    for kind in (*_KINDS.values(), Entry, Snapshot, Configuration, Server)
}


def encode_message(message: m.Message) -> bytes:
    """The datagram of a message."""
    return json.dumps(to_plain(message), separators=(",", ":")).encode()


def decode_message(data: Buffer) -> m.Message:
    """The message in a datagram.  Raises `ValueError` if there is none."""
    plain = read_json(data)
    if not is_dict(plain) or str(plain.get("type")) not in _KINDS:
        raise ValueError("not a message")
    found: m.Message = _dataclass(_KINDS[plain["type"]], plain)
    return found


def _dataclass(kind: type[Any], plain: object) -> Any:
    if is_dict(plain) and plain.get("type") == kind.__name__:
        given, hints = plain.get("fields"), _HINTS[kind]
        if is_dict(given) and given.keys() == hints.keys():
            return kind(**{name: _value(hints[name], given[name]) for name in hints})
    raise ValueError(f"not a {kind.__name__}")


def _value(hint: Any, plain: Any) -> Any:
    if hint is Entry:
        term, data = plain if is_list(plain) and len(plain) == 2 else (None, None)
        return Entry(_value(int, term), _value(_HINTS[Entry]["data"], data))
    if isinstance(hint, UnionType):  # bytes, or a configuration
        first, second = get_args(hint)
        return _value(first if is_dict(plain) and "hex" in plain else second, plain)
    if get_origin(hint) in (tuple, Sequence):
        if not is_list(plain):
            raise ValueError("not a list")
        items = [_value(get_args(hint)[0], item) for item in plain]
        return tuple(items) if get_origin(hint) is tuple else items
    if hint is bytes:
        if not is_dict(plain) or not isinstance(plain.get("hex"), str):
            raise ValueError("not bytes")
        return bytes.fromhex(plain["hex"])
    if hint not in (int, bool, str):
        return _dataclass(hint, plain)
    if type(plain) is not hint:
        raise ValueError(f"not a value of {hint.__name__}")
    if isinstance(plain, int) and not -1 <= plain <= _NUMBER_MAX:
        raise ValueError("a number that no message holds")
    return plain


class RaftOverDatagrams(Raft):
    """A core as a `culm.machine.DatagramMachine`.

    Like a `culm.garlic.Node`, it bounds the number of unanswered requests, and pairs answers
    with requests by itself.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(
            server_id=config["id"],
            stored=founded(config),
            timing=timing_of(config),
            limits=limits_of(config),
            rng=chance(config["id"]),
            now=0.0,
            asks_leader=True,
        )
        self._slots = count(1)
        self._asked: dict[int, tuple[Hashable, int]] = {}  # source and sequence of each request

    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        """Take a message; others than messages from the server that they name are dropped."""
        check_buffer(data)
        try:
            message = decode_message(data)
        except ValueError:
            return
        if isinstance(message, m.RaftRequest):
            if len(self._asked) >= UNANSWERED_MAX or self.state is State.CLOSED:
                return
            if not self._is_between_members(message, source) and type(message) not in _OF_CLIENTS:
                return
            slot = next(self._slots)
            self._asked[slot] = source, message.sequence
            self.receive_message(replace(message, sequence=slot))
        elif self._is_between_members(message, source):
            self.receive_message(message)

    def _is_between_members(self, message: m.Message, source: Hashable) -> bool:
        ours = self.server_id
        return message.source == source != ours and message.destination == ours

    def datagrams_to_send(self) -> list[tuple[Hashable, bytes]]:
        return [self._addressed(message) for message in self.messages_to_send()]

    def _addressed(self, message: m.Message) -> tuple[Hashable, bytes]:
        if isinstance(message, m.RaftRequest):
            return message.destination, encode_message(message)
        source, sequence = self._asked.pop(message.sequence)
        return source, encode_message(replace(message, sequence=sequence))

    def close(self) -> None:
        super().close()
        self._asked.clear()


def _add_server(machine: Raft, server_id: int) -> None:
    machine.add_server(server(server_id))


def _reachable(machine: Raft, peer: int) -> None:
    machine.reachable(peer, m.Extension)


def _respond(config: Config) -> Responder:
    return MemoryStore(Values(), founded(config)).perform


RAFT = register(
    MachineType(
        name="raft",
        build=RaftOverDatagrams,
        keys=CORE_KEYS,
        verbs={"add_server": _add_server, "reachable": _reachable},
        respond=_respond,
        codec=Codec(encodings=[DECIMAL]),
    )
)
