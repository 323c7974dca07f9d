"""Resident memory of one more idle machine: ours, and connections of other libraries.

``python benchmarks/idle.py NAME COUNT`` prints the KiB for each of COUNT machines.  Both ends of
each are in the process, and have exchanged their first messages; stores and the source of chance
are shared by all.  A process measures one kind only, as memory freed by one kind would serve the
next.
"""

from __future__ import annotations

import datetime
import gc
import resource
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

__all__ = ["CULM", "PEERS", "idle_size"]

Pair = tuple[Any, Any]

CHANCE = SystemRandom()


def _met(one: Any, other: Any, *stores: Any) -> Pair:
    """Both ends have exchanged their first messages."""
    from culm.testing.link import MachinePair

    responds = tuple(store.perform for store in stores) or (None, None)
    pair = MachinePair.of_machines(one, other, respond=responds).run()
    return pair.left.machine, pair.right.machine


def _bymux() -> Pair:
    from culm.bymux import Connection, Role

    return _met(Connection(role=Role.PROACTIVE), Connection(role=Role.REACTIVE))


def _point2point() -> Pair:
    from culm.point2point import Connection, Role

    return _met(Connection(role=Role.PROACTIVE), Connection(role=Role.REACTIVE))


def _replicators(*stores: Any) -> Pair:
    from culm.point2point import Role
    from culm.point2point.replication import Interest, Replicator

    interest = Interest(accept_new_logs=True)
    return _met(*(Replicator(role=role, interest=interest) for role in Role), *stores)


@cache
def _logs() -> Pair:
    """Two stores with the same log."""
    from culm.bamboo import MemoryStore
    from culm.machines.sample_logs import make_log
    from culm.wire.multihash import YAMF

    news = make_log(YAMF, 0, 2)
    stores = MemoryStore(family=YAMF), MemoryStore(family=YAMF)
    for store in stores:
        store.append(news[0].entry.log, news)
    return stores


def _p2panda() -> Pair:
    from culm.p2panda import Connection

    return _announced(Connection)


@cache
def _documents() -> Any:
    from culm.p2panda import MemoryStore

    return MemoryStore()


def _p2panda_replicator() -> Pair:
    from culm.p2panda import Replicator

    return _announced(Replicator, _documents(), _documents())


def _announced(kind: Any, *stores: Any) -> Pair:
    ends = [kind(local_peer=me, remote_peer=peer) for me, peer in ((b"a", b"b"), (b"b", b"a"))]
    for end in ends:
        end.announce(["blob_v1"], timestamp=1)
    return _met(*ends, *stores)


def _garlic() -> Pair:
    from culm.garlic.connection import Connection
    from culm.garlic.states import ConnectionRole

    return _met(*(Connection(role=role) for role in ConnectionRole))


def _garlic_handshakes() -> Pair:
    from culm.garlic.digest import CredentialCache, Nonces
    from culm.garlic.handshake import ClientHandshake, ServerHandshake

    client = ClientHandshake(host="a", user="u", password="p", cache=CredentialCache(), rng=CHANCE)
    return _met(client, ServerHandshake(lookup=lambda _: "p", nonces=Nonces(rng=CHANCE)))


def _leader(kind: Any) -> Any:
    """A server that leads alone."""
    from culm.garlic.raft import Server, State, Stored
    from culm.garlic.store import MemoryStore
    from stateless import Nothing

    store = MemoryStore(Nothing(), Stored.founding((Server(1, "tcp://127.0.0.1:1"),)))
    machine, now = kind(server_id=1, stored=store.load(), rng=CHANCE, now=0.0), 0.0
    while machine.state is not State.LEADER or machine.applied_index == 0:
        now += 0.1
        machine.advance(now)
        for _ in range(2):
            while machine.next_event() is not None:
                pass
            while (effect := machine.next_effect()) is not None:
                machine.complete(effect.ticket, store.perform(effect))
    return machine


def _garlic_nodes() -> Pair:
    from culm.garlic.node import Node

    return _leader(Node), _leader(Node)


def _raft() -> Pair:
    from culm.garlic.raft import Raft

    return _leader(Raft), _leader(Raft)


def _oxen() -> Pair:
    """Two nodes that know each other."""
    from culm.oxen import Node, PeerState

    names = b"AAA", b"BBB"
    nodes = [Node(me=name, rng=CHANCE, epoch=1.7e9) for name in names]
    for node in nodes:
        node.advance(0.0)
    nodes[0].start()
    nodes[1].join(names[0])
    now = 0.0
    while not all(
        any(view.state is PeerState.JOINED for view in node.peers().values()) for node in nodes
    ):
        now += 0.1
        for here, there, source in zip(nodes, reversed(nodes), names, strict=True):
            here.advance(now)
            while here.next_event() is not None:
                pass
            for _, data in here.datagrams_to_send():
                there.receive_datagram(data, source=source)
    return nodes[0], nodes[1]


