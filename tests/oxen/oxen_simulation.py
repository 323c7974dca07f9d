"""Whole clusters on a faulty network, with a ledger of all promises.

`simulate(seed)` draws everything from the seed: the number of nodes, the faults of the network,
partitions, deaths, returns and goodbyes, and all messages.  Then the faults stop, and within a
bound all nodes must be joined with each other, and the ledger even.  With `seeds` there is no help
afterwards: each node asks all others until they are its peers.  With `pieces` some messages are
larger than a datagram, and some nodes do not take those.  With `keys` datagrams are sealed, the key
is replaced, strangers replay traffic, and clocks are set back a little when nodes restart.  With
`suspicion` nodes ask others to reach silent nodes, and give up sooner.  With `tags` nodes describe
themselves, and send to groups; some take fewer tags, or none.  With `liars` a stranger that nearly
knows members' numbers speaks in their names, until the faults stop.  With `thieves` a stranger
takes messages in order, and acknowledges them in the name of their receiver: the receiver that
waits for them has to find out, and both sides to start anew.  With `rumours` a node dies with
messages on their way to it, and others claim to hear it; in the end it is back.  With `scars` many
links stay broken for good: then all nodes must be joined by way of others.  With `places` there are
few places for candidates, and each node is a neighbour of few others from the beginning.  If places
for peers are few, too, nodes must agree on who has joined.  Now and then one node's name is too
long for another one, which must know all the others.  With `narrow` no large datagram ever passes:
it fails alone, and holds up nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations

from oxen_network import VICTIM, WatchedNetwork

from culm.machine import Closed, Event, LocalProtocolError
from culm.oxen import (
    Delivered,
    Delivery,
    DropReason,
    ErrorCode,
    LeaveReason,
    Limits,
    MessageReceived,
    Node,
    PeerForgotten,
    PeerJoined,
    PeerLeft,
    PeerReachable,
    PeerState,
    PeerUnreachable,
    SendFailed,
    SendResumed,
    SendWaiting,
    State,
    TagsChanged,
    Timing,
)
from culm.oxen.messages import (
    Broadcast,
    Datagram,
    Finalize,
    Gossip,
    Message,
    MessageAck,
    MessageData,
    OneToOne,
    Parcel,
    Synchronize,
    encode_parcel,
    read_message,
    write_message,
)
from culm.oxen.seal import close_box
from culm.oxen.tags import fits
from culm.testing import captures
from culm.testing.cluster import Cluster, Host
from culm.testing.network import Conditions

EPOCH = 1_700_000_000.0

# A tenth of the defaults, or so: minutes in life are seconds here.
TIMING = Timing(
    keepalive_s=0.5,
    keepalive_retry_s=0.25,
    usable_s=2.5,
    give_up_s=3.0,
    forget_s=120.0,
    gossip_s=0.25,
    resolution_s=0.05,
    redelivery_first_s=0.2,
    redelivery_min_s=0.05,
    redelivery_max_s=1.0,
    leave_s=4.0,
)
LIMITS = Limits(queue_max=64, window_max=8)

# Silent nodes are sought by way of others after a second, and given up after two.
SUSPICION = replace(TIMING, suspect_s=1.0)

# Three in four nodes take messages in pieces, and assemble fewer at once than may arrive.
PIECES = [
    replace(LIMITS, datagram_size_max=400, message_size_max=4_000, assemblies_max=places)
    for places in (1, 2, 3, 4)
]
NO_PIECES = replace(PIECES[0], message_size_max=0)

# Bytes of tags that nodes take, and the names of tags; the names of groups are among these.
TAGS_SIZES = [120, 120, 120, 40, 0]
TOPICS = ["role", "hall", "load", "of the north", "ä"]

# In clusters with a key, the key is replaced in these steps; all take one before any takes the
# next.
KEYS = bytes(range(32)), bytes(range(32, 64))
STEPS = [KEYS[:1], KEYS, KEYS[::-1], KEYS[1:]]

# The clock of a restarted node is set back by at most this, since contacts rely on clocks.
SETBACKS = [0.0, 0.1, 0.6]

REFUSALS = DropReason.REPLAYED, DropReason.UNAUTHENTICATED, DropReason.TOO_LARGE

INTRUSION = b"not of the cluster"

JOIN_BOUND_S, SCARRED_BOUND_S = 30.0, 60.0
"""Within this many seconds of the last fault all nodes are joined.

