"""One node among puppets, its input and its output parcel by parcel; and clusters of nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeGuard

from culm.machine import Event
from culm.oxen import Dialect, Limits, Node, PeerState, Timing
from culm.oxen.messages import (
    Body,
    Gossip,
    Message,
    MessageAck,
    MessageData,
    OneToOne,
    Parcel,
    Synchronize,
    decode_parcel,
    encode_parcel,
    read_message,
    write_message,
)
from culm.oxen.seal import close_box, open_box
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Network

EPOCH = 1_700_000_000.0
ME = b"ME"


class Dice(Random):
    """Chance, except for the IDs that a test has put on the table."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.script: deque[int] = deque()

    def getrandbits(self, k: int) -> int:
        return self.script.popleft() if k == 32 and self.script else super().getrandbits(k)


DEFAULT_LIMITS, DEFAULT_TIMING = Limits(), Timing()


class Table:
    """A node, `ME`, at whose table puppets sit; `events` has all since the last look."""

    def __init__(
        self,
        *,
        limits: Limits = DEFAULT_LIMITS,
        timing: Timing = DEFAULT_TIMING,
        dialect: Dialect = Dialect.KEYED,
        seed: int = 0,
        keys: Sequence[bytes] = (),
    ) -> None:
        self.dice = Dice(seed)
        self.node = Node(
            me=ME,
            rng=self.dice,
            epoch=EPOCH,
            limits=limits,
            timing=timing,
            dialect=dialect,
            keys=keys,
        )
        self.keys = keys
        self._sealed = 0
        self.dialect = dialect
        self.starts: dict[bytes, Synchronize] = {}
        """The node's synchronize message to each puppet that answered, by the puppet's ID."""
        self.members: set[bytes] = set()
        """Puppets that count the node as their peer, and say so when they are asked."""
        self.now = 1.0
        self.sent: list[tuple[bytes, Parcel]] = []
        self._events: list[Event] = []
        self._message_id = 0
        self.node.advance(self.now)
        self.node.start()
        self.drain()

    def drain(self) -> None:
        while (event := self.node.next_event()) is not None:
            self._events.append(event)
        for to, data in self.node.datagrams_to_send():
            assert isinstance(to, bytes)
            self.sent.append((to, decode_parcel(self.opened(to, data), self.dialect)))

    def sealed(self, source: bytes, parcel: bytes) -> bytes:
        """A parcel from `source`, under the first key if there are any."""
        if not self.keys:
            return parcel
        self._sealed += 1
        nonce = int(EPOCH * 1000).to_bytes(6) + b"their life" + self._sealed.to_bytes(8)
        return close_box(parcel, nonce, key=self.keys[0], source=source, to=ME)

    def opened(self, to: bytes, datagram: bytes) -> bytes:
        """The parcel in a datagram to `to`."""
        if not self.keys:
            return datagram
        parcel = open_box(datagram, key=self.keys[0], source=ME, to=to)
        assert parcel is not None
        return parcel

    def events(self) -> list[Event]:
        found, self._events = self._events, []
        return found

    def said(self, to: bytes | None = None) -> list[Parcel]:
        """Parcels sent (to that puppet) since the last call; the others are forgotten."""
        found = [parcel for hop, parcel in self.sent if to in (None, hop)]
        self.sent = []
        return found

    def bodies(self, kind: type[Any], to: bytes | None = None) -> list[Any]:
        return [parcel.body for parcel in self.said(to) if isinstance(parcel.body, kind)]

    def messages(self, to: bytes | None = None) -> list[Message]:
        """The node's own messages among those parcels."""
        return [read_message(body.d) for body in self.bodies(MessageData, to) if body.fr == ME]

    def tell(
        self, source: bytes, body: Body | None = None, ka: int | None = None, kk: int | None = None
    ) -> None:
        parcel = encode_parcel(Parcel(ka, kk, body), self.dialect)
        self.node.receive_datagram(self.sealed(source, parcel), source=source)
        self.drain()

    def tell_message(
        self, fr: bytes, message: Message, *, source: bytes | None = None, id: int | None = None
    ) -> int:
        """Let the puppet `fr` send `message` (by way of `source`); the message's ID."""
        if isinstance(message, Synchronize):
            self.members.discard(fr)
        if id is None:
            self._message_id += 1
            id = self._message_id
        self.tell(fr if source is None else source, MessageData(ME, fr, id, write_message(message)))
        return id

    def acknowledged(self) -> list[int]:
        return [body.id for body in self.bodies(MessageAck)]

    def wait(self, seconds: float, *, alive: tuple[bytes, ...] = ()) -> None:
        """Let time pass; puppets in `alive` answer at once."""
        end = self.now + seconds
        while True:
            deadline = self.node.next_deadline()
            self.now = end if deadline is None else min(end, max(self.now, deadline))
            self.node.advance(self.now)
            before = len(self.sent)
            self.drain()
            for to, parcel in self.sent[before:]:
                if to in alive and parcel.ka is not None:
                    self.tell(to, kk=parcel.ka)
                if to in alive and self._asks(to, parcel.body):
                    self.tell(to, MessageAck(ME, to, parcel.body.id))
            if self.now >= end and (deadline is None or deadline > end):
                return

    def _asks(self, sid: bytes, body: Body | None) -> TypeGuard[MessageData]:
        """Whether it asks `sid` if it still counts the node as its peer."""
        if sid not in self.members or not isinstance(body, MessageData) or body.to != sid:
            return False
        return read_message(body.d) == OneToOne(self.starts[sid].one, b"")

    def contact(self, sid: bytes) -> None:
        """Let `sid` answer a keepalive, now."""
        self.wait(6.0)
        asked = [parcel.ka for parcel in self.said(sid) if parcel.ka is not None]
        self.tell(sid, kk=asked[-1])

    def join(
        self, sid: bytes, *, broadcast: int = 0, one: int = 0, source: bytes | None = None
    ) -> Synchronize:
        """Let the puppet `sid` join with these numbers; the node's synchronize message to it."""
        hop = sid if source is None else source
        self.said()
        self.tell_message(sid, Synchronize(broadcast, one), source=source)
        return self.accept(sid, hop)

    def insist(self, sid: bytes, message: Synchronize) -> None:
        """Let `sid` say that it has started anew, until it is believed."""
        self.tell_message(sid, message)
        self.wait(10.0, alive=(sid,))
        self.said()
        self.tell_message(sid, message)

    def accept(self, sid: bytes, hop: bytes) -> Synchronize:
        """The same as `answer`; the node's replies are forgotten."""
        start = self.answer(sid, hop)
        self.said()
        return start

    def answer(self, sid: bytes, hop: bytes) -> Synchronize:
        """Let `sid` acknowledge our synchronize message, and answer keepalives at `hop`."""
        parcels = self.said(hop)
        body = next(
            parcel.body
            for parcel in parcels
            if isinstance(parcel.body, MessageData) and parcel.body.to == sid
        )
        start = read_message(body.d)
        assert isinstance(start, Synchronize)
        self.starts[sid] = start
        self.members.add(sid)
        for parcel in parcels:
            if parcel.ka is not None:
                self.tell(hop, kk=parcel.ka)
        self.tell(hop, MessageAck(ME, sid, body.id))
        return start

    def gossip(self, source: bytes, **rows: dict[bytes, float]) -> None:
        """Let `source` report contacts, in seconds of this table's clock."""
        columns = sorted({to for row in rows.values() for to in row})
        self.tell(
            source,
            Gossip(
                {
                    fr.encode(): [EPOCH + row[to] if to in row else 0.0 for to in columns]
                    for fr, row in rows.items()
                },
                columns,
            ),
        )


