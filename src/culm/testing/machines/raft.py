"""The Raft core: ``raft``, whose messages are datagrams of JSON.

The core knows no bytes; here a message is a JSON object, as the line driver would write it,
and a server's address is its id.  What is no message is dropped, and so is what comes from
somebody else than it says; well-formed messages of any value reach the core.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import count
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from culm.arguments import is_dict, is_list
from culm.buffer import Buffer, check_buffer
from culm.garlic.raft import Configuration, Entry, Raft, Server, Snapshot, State
from culm.garlic.raft import messages as m
from culm.garlic.store import MemoryStore
from culm.testing.cluster import Cluster
from culm.testing.cluster import Node as Host
from culm.testing.config import Config, read_config
from culm.testing.encodings import DECIMAL
from culm.testing.machines import (
    Complete,
    Conversation,
    Flood,
    MachineSpec,
    Work,
    call,
    register,
)
from culm.testing.machines.garlic_node import (
    CORE_KEYS,
    TIGHT_SETTINGS,
    Values,
    chance,
    founded,
    limits_of,
    server,
    timing_of,
)
from culm.testing.network import Conditions, Network
from culm.testing.plain import to_plain
from culm.wire.json import read_json

__all__ = ["RAFT", "decode_message", "encode_message"]

_UNANSWERED_MAX = 64
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
    """The message of a datagram.  Raises `ValueError` if it is none."""
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

    As a `culm.garlic.Node` does, it lets only so many requests be unanswered, and pairs
    answers with requests by itself.
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
        self._asked: dict[int, tuple[Hashable, int]] = {}  # whom to answer, and by which sequence

    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        """Take a message, unless it is none or does not come from whom it says."""
        check_buffer(data)
        try:
            message = decode_message(data)
        except ValueError:
            return
        if isinstance(message, m.Request):
            if len(self._asked) >= _UNANSWERED_MAX or self.state is State.CLOSED:
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
        if isinstance(message, m.Request):
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


def _store(config: Config) -> MemoryStore:
    return MemoryStore(Values(), founded(config))


_VERBS = {"add_server": _add_server, "reachable": _reachable}

Story = Callable[[Cluster], None]
_LEAST = Conditions(delay_min=0.001, delay_max=0.004)


def _recorded(
    name: str,
    story: Story,
    *,
    founders: Sequence[int] = (1, 2, 3),
    conditions: Conditions = _LEAST,
    **config: Any,
) -> Iterable[Conversation]:
    """The sides of three servers in `story`."""
    cluster, configs = _cluster(conditions, founders, **config)
    with cluster:
        story(cluster)
    for number, made in configs.items():
        yield _told(cluster[number], f"{name}/{number}", made)


def _cluster(
    conditions: Conditions, founders: Sequence[int] = (1, 2, 3), **config: Any
) -> tuple[Cluster, dict[int, Config]]:
    """Three servers with their configs; their stores answer at once."""
    cluster = Cluster(Network(seed=0, conditions=conditions), records=True)
    configs: dict[int, Config] = {}
    for number in (1, 2, 3):
        mine = founders if number in founders else ()
        configs[number] = {"id": number, "founders": list(mine), **config}
        full = read_config(CORE_KEYS, configs[number])
        store = _store(full)
        cluster.add(
            number,
            lambda host, full=full: RaftOverDatagrams(full),  # type: ignore[misc]
            verbs=_VERBS,
            effects=lambda host, effect, store=store: host.complete(  # type: ignore[misc]
                effect.ticket, store.perform(effect)
            ),
        )
    return cluster, configs


def _told(host: Host, name: str, config: Config) -> Conversation:
    told = host.conversation(name, config)
    # Of a machine built anew the store answers by itself.
    return replace(told, operations=[o for o in told.operations if not isinstance(o, Complete)])


def _leader(cluster: Cluster) -> Host:
    def leads(host: Host) -> bool:
        machine: Raft = host.machine
        return machine.state is State.LEADER and machine.commit_index == machine.last_index

    cluster.run(cluster.network.clock.now + 5.0, done=lambda: any(map(leads, cluster)))
    return next(filter(leads, cluster))


def _wait(cluster: Cluster, seconds: float) -> None:
    cluster.run(cluster.network.clock.now + seconds)


def _election(cluster: Cluster) -> None:
    leader = _leader(cluster)
    leader.call("propose", values=[b"one", b"two"])
    leader.call("read")
    _wait(cluster, 0.1)
    target = next(host for host in cluster if host is not leader)
    target.call("reachable", peer=leader.address)
    target.call("read")
    target.call("forward", values=[b"forwarded", b"twice"])
    target.call("forward", values=[b"later"])
    _wait(cluster, 0.1)
    leader.call("transfer_leadership", target=target.address)
    _wait(cluster, 0.3)
    _leader(cluster).call("propose", values=[b"three"])
    _wait(cluster, 0.1)
    for host in cluster:
        host.call("close")


def _joining(cluster: Cluster) -> None:
    leader = _leader(cluster)
    for number in range(12):
        leader.call("propose", values=[b"value %d" % number])
    _wait(cluster, 0.1)
    leader.call("add_server", server_id=3)
    _wait(cluster, 0.3)
    leader.call("propose", values=[b"x" * 100] * 3)
    _wait(cluster, 0.2)
    leader.call("remove_server", server_id=3)
    _wait(cluster, 1.0)


def _differing(size: int) -> Conversation:
    """The last leader's side, when a server comes back whose log has `size` other entries."""
    cluster, configs = _cluster(Conditions(delay_min=0.002, delay_max=0.002))
    with cluster:
        lost = _leader(cluster)
        cluster.network.partition([lost.address], {1, 2, 3} - {lost.address})
        lost.call("propose", values=[b"lost"] * size)
        _wait(cluster, 1.0)
        first = _leader(cluster)
        first.call("propose", values=[b"kept"] * size)
        _wait(cluster, 0.2)
        last = next(host for host in cluster if host not in (lost, first))
        first.call("transfer_leadership", target=last.address)
        _wait(cluster, 0.3)
        cluster.network.heal()
        cluster.run(
            cluster.network.clock.now + 60.0,
            done=lambda: lost.machine.commit_index == last.machine.last_index,
        )
        if lost.machine.commit_index < last.machine.last_index:
            raise AssertionError("the logs still differ")
    return _told(last, "differing", configs[last.address])  # type: ignore[index]


