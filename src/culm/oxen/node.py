"""The node: a datagram machine that is a server of a cluster."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import IntEnum, auto
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from culm.arguments import check_type
from culm.buffer import check_buffer
from culm.machine import (
    Buffer,
    Closed,
    ContractErrorCode,
    DatagramMachine,
    LocalProtocolError,
    check_time,
)
from culm.oxen.associations import Associations
from culm.oxen.clock import Clock
from culm.oxen.context import Context
from culm.oxen.errors import DropReason, ErrorCode
from culm.oxen.events import Delivery, NodeEvent, PeerJoined
from culm.oxen.inbox import Inbox
from culm.oxen.limits import Limits, Timing
from culm.oxen.links import Links
from culm.oxen.messages import Dialect
from culm.oxen.peer import Peer
from culm.oxen.reception import Reception
from culm.oxen.roster import Roster
from culm.oxen.sizes import payload_sizes
from culm.oxen.states import PeerState, State
from culm.oxen.status import PeerView, view_of
from culm.timers import Deadlines

if TYPE_CHECKING:
    from culm.oxen.seal import Seal

# By themselves: to look one up in its class costs more than a message can afford.
_IDLE, _JOINING, _ACTIVE, _LEAVING, _CLOSED = State
_DEFAULT_LIMITS: Final = Limits()
_DEFAULT_TIMING: Final = Timing()
_JOINED = PeerState.JOINED
_DATAGRAM, _IN_ORDER = Delivery.DATAGRAM, Delivery.IN_ORDER


class _Timer(IntEnum):  # a faster dictionary key than an Enum
    REVIEW = auto()
    GOSSIP = auto()
    LEAVE = auto()


class Node(DatagramMachine[NodeEvent, bytes]):
    """One server of a cluster.

    It knows servers by their IDs: `receive_datagram` takes the ID of the sending server,
    `datagrams_to_send` gives the ID of each destination, and addresses are the driver's
    concern.  Tell it the time with `advance` before anything else.

    me
        This server's ID.
    rng
        Source of message and keepalive IDs, of jitter and of gossip.
    epoch
        The Unix time (seconds) at which the monotonic time is 0.  Contact times are compared
        between nodes, so clocks should agree: see `Timing.usable_s`.
    limits
        Bounds on the memory that peers can make this node use.
    timing
        Intervals and timeouts.
    dialect
        Form of a parcel's body; the same in the whole cluster.
    keys
        Secrets of the cluster, of 32 bytes each: datagrams are encrypted and authenticated with the
        first, and those sealed with none of them have no effect. See `rekey`.

    Raises `ValueError` for an invalid key, for more than eight keys, for an `epoch` more than three
    thousand years from 1970, and for a `datagram_size_max` that leaves no room beside the 40 bytes
    that keys add.
    """

    def __init__(
        self,
        *,
        me: bytes,
        rng: Random,
        epoch: float,
        limits: Limits = _DEFAULT_LIMITS,
        timing: Timing = _DEFAULT_TIMING,
        dialect: Dialect = Dialect.KEYED,
        keys: Sequence[bytes] = (),
    ) -> None:
        check_type("limits", limits, Limits)
        check_type("timing", timing, Timing)
        self._limits, self._timing = limits, timing
        self._me = me = _checked_sid(me, limits)
        self._rng = rng
        self._dialect = dialect
        self._state = _IDLE
        self._clock = Clock(epoch)
        context = Context(me=me, limits=limits, timing=timing, rng=rng, clock=self._clock)
        self._dropped = context.dropped
        self._seal = self._new_seal(keys) if keys else None
        overhead = 0 if self._seal is None else self._seal.overhead
        limits.check_parcels(overhead)
        self._payload_size_max = payload_sizes(limits, dialect, overhead)
        self._links = links = Links(context, dialect=dialect, seal=self._seal)
        self._roster = roster = Roster(context, links)
        self._associations = Associations(
            context, roster=roster, links=links, alone_max=self._payload_size_max[_IN_ORDER]
        )
        self._reception = Reception(
            context, associations=self._associations, roster=roster, links=links
        )
        self._timers: Deadlines[_Timer] = Deadlines()
        self._inbox = Inbox(limits.inbox_size_max)
        self._message = 0

    # -- requests -------------------------------------------------------------------------

    def start(self) -> None:
        """Start a cluster of one.

        Raises `LocalProtocolError` (``ALREADY_STARTED``, ``NO_TIME``, and ``ALREADY_CLOSED`` after
        `leave`).
        """
        self._refuse_when_leaving()
        if self._state is not _IDLE:
            raise LocalProtocolError(ErrorCode.ALREADY_STARTED)
        self._refuse_without_time()
        self._begin(_ACTIVE)

    def join(self, sid: bytes, *, seed: bool = False) -> None:
        """Join the cluster of server `sid` by asking it for help; more calls ask more servers.

        A `seed` is asked again, ever more rarely, whenever it is not a peer, because it has not
        answered yet, or has left and may come back.  `forget` ends that.

        `PeerJoined` follows for it and for every server that this node learns of through it, or
        `PeerUnreachable` if it does not answer.  Raises `LocalProtocolError` (``BAD_SID``,
        ``ALREADY_CLOSED``, ``PEERS_LIMIT``, ``NO_TIME``).
        """
        self._refuse_when_leaving()
        if _checked_sid(sid, self._limits) == self._me:
            raise LocalProtocolError(ErrorCode.BAD_SID, "a node cannot help itself to join")
        is_known = sid in self._roster.peers
        if not (is_known or self._roster.has_room_for(trusted=True, speaks=True)):
            raise LocalProtocolError(ErrorCode.PEERS_LIMIT)
        self._refuse_without_time()
        if self._state is _IDLE:
            self._begin(_JOINING)
        self._associations.ask_for_help(sid, again=seed)

    def forget(self, sid: bytes) -> None:
        """Forget server `sid`, which is gone for good, and free its place.

        `SendFailed` follows for each message that it has not acknowledged, then `PeerForgotten` if
        it had ever joined.  If it is alive after all, it joins again as soon as it, or gossip about
        it, is heard.  It is no longer a seed.  Has no effect if the server is not known.
        """
        self._associations.forget(sid)

    def leave(self) -> None:
        """Leave the cluster: say goodbye, and wait for all acknowledgements.

        `Closed` follows, after `Timing.leave_s` at the latest.  A second call has no effect.
        """
        if self._state in (_LEAVING, _CLOSED):
            return
        if self._state is _IDLE:
            self._inbox = Inbox(0)  # a node that never started answers no peer
        else:
            self._associations.finalize()
        self._state = _LEAVING
        self._timers.set(_Timer.LEAVE, self._clock.now + self._timing.leave_s)

    close = leave

    def send(self, to: bytes, data: Buffer, *, acknowledged: bool = True) -> int:
        """Deliver a datagram to peer `to`: at least once, in any order.

        Without `acknowledged` it is sent once, and may be lost.

        Returns the number of the message in `Delivered` and `SendFailed`, neither of which follows
        without `acknowledged`.  Raises `LocalProtocolError` (``NOT_STARTED``, ``ALREADY_CLOSED``,
        ``NOT_JOINED``, ``PAYLOAD_TOO_LARGE``, ``QUEUE_FULL``), as do the other ways to send.
        """
        return self._send(to, data, Delivery.DATAGRAM, acknowledged)

    def send_in_order(self, to: bytes, data: Buffer) -> int:
        """Deliver a message to peer `to`: exactly once, and in order.

        If it is larger than `payload_size_max` it is sent in pieces, up to
        `Limits.message_size_max` and the peer's own limit (`PeerView.message_size_max`).
        """
        return self._send(to, data, Delivery.IN_ORDER, True)

    def broadcast(self, data: Buffer, *, acknowledged: bool = True) -> int:
        """Deliver a datagram to every peer that has joined.

        ``QUEUE_FULL`` means that the queue of a responsive peer is full; `Writable` follows.
        For a peer that has no room and no longer answers, the broadcast fails (`SendFailed`).
        """
        payload = self._check_all(data, Delivery.DATAGRAM, acknowledged)
        self._message += 1
        if acknowledged:
            peers = self._associations.joined()
            self._associations.send_to_each(peers, self._message, _DATAGRAM, payload)
        else:
            for peer in self._associations.joined():
                self._associations.courier.send_once(peer, payload)
        return self._message

    def broadcast_in_order(self, data: Buffer) -> int:
        """Deliver a message to every peer that has joined: exactly once, in the order of our
        broadcasts.

        Full queues are treated as by `broadcast`.  A message larger than `payload_size_max` is sent
        in pieces, up to `Limits.message_size_max`; it fails for peers that do not take these.
        """
        payload = self._check_all(data, Delivery.IN_ORDER_BROADCAST, True)
        self._message += 1
        self._associations.broadcast(self._message, payload)
        return self._message

    def send_to_group(self, group: str, data: Buffer) -> int:
        """Deliver a message to every peer in `group`, to each as `send_in_order` does.

        Full queues and large messages are treated as by `broadcast_in_order`.
        """
        payload = self._check_payload(data, _IN_ORDER)
        peers = [self._roster.peers[sid] for sid in self.group(group)]
        _refuse_when_full(peers, _IN_ORDER)
        self._message += 1
        self._associations.send_to_each(peers, self._message, _IN_ORDER, payload)
        return self._message

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Replace the tags of this node.

        Every peer that takes tags learns them (`TagsChanged`), including those that join later.
        Raises `LocalProtocolError` (``TAGS_LIMIT``, ``ALREADY_CLOSED``).
        """
        self._refuse_when_leaving()
        self._associations.set_tags(tags)

    def join_group(self, group: str) -> None:
        """Join `group` by setting a tag of that name, unless there is one.

        Raises as `set_tags` does.
        """
        self.set_tags({group: "", **self.tags})

    def leave_group(self, group: str) -> None:
        """Leave `group` by removing its tag.  Raises as `set_tags` does."""
        self.set_tags({name: value for name, value in self.tags.items() if name != group})

    def rekey(self, keys: Sequence[bytes]) -> None:
        """Seal with the first of `keys` from now on, and accept datagrams sealed with any of them.

        To replace a key without losing anything, let all nodes accept the new one, then seal with
        it, then drop the old one: ``[old, new]``, ``[new, old]``, ``[new]``, each on all nodes
        before the next.

        Raises `LocalProtocolError` (``NO_KEYS``) if the node was built without keys, and
        `ValueError` for an invalid key.
        """
        if self._seal is None:
            raise LocalProtocolError(ErrorCode.NO_KEYS)
        self._seal.rekey(keys)

    def payload_size_max(self, delivery: Delivery = Delivery.DATAGRAM) -> int:
        """Bytes of the largest message with that delivery that fits into one datagram."""
        check_type("delivery", delivery, Delivery)
        return self._payload_size_max[delivery]

    # -- driving --------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state as of the last returned event."""
        return self._state

    def advance(self, now: float) -> None:
        """Tell the time: monotonic seconds.

        Raises `LocalProtocolError` (``NOT_A_TIME``, ``TIME_WENT_BACK``).
        """
        check_time(now, self._clock.now)
        self._clock.advance(now)

    def next_deadline(self) -> float | None:
        """When `advance` is due at the latest."""
        if self._state is _CLOSED:
            return None
        timer, resend = self._timers.next(), self._associations.courier.next_deadline()
        return timer if resend is None else resend if timer is None else min(timer, resend)

    def receive_datagram(self, data: Buffer, *, source: Hashable) -> None:
        """Take a datagram from server `source`.

        Raises `LocalProtocolError` (``BAD_SID``) if `source` is not a server ID.
        """
        sid = _checked_sid(source, self._limits)
        if self._state is _IDLE or self._state is _CLOSED:
            check_buffer(data)
            return
        if not self._inbox.put(sid, data):
            self._dropped[DropReason.INBOX_FULL] += 1

    def next_event(self) -> NodeEvent | None:
        """Do work up to the next event and return it; ``None`` if nothing is left to do."""
        events, inbox = self._associations.events, self._inbox
        while self._state is not _CLOSED:
            if events:
                event = events.popleft()
                if self._state is _JOINING and isinstance(event, PeerJoined):
                    self._state = _ACTIVE
                return event
            datagram = inbox.take()
            if datagram is not None:
                source, data = datagram
                received = self._links.receive(source, data)
                if received is not None:
                    body, size = received
                    self._reception.receive(source, body, size)
            elif self._state is _LEAVING and self._associations.settled:
                self._state = _CLOSED
                return Closed()
            elif not self._do_what_is_due():
                break
        return None

    def datagrams_to_send(self) -> list[tuple[bytes, bytes]]:
        """Take the datagrams to send, each with the ID of its destination."""
        return self._links.take()

    # -- status ---------------------------------------------------------------------------

    @property
    def me(self) -> bytes:
        """This server's ID."""
        return self._me

    @property
    def tags(self) -> dict[str, str]:
        """The tags of this node."""
        return dict(self._associations.tags.table)

    def group(self, name: str) -> list[bytes]:
        """The IDs of the joined peers with a tag of that name, in order."""
        return sorted(peer.sid for peer in self._associations.joined() if name in peer.tags)

    @property
    def unix_time(self) -> float:
        """The time of the last `advance`, in Unix seconds."""
        return self._clock.unix

    @property
    def dropped(self) -> MappingProxyType[DropReason, int]:
        """The numbers of datagrams, parcels and messages that had no effect, by reason."""
        return MappingProxyType(self._dropped)

    def contacts(self) -> dict[bytes, dict[bytes, float]]:
        """The last contact table: row, column, Unix seconds; unknown entries are absent."""
        return self._links.contacts.rows()

    def peers(self) -> dict[bytes, PeerView]:
        """All known servers, and the state of each."""
        contacts, now = self._links.contacts, self._clock.unix
        return {sid: view_of(peer, contacts, now) for sid, peer in self._roster.peers.items()}

    # -- inside ---------------------------------------------------------------------------

    def _new_seal(self, keys: Sequence[bytes]) -> Seal:
        from culm.oxen.seal import Seal  # without keys there is no need to wait for PyNaCl

        return Seal(
            self._me,
            keys,
            again_s=self._timing.keepalive_retry_s,
            patience_s=self._timing.usable_s,
            sources_max=2 * self._limits.peers_max,
            rng=self._rng,
            clock=self._clock,
            dropped=self._dropped,
        )

    def _begin(self, state: State) -> None:
        self._state = state
        if self._seal is not None:
            self._seal.begin()
        self._roster.begin()
        now, timing = self._clock.now, self._timing
        # At random moments, so that nodes started together do not send together.
        self._timers.set(_Timer.REVIEW, now + timing.keepalive_retry_s * self._rng.uniform(0.5, 1))
        self._timers.set(_Timer.GOSSIP, now + timing.gossip_s * self._rng.uniform(0.5, 1))

    def _do_what_is_due(self) -> bool:
        """Do one task that is due; false if there is none."""
        now, timing = self._clock.now, self._timing
        resend = self._associations.courier.next_deadline()
        if resend is not None and resend <= now:
            self._associations.courier.resend(self._roster.peers)
            self._associations.relieve()
            return True
        timer = self._timers.pop_due(now)
        if timer is _Timer.REVIEW:
            self._associations.review()
            self._links.ask_around()
            self._timers.set(timer, self._clock.after(timing.keepalive_retry_s))
        elif timer is _Timer.GOSSIP:
            self._links.gossip()
            self._timers.set(timer, self._clock.after(timing.gossip_s))
        elif timer is _Timer.LEAVE:
            self._associations.abandon()
        return timer is not None

    def _send(self, to: bytes, data: Buffer, delivery: Delivery, acknowledged: bool) -> int:
        payload = self._check_payload(data, delivery, to)
        peer = self._roster.peers.get(to)
        if peer is None or peer.state is not _JOINED:
            raise LocalProtocolError(ErrorCode.NOT_JOINED, repr(to))
        if acknowledged and peer.outgoing.is_full(delivery):
            raise LocalProtocolError(ErrorCode.QUEUE_FULL, repr(to))
        self._message += 1
        if acknowledged:
            self._associations.send(peer, self._message, delivery, payload)
        else:
            self._associations.courier.send_once(peer, payload)
        return self._message

    def _check_all(self, data: Buffer, delivery: Delivery, acknowledged: bool) -> bytes:
        payload = self._check_payload(data, delivery)
        if acknowledged:
            _refuse_when_full(self._associations.joined(), delivery)
        return payload

    def _check_payload(self, data: Buffer, delivery: Delivery, to: bytes | None = None) -> bytes:
        """The bytes of `data`, checked to be fit for sending to `to`, or to all peers."""
        if self._state is not _ACTIVE and self._state is not _JOINING:
            self._refuse_when_leaving()
            raise LocalProtocolError(ErrorCode.NOT_STARTED)
        payload = data if type(data) is bytes else bytes(memoryview(data))
        if len(payload) > self._payload_size_max[delivery]:
            self._check_large(len(payload), delivery, to)
        return payload

    def _check_large(self, size: int, delivery: Delivery, to: bytes | None) -> None:
        """Check that a message too large for a datagram, of `size` bytes, can go in pieces."""
        size_max = 0 if delivery is _DATAGRAM else self._limits.message_size_max
        peer = None if to is None else self._roster.peers.get(to)
        if peer is not None and peer.state is _JOINED:
            size_max = min(size_max, peer.message_size_max)
        if size > size_max:
            most = max(size_max, self._payload_size_max[delivery])
            raise LocalProtocolError(ErrorCode.PAYLOAD_TOO_LARGE, f"{size} bytes, at most {most}")

    def _refuse_without_time(self) -> None:
        if not self._clock.is_set:
            raise LocalProtocolError(ErrorCode.NO_TIME, "call `advance` first")

    def _refuse_when_leaving(self) -> None:
        if self._state is _LEAVING or self._state is _CLOSED:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)


def _refuse_when_full(peers: Iterable[Peer], delivery: Delivery) -> None:
    """Refuse the call if the queue of a responsive peer is full."""
    for peer in peers:
        if peer.outgoing.is_full(delivery) and peer.outgoing.holds_up(delivery):
            raise LocalProtocolError(ErrorCode.QUEUE_FULL, repr(peer.sid))


def _checked_sid(sid: object, limits: Limits) -> bytes:
    if type(sid) is not bytes or not 0 < len(sid) <= limits.sid_size_max:
        raise LocalProtocolError(ErrorCode.BAD_SID, repr(sid))
    return sid