def builder(
    network: Network,
    *,
    limits: Limits = DEFAULT_LIMITS,
    timing: Timing = DEFAULT_TIMING,
    dialect: Dialect = Dialect.KEYED,
    keys: Sequence[bytes] = (),
    own: Mapping[bytes, Limits] | None = None,
) -> Callable[[Host], Node]:
    """Makes nodes for a cluster on that network; `own`: the limits of some of them."""

    def build(host: Host) -> Node:
        sid = host.address
        assert isinstance(sid, bytes)
        rng = network.random(f"{sid!r} {host.incarnation}")
        found = limits if own is None else own.get(sid, limits)
        return Node(
            me=sid, rng=rng, epoch=EPOCH, limits=found, timing=timing, dialect=dialect, keys=keys
        )

    return build


def joining(network: Network, names: Sequence[bytes], **settings: Any) -> Cluster:
    """Nodes with these settings (`builder`), all about to join the first one, which has started."""
    cluster, build = Cluster(network), builder(network, **settings)
    for sid in names:
        cluster.add(sid, build)
    cluster[names[0]].call("start")
    for sid in names[1:]:
        cluster[sid].call("join", sid=names[0])
    return cluster


def all_joined(cluster: Cluster) -> bool:
    """Whether each node has joined all others."""
    others = len(cluster.nodes) - 1
    views = [host.machine.peers().values() for host in cluster]
    return all([view.state for view in view_of] == [PeerState.JOINED] * others for view_of in views)