Where only a tree of links is left, each losing a tenth, one of 1,000 stories takes 23.
"""

_SCARRED_SIZE_MAX = 6

NARROW_BOUND_S = 130.0
"""The same where large datagrams never arrive: only after 32 seconds is a message in order known to
fail, with those behind it that are no smaller, and then perhaps the next one."""

# On a narrow path messages and tags are small enough or much too large.
WIDTHS = [250, 300]
PADDING = 900

PIECES_BOUND_S = 45.0
"""The same where large messages wait: of 64, each takes up to 0.6 s with a window of two pieces."""

PLACES_BOUND_S = 100.0
"""The same where places are few: a candidate out of reach may take the only one, for a while."""

# News must not be stale on arrival.
USABLE_S = {"mesh": 2.5, "star": 2.5, "ring": 5.0, "line": 8.0}

SHAPES: dict[str, Callable[[int], list[tuple[int, int]]]] = {
    "mesh": lambda size: list(combinations(range(size), 2)),
    "line": lambda size: [(index, index + 1) for index in range(size - 1)],
    "ring": lambda size: [(index, (index + 1) % size) for index in range(size)],
    "star": lambda size: [(0, index) for index in range(1, size)],
}
"""The links of a number of nodes where nodes have few places; the first ones lead to all."""

VERBS = {
    Delivery.DATAGRAM: ("send", "broadcast"),
    Delivery.IN_ORDER: ("send_in_order", None),
    Delivery.IN_ORDER_BROADCAST: (None, "broadcast_in_order"),
}

Life = tuple[bytes, int]  # server ID, incarnation


@dataclass
class Promise:
    """A message that a life has sent to a peer.

    excused: it need not arrive: the sender's user knows that the peer left or was given up.
    failed: its user was told that this message may be lost.
    """

    number: int
    payload: bytes
    excused: bool = False
    failed: bool = False


@dataclass
class Ledger:
    """All messages sent and received, and every user's news of its peers."""

    sent: dict[tuple[Life, bytes, Delivery], list[Promise]] = field(
        default_factory=lambda: defaultdict(list)
    )
    got: dict[tuple[Life, bytes, Delivery], list[bytes]] = field(
        default_factory=lambda: defaultdict(list)
    )
    delivered: dict[Life, set[tuple[bytes, int]]] = field(default_factory=lambda: defaultdict(set))
    waiting: dict[Life, set[tuple[bytes, int]]] = field(default_factory=lambda: defaultdict(set))
    """Large messages that have no place at the peer yet."""
    present: dict[tuple[Life, bytes], bool] = field(default_factory=dict)
    lost: dict[tuple[Life, bytes], bool] = field(default_factory=dict)
    tags: dict[tuple[Life, bytes], Mapping[str, str]] = field(default_factory=dict)
    """The descriptions that users were given of peers."""
    events: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    robbed: set[tuple[Life, bytes]] = field(default_factory=set)
    """Sender and receiver of stolen messages that count as delivered."""

    def note_sent(self, life: Life, to: bytes, delivery: Delivery, promise: Promise) -> None:
        self.sent[life, to, delivery].append(promise)

    def note(self, life: Life, event: Event) -> None:
        """Check that `event` may come now, and draw the consequences."""
        self.events[type(event).__name__] += 1
        match event:
            case MessageReceived(peer=peer, data=data, delivery=delivery):
                assert self.present.get((life, peer)), (life, event)
                assert data != INTRUSION
                self.got[life, peer, delivery].append(data)
            case PeerJoined(peer=peer):
                assert not self.present.get((life, peer)), (life, event)
                assert not self.lost.get((life, peer)), (life, event)
                self.present[life, peer] = True
                self.tags[life, peer] = {}
            case PeerLeft(peer=peer):
                assert self.present.get((life, peer)) or self.lost.get((life, peer)), (life, event)
                self.present[life, peer] = self.lost[life, peer] = False
                self._excuse(life, peer)
            case PeerUnreachable(peer=peer):
                if self.present.get((life, peer)):  # or else it was asked to help and did not
                    self.lost[life, peer] = True
                assert not (self.lost.get((life, peer)) and not self.present[life, peer])
                self.present[life, peer] = False
                self._excuse(life, peer)
            case PeerReachable(peer=peer):
                assert self.lost.get((life, peer)), (life, event)
                self.present[life, peer], self.lost[life, peer] = True, False
                self.tags[life, peer] = {}
            case PeerForgotten(peer=peer):  # to make room, or for taking too long
                assert self.lost.get((life, peer)), (life, event)
                self.lost[life, peer] = False
            case TagsChanged(peer=peer, tags=tags):
                assert self.present.get((life, peer)), (life, event)
                assert self.tags[life, peer] != tags, (life, event)
                self.tags[life, peer] = tags
            case SendWaiting(peer=peer, message=number):
                assert (peer, number) not in self.delivered[life] | self.waiting[life], event
                self.waiting[life].add((peer, number))
            case SendResumed(peer=peer, message=number):
                self.waiting[life].remove((peer, number))
            case Delivered(peer=peer, message=number):
                assert (peer, number) not in self.delivered[life], (life, event)
                assert (peer, number) not in self.waiting[life], (life, event)
                self.delivered[life].add((peer, number))
            case SendFailed(peer=peer, message=number):
                self.waiting[life].discard((peer, number))
                assert (peer, number) not in self.delivered[life], (life, event)
                found = [
                    promise
                    for (sender, to, _), promises in self.sent.items()
                    if sender == life and to == peer
                    for promise in promises
                    if promise.number in (number, 0)  # 0: the call has not returned
                ]
                assert found, (life, event)
                assert not any(promise.excused for promise in found), (life, event)
                for promise in found:
                    promise.excused = promise.failed = True

    def _excuse(self, life: Life, peer: bytes) -> None:
        """After a restart, a goodbye or a give-up no earlier message is promised."""
        for delivery in Delivery:
            for promise in self.sent[life, peer, delivery]:
                promise.excused = True

    def owes(self, life: Life, peer: bytes, deliveries: Iterable[Delivery] = Delivery) -> bool:
        """Whether a message to `peer` is neither delivered nor excused."""
        told = self.delivered[life]
        return any(
            not promise.excused and (peer, promise.number) not in told
            for delivery in deliveries
            for promise in self.sent[life, peer, delivery]
        )

    def check(self, living: list[Life], closed: list[Life]) -> None:
        """Every sent message that is not excused has arrived as promised.

        living: nodes that have not crashed and are still there; closed: those that left in peace.
        """
        for (life, peer, delivery), got in self.got.items():
            if delivery is not Delivery.DATAGRAM:
                numbers = [_number(data) for data in got]
                assert numbers == sorted(set(numbers)), (life, peer, delivery, numbers)
        for life in living:
            assert not self.waiting[life], (life, self.waiting[life])
            for other in living:
                if life != other:
                    for delivery in Delivery:
                        self._check_pair(life, other, delivery)
        for receiver in living:
            if receiver[1] == 1:  # messages that a former life held for its user died with it
                for sender in (*living, *closed):
                    for delivery in Delivery:
                        self._check_told(sender, receiver, delivery, sender in closed)

    def _check_pair(self, sender: Life, receiver: Life, delivery: Delivery) -> None:
        promises = self.sent[sender, receiver[0], delivery]
        owed = [promise.payload for promise in promises if not promise.excused]
        told = {number for peer, number in self.delivered[sender] if peer == receiver[0]}
        if receiver[1] == 1 and delivery is Delivery.DATAGRAM:
            arrived = {promise.payload for promise in promises if promise.number in told}
            assert arrived <= set(self.got[receiver, sender[0], delivery]), (sender, receiver)
        got = [
            data
            for data in self.got[receiver, sender[0], delivery]
            if data.startswith(_stamp(sender))
        ]
        if delivery is Delivery.DATAGRAM:
            assert set(owed) <= set(got), (sender, receiver, set(owed) - set(got))
        else:
            assert got[len(got) - len(owed) :] == owed, (sender, receiver, delivery, owed, got)
        sent = {promise.payload for promise in promises}
        assert set(got) <= sent, (sender, receiver, delivery, set(got) - sent)

    def _check_told(
        self, sender: Life, receiver: Life, delivery: Delivery, is_closed: bool
    ) -> None:
        """Every message that never arrived was reported as failed, or follows one that was."""
        got = set(self.got[receiver, sender[0], delivery])
        for promise in self.sent[sender, receiver[0], delivery]:
            if promise.failed and is_closed and delivery is not Delivery.DATAGRAM:
                break
            if (sender, receiver[0]) in self.robbed and (promise.excused or is_closed):
                # Both have started anew, with their users' knowledge; or the receiver was told that
                # it has lost sight of a peer that left, with messages missing that the goodbye
                # announced.
                continue
            assert promise.failed or promise.payload in got, (sender, receiver, delivery, promise)