def _conversations(spec: MachineSpec) -> Iterable[Conversation]:
    yield from _recorded("election", _election)
    yield from _recorded("misfortune", _election, conditions=Conditions(loss=0.1, delay_max=0.01))
    yield from _recorded("join and leave", _joining, founders=(1, 2))
    yield from _recorded(
        "snapshot",
        _joining,
        founders=(1, 2),
        snapshot_distance=4,
        trailing_entries=0,
        chunk_size=16,
        sync_gap=2,
    )


def _vote(number: int) -> bytes:
    return encode_message(
        m.VoteRequest(source=2, destination=1, term=number, last_log_index=0, last_log_term=0)
    )


def _asked(number: int) -> bytes:
    return encode_message(
        m.ClientRequest(source=0, destination=0, term=0, sequence=number, values=[b"value"])
    )


def _forwarded(number: int) -> bytes:
    return encode_message(
        m.ForwardRequest(source=2, destination=1, term=1, sequence=number, values=[b"value"] * 3)
    )


def _chunk(number: int) -> bytes:
    snapshot = Snapshot(1_000 + number, 1)
    return encode_message(
        m.SnapshotRequest(
            source=2,
            destination=1,
            term=1_000,
            snapshot=snapshot,
            offset=0,
            data=bytes(300),
            done=False,
            commit_index=0,
        )
    )


RAFT = register(
    MachineSpec(
        name="raft",
        build=RaftOverDatagrams,
        # Measured twofold; the next batch of entries, for which an answer is enough, counts
        # to the base.
        work=Work(base=3000, per_byte=20),
        growth={"entries in which two logs differ": _differing},
        encodings=[DECIMAL],
        keys=CORE_KEYS,
        # Unanswered requests, of which one is a snapshot's chunk; proposals; the log.
        retained_max=_UNANSWERED_MAX * 700 + 20_000,
        unsent_max=_UNANSWERED_MAX * 180 + 2_000,  # answers, and a request to each peer
        tight=TIGHT_SETTINGS,
        conversations=_conversations,
        verbs=_VERBS,
        respond=lambda config: _store(config).perform,
        bad_calls=(
            call("propose", values=[b"not the leader"]),
            call("read"),
            call("forward", values=[b"nobody leads"]),
            call("add_server", server_id=1),
            call("remove_server", server_id=7),
            call("transfer_leadership", target=1),
        ),
        floods=(
            Flood(unit=_vote, source=lambda number: 2),
            Flood(unit=_chunk, source=lambda number: 2),
            Flood(unit=_forwarded, source=lambda number: 2),
            Flood(unit=_asked, source=lambda number: "client", config={"founders": [1]}),
        ),
    )
)
