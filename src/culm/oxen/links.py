"""The links between servers, regardless of the meaning of messages.

Parcels come in and go out here: keepalives are sent and answered, gossip is spread and
taken over, routes are chosen, and parcels for others are forwarded.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from culm.buffer import Buffer
from culm.oxen.contacts import ContactTable
from culm.oxen.context import Context
from culm.oxen.errors import DropReason
from culm.oxen.gossip import fragment, lively
from culm.oxen.keepalive import Keepalives
from culm.oxen.messages import (
    Body,
    Dialect,
    Gossip,
    MessageAck,
    MessageData,
    Outlived,
    ParcelError,
    decode_parcel,
    encode_parcel,
    read_message,
    write_message,
)
from culm.oxen.outbox import Outbox
from culm.oxen.proofs import AMPLIFICATION_MAX, Proofs
from culm.oxen.routing import ForwardMemory, Routes
from culm.oxen.sizes import introduction_size
from culm.wire import xenc

if TYPE_CHECKING:  # without keys there is no need to wait for PyNaCl
    from culm.oxen.seal import Seal

_ASKING_SIZE = 17  # bytes of a keepalive in a parcel of ours
_ANSWER_SHARE = 7  # a third of the bytes of a parcel that answers one
_HELPERS = 3  # neighbours asked at a time to reach a silent peer for us


class Links:
    """The node's links to all others.

    seal: for the cluster's keys, if it has any.
    """

    def __init__(self, context: Context, *, dialect: Dialect, seal: Seal | None) -> None:
        self._me, self._rng, self._clock = context.me, context.rng, context.clock
        self._limits, self._timing = limits, timing = context.limits, context.timing
        self._dropped = context.dropped
        self._dialect, self._seal = dialect, seal
        self.contacts = ContactTable(self._me, timing.usable_s)
        self._parcel_size_max = limits.datagram_size_max - (0 if seal is None else seal.overhead)
        self._keepalives = Keepalives(self.contacts, timing, self._rng)
        self._routes = Routes(self.contacts, timing.usable_s, self._keepalives.untried)
        self._forwarded = ForwardMemory(
            again_s=timing.redelivery_min_s / 8,
            first_s=timing.redelivery_first_s / 2,
            last_s=timing.redelivery_max_s / 2,
            size_max=limits.forwards_max,
        )
        self._shared: set[bytes] = set()
        self._told: dict[bytes, int] = {}  # the portion of gossip it got last, counted from 1
        self._gossips = 0
        self._untold: set[bytes] = set()  # get gossip once they have proved themselves
        self._bearers: dict[bytes, bytes] = {}  # through which one spoke that is sought
        self._banned: set[bytes] = set()
        share_max = introduction_size(self._me, limits, dialect)
        self._proofs = Proofs(limits.peers_max, share_max=share_max)
        self._outbox = Outbox(
            size_max=limits.outbox_max, parcel_size_max=self._parcel_size_max, dialect=dialect
        )

    def add(self, sid: bytes) -> None:
        """Keep in touch with `sid`, and give it a place in the table."""
        self.contacts.add(sid)
        self._keepalives.add(sid)
        if self._seal is not None:
            self._seal.keep(sid)

    def retire(self, sid: bytes) -> None:
        """Note that `sid` has left: gossip omits it, but it can still be reached for a while."""
        self._keepalives.remove(sid)
        self._shared.discard(sid)
        self._told.pop(sid, None)
        self._untold.discard(sid)
        self._bearers.pop(sid, None)
        if self._seal is not None:
            self._seal.release(sid)

    def remove(self, sid: bytes) -> None:
        """Forget `sid`."""
        self.retire(sid)
        self.contacts.remove(sid)
        self._routes.forget(sid)
        self._banned.discard(sid)
        self._proofs.remove(sid)

    def trusts(self, sid: bytes) -> bool:
        """Whether `sid` has proved itself, or was named by our user.

        In a cluster with keys every sender has proved itself.
        """
        return self._seal is not None or sid in self._proofs.trusted

    def has_heard_of(self, sid: bytes) -> bool:
        """Whether `sid` is trusted, or a trusted server has told of it."""
        return self.trusts(sid) or self._proofs.pending.get(sid) is not None

    def trust(self, sid: bytes) -> None:
        """Trust `sid`, which our user has named or which had joined."""
        self._proofs.trust(sid)

    def expect(self, sid: bytes, *, told: bool) -> None:
        """Seek contact with `sid`.

        told: whether a trusted server has told of it.
        """
        if self._seal is None:
            self._proofs.expect(sid, told=told)

    def question(self, sid: bytes, patience_s: float) -> bool:
        """Question `sid`, which had joined but acknowledges nothing; whether it has to show itself.

        It has to if it has answered no keepalive for `patience_s` either: then only others report
        that it is there.  Until it acknowledges something, their reports pay for the bytes sent to
        it.
        """
        contact = self.contacts.get(self._me, sid)
        if self._seal is not None or self._clock.unix - contact < patience_s:
            return False
        self._proofs.expect(sid, told=True)
        return True

    def wonder(self, sid: bytes) -> None:
        """Ask `sid`, which was given up, for a sign of life, unless it has just been asked."""
        if self._keepalives.wonder(sid, self._clock.unix):
            self._outbox.ping(sid)

    def hear_rumour(self, sids: Iterable[bytes], size: int) -> None:
        """Note that a trusted server's datagram of `size` bytes tells of `sids`."""
        self._proofs.hear_rumour(sids, size)

    def hear_of(self, sid: bytes, by: bytes, size: int) -> None:
        """Note that `size` bytes of `sid`, with which contact may be sought, came through `by`."""
        if sid in self._proofs.pending and self.trusts(by):
            self._proofs.expect(sid, told=True)
            self._proofs.hear_rumour([sid], size)
            self._bearers[sid] = by

    def accept(self, sid: bytes) -> None:
        """Note that `sid` has acknowledged a message sent to it alone."""
        self._proofs.accept(sid)

    def doubt(self, sid: bytes, size: int) -> None:
        """Make `sid`, which `size` bytes say has started anew, prove itself again."""
        if self._seal is None:
            self._proofs.remove(sid)
            self._proofs.expect(sid, told=False)
            self._proofs.receive(sid, size)

    def share(self, sid: bytes) -> None:
        """Tell others of `sid` and `sid` of others, at once or as soon as it has proved itself."""
        self._banned.discard(sid)
        self._shared.add(sid)
        if self.trusts(sid):
            self._gossip_to(sid)
        else:
            self._untold.add(sid)

    def ban(self, sid: bytes) -> None:
        """Neither forward anything to or from `sid`, which is given up, nor gossip about it."""
        self._shared.discard(sid)
        self._banned.add(sid)

    def unban(self, sid: bytes) -> None:
        """Forward again for `sid`, which is no longer given up."""
        self._banned.discard(sid)

    def receive(
        self, source: bytes, data: Buffer
    ) -> tuple[MessageData | MessageAck | Gossip, int] | None:
        """Take a datagram that came from `source`; returns its body, if there is one for us.

        The second value is the size of the datagram, without the bytes that pay for the answer to
        its keepalive.
        """
        if len(data) > self._limits.datagram_size_max:
            self._drop(DropReason.TOO_LARGE)
            return None
        if source == self._me:
            self._drop(DropReason.FROM_SELF)
            return None
        if self._seal is not None:
            parcel = self._open(self._seal, source, data)
            if parcel is None:
                return None
            data = parcel
        elif source not in self._proofs.trusted:
            self._proofs.receive(source, len(data))
        try:
            ka, kk, body = decode_parcel(
                data, self._dialect, sid_size_max=self._limits.sid_size_max
            )
        except ParcelError:
            self._drop(DropReason.MALFORMED)
            return None
        pays = AMPLIFICATION_MAX * len(data) > _ASKING_SIZE
        if source in self._banned and pays:
            self.wonder(source)
        if ka is not None and not self._outbox.owe(source, ka):
            self._drop(DropReason.OUTBOX_FULL)
        if kk is not None:
            if self._keepalives.answer(source, kk, self._clock.unix):
                self._prove(source)
            else:
                self._drop(DropReason.STRAY_KEEPALIVE)
        if body is None or isinstance(body, Gossip):
            size = len(data) if ka is None else len(data) - _ANSWER_SHARE
            return None if body is None else (body, size)
        if body.fr == self._me:
            self._drop(DropReason.FROM_SELF)
            return None
        if body.to == self._me:
            return body, len(data) if ka is None else len(data) - _ANSWER_SHARE
        if body.to == body.fr:  # it could never arrive, as nothing goes back to its origin
            self._drop(DropReason.MALFORMED)
            return None
        if self.trusts(source):
            self._forward(source, body)
        else:
            self._drop(DropReason.UNPROVED)
        return None

    def _open(self, seal: Seal, source: bytes, data: Buffer) -> bytes | None:
        """The parcel in a sealed datagram, unless it is forged, a replay or of an earlier life.

        A sender that has to begin a later life is told so.  If the datagram says the same of us,
        we believe it: otherwise two servers in earlier lives would never hear each other's answers.
        """
        opened = seal.open(source, data)
        if opened is None or opened.fresh:
            return None if opened is None else opened.parcel
        if opened.later is not None:
            told = write_message(Outlived(opened.later))
            self._put(source, MessageData(source, self._me, None, told))
        self._listen(opened.parcel)
        return None

    def _listen(self, parcel: bytes) -> None:
        """Take from a parcel only news of a later life of ours, which is harmless if replayed."""
        try:
            body = decode_parcel(parcel, self._dialect, sid_size_max=self._limits.sid_size_max)[2]
            message = read_message(body.d) if isinstance(body, MessageData) else None
        except ParcelError:
            return
        if isinstance(body, MessageData) and body.to == self._me and type(message) is Outlived:
            self.outlive(message.milliseconds)

    def outlive(self, milliseconds: int) -> None:
        """Note that a server knows of a life of ours that began at that time."""
        if self._seal is not None:
            self._seal.outlive(milliseconds)

    def lively(self, gossip: Gossip) -> list[bytes]:
        """Servers in `gossip` with a recent contact."""
        return lively(gossip, self.contacts, self._clock.unix)

    def merge(self, gossip: Gossip) -> None:
        """Merge the contacts in `gossip` between servers in the table."""
        self.contacts.merge(gossip.rows, gossip.columns, self._clock.unix)

    def send(self, body: MessageData, attempt: int) -> bool:
        """Send message data of our own for the `attempt`-th time (0 is the first).

        False if it cannot leave now.  What others pay for goes first the way by which they told of
        the receiver: there may be too little for a second attempt.
        """
        now, hop = self._clock.unix, None
        pays = body.to in self._proofs.pending
        if pays and not attempt:
            hop = self._bearers.pop(body.to, None)
        if hop is None or not self.contacts.usable(self._me, hop, now):
            hop = self._routes.hop(body.to, now, attempt=attempt)
        if pays and not self._is_paid(hop, body):
            return False
        if hop is None or not self._outbox.put(hop, body):
            self._drop_unsent(hop)
            return False
        return True

    def send_through_some(self, body: MessageData) -> None:
        """Send message data of our own through a few neighbours, picked at random."""
        neighbours = self.contacts.neighbours(self._clock.unix)
        hops = [hop for hop in neighbours if hop != body.to and hop not in self._banned]
        for hop in self._rng.sample(hops, min(_HELPERS, len(hops))):
            if body.to not in self._proofs.pending or self._is_paid(hop, body):
                self._put(hop, body)

    def answer(self, source: bytes, body: MessageAck | MessageData) -> None:
        """Send an answer back the way the message came, if that link is usable."""
        usable = self.contacts.usable(self._me, source, self._clock.unix)
        hop = source if usable else self._routes.hop(body.to, self._clock.unix)
        if body.to in self._proofs.pending and not self._is_paid(hop, body):
            return
        if hop is None or not self._outbox.put(hop, body):
            self._drop_unsent(hop)

    def ask_around(self) -> None:
        """Ask servers that have lately given no sign of life for one."""
        for sid in self._keepalives.due(self._clock.unix):
            self._outbox.ping(sid)
        self._forwarded.expire(self._clock.unix)

    def gossip(self) -> None:
        """Send a portion of the table to the peer that got one longest ago.

        Every other time it is one of the peers that hear from us alone, if there are any.
        """
        now, contacts = self._clock.unix, self.contacts
        usable = [sid for sid in sorted(self._shared) if contacts.usable(self._me, sid, now)]
        peers = usable or sorted(self._shared)
        if not peers:
            return
        self._gossips += 1
        if self._gossips % 2:
            peers = sorted(contacts.dependants(usable, now)) or peers
        longest = min(self._told.get(sid, 0) for sid in peers)
        sid = self._rng.choice([sid for sid in peers if self._told.get(sid, 0) == longest])
        self._told[sid] = self._gossips
        self._gossip_to(sid)

    def take(self) -> list[tuple[bytes, bytes]]:
        """Take the datagrams to send, each with its destination, a neighbour."""
        ask = partial(self._keepalives.ask, now=self._clock.unix)
        if self._seal is not None:
            return [(hop, self._seal.close(hop, parcel)) for hop, parcel in self._outbox.take(ask)]
        trusted = self._proofs.trusted
        return [
            (hop, data)
            for hop, data in self._outbox.take(ask)
            if hop in trusted or self._may_send(hop, len(data))
        ]

    def _prove(self, sid: bytes) -> None:
        """Trust `sid`, which has answered a keepalive."""
        self._proofs.trust(sid)
        if sid in self._untold:
            self._untold.discard(sid)
            self._gossip_to(sid)

    def _gossip_to(self, sid: bytes) -> None:
        gossip = fragment(
            self.contacts,
            self._shared,
            self._clock.unix,
            size_max=self._parcel_size_max,
            resolution_s=self._timing.resolution_s,
            rng=self._rng,
        )
        if gossip is not None:
            self._put(sid, gossip)

    def _forward(self, source: bytes, body: MessageData | MessageAck) -> None:
        if body.to in self._banned or body.fr in self._banned:
            self._drop(DropReason.GIVEN_UP)
        elif body.to not in self.contacts:
            self._drop(DropReason.NO_ROUTE)
        else:
            avoid = (source, body.fr)
            first = self._routes.hop(body.to, self._clock.unix, avoid=avoid)
            if first is None:
                self._drop(DropReason.NO_ROUTE)
                return
            once = body.id is None
            content = None
            if once:
                assert isinstance(body, MessageData)
                content = xenc.encode(body.d)
            key = (type(body), body.fr, body.to, body.id, content)
            times = self._forwarded.admit(
                key, source, self._clock.unix, once=once, onward=first != body.to
            )
            if times is None:
                self._drop(DropReason.FORWARDED_BEFORE)
                return
            hop = self._routes.hop(body.to, self._clock.unix, attempt=times, avoid=avoid)
            self._put(hop, body)

    def _is_paid(self, hop: bytes | None, body: MessageData | MessageAck) -> bool:
        """Whether `body` may be sent to a server that has acknowledged nothing yet.

        A parcel that goes straight to an untrusted server is paid for when it leaves.
        """
        if hop == body.to and hop not in self._proofs.trusted:
            return True
        return self._may_send(body.to, self.size_of(body))

    def size_of(self, body: MessageData | MessageAck) -> int:
        """Bytes of a parcel with `body` that also asks for a keepalive."""
        return len(encode_parcel((None, None, body), self._dialect)) + _ASKING_SIZE

    def _put(self, hop: bytes | None, body: Body) -> None:
        if hop is None or not self._outbox.put(hop, body):
            self._drop_unsent(hop)

    def _drop_unsent(self, hop: bytes | None) -> None:
        self._drop(DropReason.NO_ROUTE if hop is None else DropReason.OUTBOX_FULL)

    def _may_send(self, hop: bytes, size: int) -> bool:
        if self._proofs.spend(hop, size):
            return True
        self._drop(DropReason.UNPROVED)
        return False

    def _drop(self, reason: DropReason) -> None:
        self._dropped[reason] += 1