def _stamp(life: Life) -> bytes:
    return b"%b/%d/" % life


def _number(data: bytes) -> tuple[int, int]:
    """The sender's incarnation and the message's number, from a payload."""
    _, incarnation, number = data.split(b"/")
    return int(incarnation), int(number)


# A liar's errors in the numbers of a member; the numbers of one life lie close together.
OFF = [-(2**25), -3, -1, 0, 1, 3, 2**25]


FAR = 1000  # further than any node gets in a story


def _is_given_up(gone: Host, others: list[Host]) -> bool:
    """Whether no other node counts it as a peer any more."""
    views = (host.machine.peers().get(gone.address) for host in others)
    return not any(view is not None and view.state is PeerState.JOINED for view in views)


def name(index: int, size: int = 3) -> bytes:
    return (b"N%02d" % index).ljust(size, b"-")


class Simulation:
    """One cluster and all its misfortunes, drawn by `rng`."""

    def __init__(
        self,
        seed: int,
        *,
        size: int | None = None,
        scars: bool = False,
        seeds: bool = False,
        pieces: bool = False,
        keys: bool = False,
        suspicion: bool = False,
        tags: bool = False,
        liars: bool = False,
        thieves: bool = False,
        rumours: bool = False,
        places: bool = False,
        narrow: bool = False,
    ) -> None:
        self.network = WatchedNetwork(seed=seed, keys=KEYS if keys else (), overhears=liars)
        self.rng = rng = self.network.random("story")
        self.size = size or rng.choices([2, 3, 4, 5, 6, 8, 16], [24, 36, 22, 11, 4, 2, 0.3])[0]
        if scars:
            # In a larger cluster a node in the middle would speak to each peer too rarely for these
            # times.
            self.size = min(self.size, _SCARRED_SIZE_MAX)
        if rumours:
            # the absent node, the deceived, and the node that is named as witness
            self.size = max(self.size, 3)
        few = self.network.random("places")
        if places:
            self.size = size or few.choice([3, 3, 4, 5, 6, _SCARRED_SIZE_MAX if pieces else 8])
        if narrow:
            self.size = size or few.choice([2, 2, 3])
            self.network.width = few.choice(WIDTHS)
        kinds = self.network.random("kinds")  # of nodes, apart from the story
        name_size = kinds.choice([3, 3, 3, LIMITS.sid_size_max]) if scars and not pieces else 3
        self.names = [name(index, name_size) for index in range(self.size)]
        self._strangers: set[bytes] = set()
        """A node with a long name, and one that takes no long names."""
        ids = self.network.random("ids")
        if places and self.size > 3 and ids.random() < 0.15:
            long, short = ids.sample(range(self.size), 2)
            self.names[long] = name(long, LIMITS.sid_size_max)
            self._strangers = {self.names[long], self.names[short]}
            self.network.sid_sizes[self.names[short]] = 3
        self.ledger = Ledger()
        self.cluster = Cluster(self.network, on_event=self._note)
        self.gone: set[bytes] = set()
        self._closed: list[Life] = []
        self._messages = 0
        self._scars = scars
        self._tree: set[tuple[bytes, bytes]] = set()  # of unbroken links, once others are broken
        self._narrow = narrow
        self._large = 0.1 if narrow else 0.0  # share of messages too large for the path
        self._seeds = seeds or narrow  # as portions of gossip may be too large
        self._pieces = pieces
        self._keys = keys
        self._timing = SUSPICION if suspicion else TIMING
        self._steps = dict.fromkeys(self.names, 0)  # in the key's replacement
        self._limits = dict.fromkeys(self.names, LIMITS)
        self._windows_differ = False
        if pieces:
            self._limits = {
                sid: rng.choice([rng.choice(PIECES)] * 3 + [NO_PIECES]) for sid in self.names
            }
            if kinds.random() < 0.25:  # windows should be the same, but need not be
                self._windows_differ = True
                for sid, limits in self._limits.items():
                    self._limits[sid] = replace(limits, window_max=kinds.choice([1, 2, 8]))
        self._liars = liars
        self._thieves = thieves
        self._rumours = rumours
        self._tags = tags
        if tags:
            for sid, limits in self._limits.items():
                self._limits[sid] = replace(limits, tags_size_max=rng.choice(TAGS_SIZES))
        self._places = places
        self._shape = few.choice(list(SHAPES))
        self._crowded = places and few.random() < 0.4
        if self._strangers:
            self._shape, self._crowded = "ring", False  # without a link it is a line
        if places:
            self._timing = replace(self._timing, usable_s=USABLE_S[self._shape])
            for sid, limits in self._limits.items():
                enough = self.size - 1 + few.choice([0, 0, 1])
                self._limits[sid] = replace(
                    limits,
                    candidates_max=few.choice([1, 1, 1, 2, 3]),
                    peers_max=few.choice([1, 2, 3]) if self._crowded else enough,
                    sid_size_max=self.network.sid_sizes.get(sid, LIMITS.sid_size_max),
                )
        self._even = places and self.network.random("delays").random() < 0.25  # all delays equal
        for sid in self.names:
            self.cluster.add(sid, self._build, start=False)

    # -- single moves -----------------------------------------------------------------------

    def boot(self, sid: bytes, helper: bytes | None) -> None:
        host = self.cluster[sid]
        host.start()
        if self._tags and self.rng.random() < 0.7:
            self._tag(host)
        if self._liars:
            for _ in range(8):
                pause = self.rng.uniform(0.0, 0.05)
                self.network.timetable.after(pause, lambda: self._forestall(sid))
        if self._seeds:
            for seed in self.names:
                if seed != sid:
                    self.network.introduce(sid, seed)
                    host.call("join", sid=seed, seed=True)
        elif helper is None:
            host.call("start")
        else:
            self.join(host, helper)

    def join(self, host: Host, helper: bytes) -> None:
        if self._places and host.machine.state in (State.LEAVING, State.CLOSED):
            return
        self.network.introduce(host.address, helper)
        try:
            host.call("join", sid=helper, seed=self._places)
        except LocalProtocolError as error:
            if error.code is not ErrorCode.PEERS_LIMIT:
                raise
            host.after(0.5, lambda: self.join(host, helper))

    def running(self) -> list[Host]:
        return [host for host in self.cluster if host.running]

    def correspondent(self, sid: bytes) -> bytes | None:
        """Any other node to write to; with few places, one that it has joined."""
        if not self._places:
            return self.helper(sid)
        views = self.cluster[sid].machine.peers()
        joined = [peer for peer, view in views.items() if view.state is PeerState.JOINED]
        return self.rng.choice(joined) if joined else None

    def helper(self, sid: bytes) -> bytes | None:
        others = [host.address for host in self.running() if host.address != sid]
        if self._tree:
            others = [other for other in others if (sid, other) in self._tree]
        return self.rng.choice(others) if others else None  # type: ignore[return-value]

    def send(
        self,
        host: Host,
        delivery: Delivery,
        to: bytes | None,
        group: str | None = None,
        padding: int = 0,
    ) -> bool:
        """Send, to all without `to` or `group`; false if a queue is full or no node is there."""
        life = (host.address, host.incarnation)
        payload = b"%b%d" % (_stamp(life), self._messages) + b" " * padding  # type: ignore[arg-type]
        self._messages += 1
        single, general = VERBS[delivery]
        joined = [
            sid for sid, view in host.machine.peers().items() if view.state is PeerState.JOINED
        ]
        targets = [to] if to is not None else joined
        if group is not None:
            targets = host.machine.group(group)
        if to is not None and to not in joined:
            return False
        if self._pieces and delivery is not Delivery.DATAGRAM and self.rng.random() < 0.3:
            padding = self.rng.choice([100, 300, 1_000, 2_000])
            ends = (host.address, to or host.address)
            if all(self._limits[sid].message_size_max for sid in ends):  # type: ignore[index]
                payload += b" " * padding
        if self._large and self.rng.random() < self._large:
            payload += b" " * PADDING
        # Noted before it is sent, as the answer may come within the call.
        promises = [Promise(0, payload) for _ in targets]
        for target, promise in zip(targets, promises, strict=True):
            self.ledger.note_sent(life, target, delivery, promise)  # type: ignore[arg-type]
        try:
            if group is not None:
                number = host.call("send_to_group", group=group, data=payload)
            elif to is not None:
                assert single is not None
                number = host.call(single, to=to, data=payload)
            else:
                assert general is not None
                number = host.call(general, data=payload)
        except LocalProtocolError as error:
            if error.code is not ErrorCode.QUEUE_FULL:
                raise
            for target in targets:
                self.ledger.sent[life, target, delivery].pop()  # type: ignore[index]
            return False
        for promise in promises:
            promise.number = number  # type: ignore[assignment]
        return True

    # -- the story -------------------------------------------------------------------------

    def run(self) -> Ledger:
        """Everything that happens, and the checks."""
        with self.network:
            if self._places:
                self._wall_in()
            self._grow()
            self._suffer()
            self._large = 0.0
            if self._windows_differ:
                self._fill_queues()
            self._recover()
            if self._rumours:
                self._hear_rumours()
            if self._thieves:
                self._talk_to_all()
            if self._narrow:
                self._squeeze()
            self._talk()
            living = [(host.address, host.incarnation) for host in self.running()]
            self.ledger.check(living, self._closed)  # type: ignore[arg-type]
            if not self._narrow:
                self._check_tags()
            if self._keys and self.rng.random() < 0.3:
                self._haunt()
            if self._keys:
                self._check_seals()
        return self.ledger

    def _grow(self) -> None:
        rng = self.rng
        if self._seeds:
            self._ask_in_vain()
        self._set_conditions(
            Conditions(
                loss=rng.choice([0.0, 0.02, 0.1, 0.3, 0.5]),
                duplication=rng.choice([0.0, 0.1, 0.5]),
                reordering=rng.choice([0.0, 0.1, 0.5]),
                delay_min=0.001,
                delay_max=rng.choice([0.002, 0.02, 0.1]),
                hold_max=rng.choice([0.05, 0.5]),
            )
        )
        for sid in self.names:
            if not self.cluster[sid].running:
                if sid != self.names[0]:
                    pause = rng.choice([0.0, 0.05, 0.5]) / self.size
                    self.network.run(self.network.clock.now + pause)
                self.boot(sid, self.helper(sid))

    def _set_conditions(self, conditions: Conditions) -> None:
        if self._even:
            conditions = replace(conditions, delay_min=conditions.delay_max)
        self.network.set_conditions(conditions)

    def _wall_in(self) -> list[tuple[bytes, bytes]]:
        """Let nodes be neighbours of few others; their links, those that lead to all first."""
        names = [sid for sid in self.names if sid not in self.gone]
        links = [(names[one], names[other]) for one, other in SHAPES[self._shape](len(names))]
        links = [link for link in links if set(link) != self._strangers]
        self._tree = {*links, *((other, one) for one, other in links)}
        pairs = {(one, other) for one in names for other in names if one != other}
        self.network.walls = pairs - self._tree
        return links

    def _ask_in_vain(self) -> None:
        """Some nodes exist before there is a network; the others follow after a while."""
        self.network.set_conditions(Conditions(loss=1.0))
        early = self.rng.choice([self.size, self.rng.randrange(self.size)])
        for sid in self.names[:early]:
            self.boot(sid, None)
        self.network.run(self.rng.choice([0.0, 6.0, 15.0]))

    def _suffer(self) -> None:
        rng = self.rng
        deeds: list[tuple[Callable[[], None], float]] = [
            (self._some_message, 12.0),
            (self._some_burst, 2.0),
            (self._some_cut, rng.choice([0.0, 1.0, 3.0])),
            (self._some_partition, rng.choice([0.0, 0.3])),
            (self.network.heal, rng.choice([0.0, 0.5])),
            (self._some_crash, rng.choice([0.0, 0.6])),
            (self._some_restart, 1.0),
            (self._some_goodbye, rng.choice([0.0, 0.15])),
            (self._some_replay, rng.choice([0.0, 0.0, 2.0])),
            (self._some_forgery, 1.0),
            *([(self._some_tags, 5.0), (self._some_group, 3.0)] if self._tags else []),
            *([(self._some_rekeying, 3.0), (self._some_intrusion, 3.0)] if self._keys else []),
            *([(self._some_lie, 4.0)] if self._liars else []),
            *([(self._some_theft, 2.0)] if self._thieves else []),
        ]
        end = self.network.clock.now + rng.choice([0.5, 1.0, 3.0] if self.size > 8 else [1, 3, 9])
        if self._places:
            end += rng.choice([0.0, 0.0, 20.0])
        rate = 12.0
        while self.network.clock.now < end:
            self.network.run(self.network.clock.now + rng.expovariate(rate))
            rng.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])[0]()

    def _recover(self) -> None:
        """Faults stop; in the end all nodes are joined with each other."""
        self.network.heal()
        self.network.thief = None
        self._set_conditions(
            Conditions(loss=self.rng.choice([0.0, 0.02, 0.1]), delay_min=0.001, delay_max=0.02)
        )
        if self._scars:
            self._meet_along(self._scar())
        elif self._places:
            self._meet_along(self._wall_in())
        else:
            for sid in self.names:
                if sid not in self.gone and not self.cluster[sid].running:
                    self.boot(sid, self.helper(sid))
            if not self._seeds:
                self._introduce()
        living = [host.address for host in self.running()]
        bound = SCARRED_BOUND_S if self._scars else JOIN_BOUND_S
        if self._pieces:
            bound = max(bound, PIECES_BOUND_S)
        if self._narrow:
            bound = NARROW_BOUND_S
        if self._places:
            bound = PLACES_BOUND_S
        done = self.network.run(self.network.clock.now + bound, done=self._every(0.25))
        assert done, {
            host.address: {
                sid: (view.state.name, view.queued)
                for sid, view in host.machine.peers().items()
                if view.state is not PeerState.JOINED or view.queued
            }
            | {sid: "unknown" for sid in living if sid not in {host.address, *host.machine.peers()}}
            for host in self.running()
        }

    def _fill_queues(self) -> None:
        """Much is left to be said at the end of bad weather, whose round trips were long."""
        for host in self.running():
            to = self.correspondent(host.address)  # type: ignore[arg-type]
            while to is not None and host.machine.state in (State.JOINING, State.ACTIVE):
                if not self.send(host, Delivery.IN_ORDER, to):
                    break

    def _hear_rumours(self) -> None:
        """A node is gone, and others are told that it is heard; after a while it is back."""
        rng, network = self.rng, self.network
        hosts = [host for host in self.running() if host.address not in self.gone]
        if len(hosts) < 3:
            return
        gone, *others = rng.sample(hosts, len(hosts))
        told = others[: rng.randrange(1, len(others))]
        for host in told:
            for _ in range(rng.randrange(1, 12)):
                to = gone.address
                delivery = rng.choice([Delivery.DATAGRAM, Delivery.IN_ORDER])
                self.send(host, delivery, to, padding=rng.choice([0, 600]))  # type: ignore[arg-type]
        if dies := rng.random() < 0.7:
            gone.crash()
        else:
            network.partition([gone.address], [host.address for host in others])
        network.fall_silent(gone.address, self._timing.usable_s + self._timing.give_up_s + 2.0)
        end = network.clock.now + rng.choice([10.0, 20.0])
        while network.clock.now < end:
            network.run(network.clock.now + rng.choice([0.5, 1.0, 2.0]))
            rumour = Gossip({others[-1].address: [EPOCH + network.clock.now]}, [gone.address])
            parcel = encode_parcel(Parcel(body=rumour))
            for host in told:
                network.replay((others[-1].address, host.address, parcel))
        if rng.random() < 0.5:
            assert network.run(
                network.clock.now + JOIN_BOUND_S, done=lambda: _is_given_up(gone, others)
            )
        network.speak()
        network.heal()
        if dies:
            self.boot(gone.address, others[-1].address)
        assert network.run(network.clock.now + JOIN_BOUND_S, done=self._every(0.25))

    def _squeeze(self) -> None:
        """Messages too large for the path fail alone; those in order do not wait for datagrams."""
        rng, network, begin = self.rng, self.network, self.network.clock.now
        living = {host.address for host in self.running()}
        for host in self.running():
            to = self.helper(host.address)  # type: ignore[arg-type]
            if to is not None:
                for _ in range(rng.randrange(30)):
                    self.send(host, Delivery.DATAGRAM, to, padding=PADDING)
        network.run(network.clock.now + rng.choice([0.0, 0.1, 5.0]))
        for host in self.running():
            to = self.helper(host.address)  # type: ignore[arg-type]
            if to is not None:
                self.send(host, Delivery.IN_ORDER, to)
            self.send(host, Delivery.IN_ORDER_BROADCAST, None)
        in_order = partial(self._is_told, [Delivery.IN_ORDER, Delivery.IN_ORDER_BROADCAST])
        assert network.run(network.clock.now + 20.0, done=in_order)
        for host in self.running():
            delivery = rng.choice([Delivery.IN_ORDER, Delivery.IN_ORDER_BROADCAST])
            to = self.helper(host.address) if delivery is Delivery.IN_ORDER else None  # type: ignore[arg-type]
            self.send(host, delivery, to, padding=rng.choice([0, PADDING]))
            self.send(host, delivery, to)
        told = partial(self._is_told, list(Delivery))
        assert network.run(network.clock.now + 100.0, done=told)
        for host in self.running():
            for time, event in host.events:
                lost = time > begin and isinstance(event, PeerUnreachable)
                assert not (lost and event.peer in living), (host.address, event)
        # What was repeated until a moment ago may have had two of them start anew.
        assert network.run(network.clock.now + JOIN_BOUND_S, done=self._every(0.25))

    def _is_told(self, deliveries: list[Delivery]) -> bool:
        """Whether the fate of all messages with these deliveries is known to their users."""
        return not any(
            self.ledger.owes((host.address, host.incarnation), sid, deliveries)  # type: ignore[arg-type]
            for host in self.running()
            for sid in self.names
        )

    def _talk(self) -> None:
        """Whatever happened before, every message sent from now on arrives."""
        rng = self.rng
        for host in self.running():
            for delivery in (Delivery.DATAGRAM, Delivery.IN_ORDER_BROADCAST):
                assert self.send(host, delivery, None)
            to = self.correspondent(host.address)  # type: ignore[arg-type]
            if to is not None:
                for delivery in (Delivery.DATAGRAM, *[Delivery.IN_ORDER] * rng.randrange(1, 4)):
                    assert self.send(host, delivery, to)
        # Of seven links in a row, each losing a tenth, all hold for a message and its answer once
        # in four times.
        bound = PLACES_BOUND_S if self._places else JOIN_BOUND_S
        assert self.network.run(self.network.clock.now + bound, done=self._every(0.1))

    def _talk_to_all(self) -> None:
        """A node that still waits for stolen messages notices now."""
        for host in self.running():
            for other in self.running():
                if other is not host:
                    self.send(host, Delivery.IN_ORDER, other.address)  # type: ignore[arg-type]
            self.send(host, Delivery.IN_ORDER_BROADCAST, None)
        assert self.network.run(self.network.clock.now + JOIN_BOUND_S, done=self._every(0.1))

    def _every(self, seconds: float) -> Callable[[], bool]:
        """Whether all are joined, no message waits, and no node; looked at from time to time."""
        due = self.network.clock.now

        def check() -> bool:
            nonlocal due
            if self.network.clock.now < due:
                return False
            due = self.network.clock.now + seconds
            hosts = self.running()
            return all(self._is_settled(host, hosts) for host in hosts)

        return check

    def _is_settled(self, host: Host, hosts: list[Host]) -> bool:
        if host.address in self.gone:
            return False
        peers = host.machine.peers()
        if self._places or self._narrow:  # where questions are on their way all the time, or tags
            life = host.address, host.incarnation
            if any(self.ledger.owes(life, sid) for sid in peers):  # type: ignore[arg-type]
                return False
        elif any(view.state is PeerState.JOINED and view.queued for view in peers.values()):
            return False  # perhaps to a node that is gone, and not given up yet
        if any(view.state is PeerState.JOINED and view.early for view in peers.values()):
            return False  # it waits for messages that others may not have
        if self._crowded:
            joined = {sid for sid, view in peers.items() if view.state is PeerState.JOINED}
            return all(self._counts(host, sid) for sid in joined)
        return all(
            other is host
            or {other.address, host.address} == self._strangers
            or (other.address in peers and peers[other.address].state is PeerState.JOINED)
            for other in hosts
        )

    def _counts(self, host: Host, sid: bytes) -> bool:
        """Whether node `sid` counts `host` as joined."""
        other = self.cluster[sid]
        view = other.machine.peers().get(host.address) if other.running else None
        return view is not None and view.state is PeerState.JOINED

    def _introduce(self) -> None:
        """Introduce nodes to each other that have no common acquaintance at all.

        A node that never joined is soon forgotten, and is no acquaintance.
        """
        hosts = [host for host in self.running() if host.address not in self.gone]
        knows: dict[Host, set[Host]] = {host: set() for host in hosts}
        for host in hosts:
            for sid, view in host.machine.peers().items():
                other = self.cluster.nodes.get(sid)
                if view.state in (PeerState.JOINED, PeerState.GIVEN_UP) and other in knows:
                    knows[host].add(other)
                    knows[other].add(host)
        reached: set[Host] = set()
        for host in hosts:
            if reached and host not in reached:
                self.join(host, hosts[0].address)  # type: ignore[arg-type]
            frontier = {host}
            while frontier:
                reached |= frontier
                frontier = {other for at in frontier for other in knows[at]} - reached

    def _scar(self) -> list[tuple[bytes, bytes]]:
        """Cut links for good, except those of a random tree, whose edges are returned."""
        rng = self.rng
        names = [sid for sid in self.names if sid not in self.gone]
        rng.shuffle(names)
        # At most four links between any two nodes: news must not be stale on arrival.
        branches = max(1, len(names) // 3)
        tree = [(names[0], sid) for sid in names[1 : branches + 1]]
        tree += [(names[rng.randrange(branches + 1)], sid) for sid in names[branches + 1 :]]
        share = rng.choice([0.3, 0.7, 1.0])
        for one, other in combinations(sorted(names), 2):
            if not {(one, other), (other, one)} & set(tree) and rng.random() < share:
                self.network.cut(*rng.sample([one, other], 2), one_way=rng.random() < 0.3)
        return tree

    def _meet_along(self, tree: list[tuple[bytes, bytes]]) -> None:
        """Introduce nodes to each other that have an unbroken link between them."""
        first = [(sid, None) for sid, _ in tree[:1]]  # none if only two strangers are left
        for sid, helper in [*first, *((sid, helper) for helper, sid in tree)]:
            host = self.cluster[sid]
            if helper is not None:
                self._tree |= {(sid, helper), (helper, sid)}
            if not host.running:
                self.boot(sid, helper)
            elif helper is not None:
                self.join(host, helper)

    # -- single deeds ----------------------------------------------------------------------

    def _some_host(self) -> Host | None:
        hosts = [host for host in self.running() if host.address not in self.gone]
        return self.rng.choice(hosts) if hosts else None

    def _some_message(self) -> None:
        host = self._some_host()
        if host is not None and host.machine.state is not State.IDLE:
            delivery = self.rng.choice(list(Delivery))
            single, general = VERBS[delivery]
            to = None
            if single is not None and (general is None or self.rng.random() < 0.8):
                to = self.correspondent(host.address)  # type: ignore[arg-type]
                if to is None:
                    return
            self.send(host, delivery, to)

    def _some_burst(self) -> None:
        host = self._some_host()
        to = None if host is None else self.correspondent(host.address)  # type: ignore[arg-type]
        if host is not None and to is not None:
            for _ in range(self.rng.randrange(2, 20)):
                if not self.send(host, Delivery.IN_ORDER, to):
                    break

    def _some_cut(self) -> None:
        if self.size > 1:
            one, other = self.rng.sample(self.names, 2)
            self.network.cut(one, other, one_way=self.rng.random() < 0.4)

    def _some_partition(self) -> None:
        names = self.rng.sample(self.names, self.size)
        at = self.rng.randrange(1, self.size)
        self.network.partition(names[:at], names[at:], one_way=self.rng.random() < 0.3)

    def _some_crash(self) -> None:
        host = self._some_host()
        if host is not None and len(self.running()) > 1:
            host.crash()

    def _some_restart(self) -> None:
        down = [sid for sid in self.names if sid not in self.gone and not self.cluster[sid].running]
        if down:
            sid = self.rng.choice(down)
            self.boot(sid, self.helper(sid))

    def _some_goodbye(self) -> None:
        host = self._some_host()
        if host is not None and len(self.names) - len(self.gone) > 2:
            self.gone.add(host.address)  # type: ignore[arg-type]
            host.call("leave")

    def _some_replay(self) -> None:
        """A synchronize message from some earlier time arrives again, and again."""
        if self.network.starts:
            start = self.rng.choice(self.network.starts)
            for count in range(12):
                self.network.timetable.after(count * 0.5, lambda: self.network.replay(start))

    def _some_forgery(self) -> None:
        """A stranger tries to have victims flooded that have no part in this.

        It speaks in their name, or tells of them in the name of a member.
        """
        rng = self.rng
        to, member = rng.choices(self.names, k=2)
        seconds = EPOCH + self.network.clock.now
        victims = [b"%b%02d" % (VICTIM, number) for number in range(rng.choice([1, 3, 20]))]
        victim = rng.choice(victims)
        body = rng.choice(
            [
                MessageData(rng.choice([to, member]), victim, rng.choice([None, 1]), b""),
                MessageData(to, victim, 1, write_message(Synchronize(0, 0))),
                Gossip({victim: [seconds]}, [member]),
                Gossip({member: [seconds] * len(victims)}, victims),
                Gossip({b"V99": [seconds]}, [b"V98"]),
            ]
        )
        source = rng.choice([victim, member])
        self.network.replay((source, to, encode_parcel(Parcel(rng.choice([None, 5]), None, body))))

    def _numbers_of(self, member: bytes, to: bytes) -> tuple[int, int] | None:
        """The last numbers it has sent to `to` in order, if it is running and knows that node."""
        host = self.cluster[member]
        known = host.running and to in host.machine.peers()
        return self.network.numbers.get((member, to)) if known else None

    def _some_lie(self) -> None:
        """A stranger says in a member's name that it starts anew, goes on, or leaves.

        It may have overheard the number that a goodbye has to name.
        """
        rng = self.rng
        member, to = rng.choices(self.names, k=2)
        numbers = self._numbers_of(member, to)
        if member == to or numbers is None:
            return
        broadcast, one = (rng.choice([number + rng.choice(OFF), 2**62]) for number in numbers)
        named = self._numbers_of(to, member)
        message: Message = rng.choice(
            [
                Synchronize(broadcast, one, known=rng.choice([0, one])),
                Finalize(broadcast, one, known=rng.choice([0, named[1] if named else one])),
            ]
        )
        parcel = encode_parcel(Parcel(body=MessageData(to, member, 1, write_message(message))))
        self.network.replay((member, to, parcel))

    def _forestall(self, sid: bytes) -> None:
        """A stranger announces members' first numbers, perhaps before they are heard themselves.

        Its numbers are ahead of their broadcasts: a node that believes it for good misses the next
        one.  And they are below those sent to `sid` alone: a liar that knows that number is
        believed for good.
        """
        for member in self.names:
            numbers = self._numbers_of(member, sid)
            if member != sid and numbers is not None:
                start = write_message(Synchronize(numbers[0] + FAR, numbers[1] - FAR))
                parcel = encode_parcel(Parcel(body=MessageData(sid, member, 1, start)))
                self.network.replay((member, sid, parcel))

    def _some_theft(self) -> None:
        """A few of the next messages in order are stolen, and acknowledged all the same."""
        left, rng = self.rng.randrange(1, 4), self.rng

        def take(body: MessageData) -> bool:
            nonlocal left
            message = read_message(body.d)
            sender = self.cluster.nodes.get(body.fr)
            if (
                not left
                or body.id is None
                or sender is None
                or not isinstance(message, OneToOne | Broadcast)
                or rng.random() < 0.5
            ):
                return False
            left -= 1
            self.ledger.robbed.add(((body.fr, sender.incarnation), body.to))
            thanks = encode_parcel(Parcel(body=MessageAck(body.fr, body.to, body.id)))
            replay = partial(self.network.replay, (body.to, body.fr, thanks))
            self.network.timetable.after(0.002, replay)
            return True

        self.network.thief = take

    def _some_tags(self) -> None:
        host = self._some_host()
        if host is not None:
            self._tag(host)

    def _tag(self, host: Host) -> None:
        """It describes itself differently, or no longer at all, if it takes tags itself."""
        rng = self.rng
        topics = rng.sample(TOPICS, rng.randrange(len(TOPICS) + 1))
        tags = {topic: "x" * rng.choice([0, 0, 3, 12, 25]) for topic in topics}
        if fits(tags, self._limits[host.address].tags_size_max):  # type: ignore[index]
            host.call("set_tags", tags=tags)  # type: ignore[arg-type]

    def _some_group(self) -> None:
        """A node joins a group, leaves it, or sends something to it."""
        host, rng = self._some_host(), self.rng
        if host is None or not self._limits[host.address].tags_size_max:  # type: ignore[index]
            return
        group = rng.choice(TOPICS)
        verb = rng.choice(["join_group", "leave_group", "send"])
        if verb == "send":
            if host.machine.state is not State.IDLE:
                self.send(host, Delivery.IN_ORDER, None, group)
        elif fits({**host.machine.tags, group: ""}, self._limits[host.address].tags_size_max):  # type: ignore[index]
            host.call(verb, group=group)

    def _check_tags(self) -> None:
        """All nodes that take tags know the present tags of all others, and told their users."""
        for host in self.running():
            views, life = host.machine.peers(), (host.address, host.incarnation)
            size_max = self._limits[host.address].tags_size_max  # type: ignore[index]
            for other in self.running():
                if {host.address, other.address} in ({host.address}, self._strangers):
                    continue
                if not self._crowded or self._counts(other, host.address):
                    said = other.machine.tags
                    expected = said if size_max and fits(said, size_max) else {}
                    known = views[other.address].tags
                    assert known == expected, (host.address, other.address, known, expected)
                    assert self.ledger.tags[life, other.address] == expected, (life, other.address)  # type: ignore[index]

    def _haunt(self) -> None:
        """A node lives three times and falls silent; then all its former messages are replayed."""
        hosts = self.running()
        host = self.rng.choice(hosts)
        self.network.starts.clear()
        for _ in range(3 if len(hosts) > 1 else 0):
            host.crash()
            self.boot(host.address, self.helper(host.address))  # type: ignore[arg-type]
            self.network.run(self.network.clock.now + 1.0)
        host.crash()
        self.network.run(self.network.clock.now + 2 * self._timing.usable_s)
        for start in self.network.starts:
            self.network.replay(start)
        self.network.run(self.network.clock.now + 1.0)

    def _check_seals(self) -> None:
        """No node has accepted a datagram twice, or one that was not sealed for it."""
        for host in self.running():
            dropped = host.machine.dropped
            refused = sum(dropped[reason] for reason in REFUSALS)
            worthless = self.network.worthless[host.address]
            assert refused >= worthless, (host.address, refused, worthless)

    def _some_rekeying(self) -> None:
        """A node takes the next step to another key; if it is down, in its configuration."""
        step = min(self._steps.values())
        sid = self.rng.choice([sid for sid in self.names if self._steps[sid] == step])
        if step + 1 < len(STEPS):
            self._steps[sid] = step + 1
            if self.cluster[sid].running:
                self.cluster[sid].call("rekey", keys=STEPS[step + 1])

    def _some_intrusion(self) -> None:
        """A stranger without the key sends a member's messages, invented or recorded."""
        rng = self.rng
        source, to = rng.choices(self.names, k=2)
        if self.network.starts and rng.random() < 0.7:
            one, other, datagram = rng.choice(self.network.starts)
            if rng.random() < 0.3:
                at = rng.randrange(len(datagram))
                datagram = datagram[:at] + rng.randbytes(1) + datagram[at + 1 :]
            self.network.replay(rng.choice([(source, to, datagram), (one, other, datagram)]))
            return
        message: Message = rng.choice(
            [Synchronize(0, 2**62), Finalize(0, 0), OneToOne(1, INTRUSION), Datagram(INTRUSION)]
        )
        parcel = encode_parcel(Parcel(body=MessageData(to, source, 1, write_message(message))))
        if rng.random() < 0.5:
            # Of a life that would be heard: messages of others are dropped before their seals are
            # checked.
            began = EPOCH + self.network.clock.now + rng.choice([-1.0, 0.0, 60.0])
            nonce = int(1000 * began).to_bytes(6) + rng.randbytes(18)
            parcel = close_box(parcel, nonce, key=bytes(32), source=source, to=to)
        self.network.replay((source, to, parcel))

    # -- reports of the cluster -------------------------------------------------------------

    def _build(self, host: Host) -> Node:
        rng = self.network.random(f"{host.address!r} {host.incarnation}")
        return captures.make(
            Node,
            me=host.address,  # type: ignore[arg-type]
            rng=rng,
            epoch=EPOCH - (rng.choice(SETBACKS) if self._keys and host.incarnation > 1 else 0.0),
            limits=self._limits[host.address],  # type: ignore[index]
            timing=self._timing,
            keys=STEPS[self._steps[host.address]] if self._keys else (),  # type: ignore[index]
        )

    def _note(self, host: Host, event: Event) -> None:
        self.ledger.note((host.address, host.incarnation), event)  # type: ignore[arg-type]
        if isinstance(event, PeerLeft) and event.reason is LeaveReason.OUT_OF_STEP:
            robbed = {(sender, to) for (sender, _), to in self.ledger.robbed}
            assert self._liars or (event.peer, host.address) in robbed, (host.address, event)
        if isinstance(event, Closed):
            self._closed.append((host.address, host.incarnation))  # type: ignore[arg-type]
            host.after(0.0, host.crash)
        if (
            isinstance(event, PeerUnreachable)
            and host.machine.state is State.JOINING
            and not (self._seeds or self._places)
        ):
            host.after(0.1, lambda: self._ask_again(host))
        elif (
            isinstance(event, PeerUnreachable)
            and (host.address, event.peer) in self._tree
            and not self._places  # where it is a seed
        ):
            host.after(0.1, lambda: self.join(host, event.peer))

    def _ask_again(self, host: Host) -> None:
        helper = self.helper(host.address)  # type: ignore[arg-type]
        if helper is not None and host.machine.state is State.JOINING:
            self.join(host, helper)


@captures.of_failures
def simulate(
    seed: int,
    *,
    size: int | None = None,
    scars: bool = False,
    seeds: bool = False,
    pieces: bool = False,
    keys: bool = False,
    suspicion: bool = False,
    tags: bool = False,
    liars: bool = False,
    thieves: bool = False,
    rumours: bool = False,
    places: bool = False,
    narrow: bool = False,
) -> Simulation:
    """Run the story of `seed`; raises `AssertionError` with the seed as a note."""
    simulation = Simulation(
        seed,
        size=size,
        scars=scars,
        seeds=seeds,
        pieces=pieces,
        keys=keys,
        suspicion=suspicion,
        tags=tags,
        liars=liars,
        thieves=thieves,
        rumours=rumours,
        places=places,
        narrow=narrow,
    )
    simulation.run()
    return simulation