def _sessions(kind: Any, **more: Any) -> Pair:
    """The first frame of a session is on its way."""
    from culm.reconcile import Role

    ends = [kind(view=_set(), role=role, **more) for role in Role]
    ends[0].data_to_send()
    return ends[0], ends[1]


@cache
def _set() -> Any:
    from culm.reconcile import Tree

    tree = Tree(item_size=32)
    tree.fill(Random(1).randbytes(32 * 1000))
    return tree


def _compact() -> Pair:
    from culm.reconcile import CompactSession

    return _sessions(CompactSession, rng=CHANCE)


def _plain() -> Pair:
    from culm.reconcile import PlainSession

    return _sessions(PlainSession)


def _ssb_feeds() -> Pair:
    """Replicators that follow each other, in a session."""
    from culm.ssb.ebt import Replicator, SessionRole
    from culm.ssb.feed_id import feed_id_of
    from culm.ssb.peer.peer import ClassicFormat
    from culm.ssb.store import MemoryStore

    names = [feed_id_of(bytes([number]) * 32) for number in (1, 2)]
    ends = [
        Replicator(me=name, stored=MemoryStore().load(), format=ClassicFormat(), now=0.0)
        for name in names
    ]
    for end, name, role in zip(ends, reversed(names), SessionRole, strict=True):
        end.follow(name)
        end.connect(name, role=role)
    return ends[0], ends[1]


def _ssb_rpc() -> Pair:
    from culm.ssb.muxrpc import Connection

    return _met(Connection(), Connection())


def _ssb_peers() -> Pair:
    """Whole peers that follow each other, each with one sealed link."""
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "ssb"))
    from peer_support import Node, connect, run

    ends = Node("alice"), Node("bob")
    for here, there in (ends, ends[::-1]):
        here.peer.follow(there.peer.me)
    connect(*ends, sealed=True)
    run(*ends)
    return ends[0].peer, ends[1].peer


def _h2() -> Pair:
    from h2.config import H2Configuration
    from h2.connection import H2Connection

    ends = [H2Connection(config=H2Configuration(client_side=side)) for side in (True, False)]
    for end in ends:
        end.initiate_connection()
    for here, there in (ends, ends[::-1], ends):
        there.receive_data(here.data_to_send())
    return ends[0], ends[1]


@cache
def _certified() -> tuple[Any, Any]:
    """A self-signed certificate, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(tz=datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _aioquic() -> Pair:
    """With TLS, which QUIC requires."""
    import ssl

    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.connection import QuicConnection

    asked = QuicConfiguration(is_client=True, alpn_protocols=["idle"], verify_mode=ssl.CERT_NONE)
    served = QuicConfiguration(is_client=False, alpn_protocols=["idle"])
    served.certificate, served.private_key = _certified()
    client = QuicConnection(configuration=asked)
    client.connect(("127.0.0.1", 1), now=0.0)
    server = QuicConnection(
        configuration=served,
        original_destination_connection_id=client.original_destination_connection_id,
    )
    ends, now, quiet = (client, server), 0.0, 0
    while quiet < 4:
        quiet += 1
        for here, there in (ends, ends[::-1]):
            now += 0.05
            if (at := here.get_timer()) is not None and at <= now:
                here.handle_timer(now=now)
            for data, _ in here.datagrams_to_send(now=now):
                there.receive_datagram(data, ("127.0.0.1", 1), now=now)
                quiet = 0
            while here.next_event() is not None:
                pass
    return ends


CULM: dict[str, Callable[[], Pair]] = {
    "bymux": _bymux,
    "point2point": _point2point,
    "point2point-replicator": _replicators,
    "point2point-replicator, with a log": lambda: _replicators(*_logs()),
    "p2panda": _p2panda,
    "p2panda-replicator": _p2panda_replicator,
    "garlic": _garlic,
    "garlic-handshake": _garlic_handshakes,
    "garlic-node": _garlic_nodes,
    "raft": _raft,
    "oxen": _oxen,
    "reconcile-compact": _compact,
    "reconcile-plain": _plain,
    "ssb-ebt": _ssb_feeds,
    "ssb-muxrpc": _ssb_rpc,
    "ssb-peer, with a sealed link": _ssb_peers,
}

PEERS: dict[str, Callable[[], Pair]] = {"h2": _h2, "aioquic": _aioquic}


def idle_size(name: str, count: int) -> float:
    """KiB of resident memory for one more of these, in this process."""
    make = {**CULM, **PEERS}[name]
    kept = [make() for _ in range(100)]
    gc.collect()
    before = _resident()
    kept += [make() for _ in range(count // 2)]
    gc.collect()
    return (_resident() - before) / 1024 / count


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    print(idle_size(sys.argv[1], int(sys.argv[2])))
