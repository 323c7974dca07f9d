"""A peer of a replicator that keeps every rule of the wire, and acts at random.

It is a bare `Connection`, and proposes, confirms, narrows, sends, passes over and cancels as it
likes, by any of three branches of each log.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import cast

from replicator_support import End, Node, World, news_of
from replicator_whims import LENGTH

from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.forks import find_fork
from culm.bamboo.links import lipmaa
from culm.bamboo.records import NewEntry
from culm.bamboo.store import MemoryStore
from culm.machine import LocalProtocolError
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    CancelReason,
    Connection,
    Eagerness,
    EntryWanted,
    HashWanted,
    Mode,
    Proposal,
    Request,
    Role,
    SkipReason,
    payloads_up_to,
)
from culm.point2point.messages import Changes, Wishes
from culm.point2point.pieces import Part, Piece
from culm.point2point.replication import Interest, Replicator, ReplicatorLimits
from culm.point2point.states import RequestState
from culm.wire.multihash import YAMF
from culm.wire.varu64 import MAX

_SIZES = (0, 1, 5, 20, 63, 64, 65, 130)
_FORKS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 17, 18, 20, 23, 24)
_REASONS = (*CancelReason, CancelReason.FORK)

Branches = tuple[tuple[NewEntry, ...], ...]


def branches(number: int, forks: tuple[int, ...]) -> Branches:
    """A log, and the branches that part from it at these entries."""
    sizes = tuple(Random(number).choices(_SIZES, k=LENGTH))
    parted = [news_of(sizes, log_id=number, branch=b"%d" % at, fork_at=at) for at in forks]
    return (news_of(sizes, log_id=number), *parted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """A kind of world.

    `forks`: where the branches of each log part, if any do; `length`: the entries that peers have;
    `main`: the branch that they take mostly; `cancels`, `adjusts`, `fails`: how often a request is
    cancelled or narrowed, or the store fails; `clocks`: time passes for the peers, too.
    """

    forks: tuple[tuple[int, ...], ...]
    sessions: int
    steps: int
    length: int
    main: int
    cancels: float
    adjusts: float
    fails: float
    progress_max_s: float
    late: bool
    clocks: bool
    tight: bool
    greedy: bool

    @classmethod
    def of(cls, rng: Random) -> Draws:
        places = _FORKS if rng.random() < 0.8 else (LENGTH + 1,)
        forks = [tuple(rng.choices(places, k=2)) for _ in range(rng.choice((1, 1, 2, 4)))]
        return cls(
            forks=tuple(forks),
            sessions=rng.choice((1, 1, 2)),
            steps=rng.choice((100, 400, 1200)),
            length=rng.choice((LENGTH, LENGTH, rng.randint(1, LENGTH))),
            main=rng.choice((0, 0, 1)),
            cancels=rng.choice((0.005, 0.02, 0.1)),
            adjusts=rng.choice((0.0, 0.02, 0.1)),
            fails=rng.choice((0.0, 0.0, 0.0, 0.005)),
            progress_max_s=rng.choice((20, 60)),
            late=rng.random() < 0.6,
            clocks=rng.random() < 0.5,
            tight=rng.random() < 0.6,
            greedy=rng.random() < 0.4,
        )


class PeerNode(Node):
    """Where a peer lives; its store stays empty."""

    def __init__(
        self, world: World, draws: Draws, logs: dict[LogKey, Branches], whims: Random
    ) -> None:
        store = MemoryStore(family=YAMF)
        super().__init__(world, store, interest=Interest(), limits=ReplicatorLimits())
        self.draws, self.logs, self.whims = draws, logs, whims

    def open(self, role: Role) -> Peer:
        connection = Connection(
            role=role, setup=self.setup, limits=self.limits.connection, timing=self.timing
        )
        end = Peer(self, connection)
        self.ends.append(end)
        connection.advance(self.world.now)
        return end


class Peer(End):
    """It knows all branches of all logs, and does anything that the wire allows."""

    def __init__(self, node: PeerNode, connection: Connection) -> None:
        super().__init__(node, cast(Replicator, connection))  # as far as a world uses one
        self.connection = connection
        self.rng, self.draws, self.logs = node.whims, node.draws, node.logs
        self._wanted: deque[tuple[Request, HashWanted | EntryWanted]] = deque()
        self._branches: dict[Request, int] = {}

    def drain(self) -> None:
        sent = True
        while sent:
            while (event := self.connection.next_event()) is not None:
                self._take(event)
                if isinstance(event, (HashWanted, EntryWanted)):
                    self._wanted.append((self.connection.request(event.request_id), event))
            sent = self._send()

    def act(self) -> None:
        """Try something, which may be against the rules of the wire, and is refused then."""
        requests = list(self.connection.requests.values())
        with suppress(LocalProtocolError):
            if self._wanted and self._chance(0.5):
                self._answer(*self._wanted.popleft())
            elif not requests or self._chance(0.06):
                self._propose()
            else:
                self._go_on(self.rng.choice(requests))
        self.drain()

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # What it knows.

    def _any_branch(self) -> int:
        return self.rng.randrange(3) if self._chance(0.4) else self.draws.main

    def _news(self, request: Request) -> tuple[NewEntry, ...]:
        """The branch that it follows in that request."""
        branch = self._branches.setdefault(request, self._any_branch())
        return self.logs[request.proposal.log][branch]

    def _any_eagerness(self) -> Eagerness:
        return self.rng.choice((EVERYTHING, EVERYTHING, NOTIFY, payloads_up_to(20)))

    def _answer(self, request: Request, wanted: HashWanted | EntryWanted) -> None:
        news = self._news(request)
        if self._chance(0.1) or wanted.seqnum > LENGTH:
            request.pass_over()
        elif isinstance(wanted, HashWanted):
            request.provide_hash(wanted.seqnum, _hash(news, wanted.seqnum))
        else:
            request.provide_entry(news[wanted.seqnum - 1].entry)

    # On the control channel.

    def _propose(self) -> None:
        log, branch = self.rng.choice(list(self.logs)), self._any_branch()
        news = self.logs[log][branch]
        known = _links(news) if self._chance(0.8) else None
        request = self.connection.propose(self._any_proposal(log, news), links=known)
        self._branches[request] = branch

    def _any_proposal(self, log: LogKey, news: tuple[NewEntry, ...]) -> Proposal:
        rng = self.rng
        first = rng.choice((1, 1, 2, *[rng.randint(1, LENGTH)] * 2, LENGTH))
        last = rng.choice((None, None, first, rng.randint(first, LENGTH)))
        link = _hash(news, lipmaa(first)) if first > 1 else None
        wishes: Wishes = {
            "eagerness": self._any_eagerness(),
            "payload_mandatory": self._chance(0.1),
            "size_max": rng.choice((MAX, MAX, 0, 30)),
        }
        if self._chance(0.25):
            size = news[first - 1].entry.payload_size
            offset = rng.choice((0, min(1, size), size // 2, size))
            hash = _hash(news, first)
            return Proposal.of_payload(log, first, offset=offset, hash=hash, **wishes)
        wishes["payload_only"] = self._chance(0.15)
        if last is not None:
            wishes["sparse"] = self._chance(0.4)
            if self._chance(0.4):
                newest = rng.choice((first, LENGTH))
                return Proposal.of_certified_range(log, first, last, newest=newest, **wishes)
        return Proposal.of_range(log, first, last, link=link, **wishes)

    def _go_on(self, request: Request) -> None:
        if self._chance(self.draws.cancels):
            self._cancel(request)
        elif request.state is RequestState.PROPOSED_BY_PEER:
            if self._chance(0.5):
                self._confirm(request)
        elif request.state is RequestState.CONFIRMED:
            if self._chance(self.draws.adjusts):
                self._adjust(request)
            for _ in range(self.rng.choice((1, 1, 4))):
                self._send_next(request)

    def _confirm(self, request: Request) -> None:
        """Unless its branch is another one."""
        news, proposal = self._news(request), request.proposal
        expected = proposal.expected_seqnum
        if expected and _hash(news, expected) != proposal.expected_hash:
            request.cancel(CancelReason.HASH_MISMATCH, entry=news[expected - 1].entry)
            return
        end = self.rng.randint(1, LENGTH)
        changes: Changes = {"end": end, "upper_certpool": end} if self._chance(0.15) else {}
        changes["allow_skipping"] = self._chance(0.5)
        request.confirm(self._any_eagerness(), links=_links(news), **changes)

    def _adjust(self, request: Request) -> None:
        end = self.rng.randint(1, LENGTH)
        ends: Changes = {"end": end, "upper_certpool": end}
        sizes: Changes = {"size_max": self.rng.choice((0, 20, 100))}
        changes = self.rng.choice((ends, ends, sizes, Changes(allow_skipping=True), Changes()))
        request.adjust(eagerness=None if changes else self._any_eagerness(), **changes)

    def _cancel(self, request: Request) -> None:
        """For any reason, with what goes with it."""
        reason = self.rng.choice(_REASONS)
        log, first = request.proposal.log, request.proposal.first_seqnum
        entry: Entry | None = None
        seqnum = proof = None
        if reason is CancelReason.HASH_MISMATCH:
            seen = max(1, min(LENGTH, request.proposal.expected_seqnum))
            entry = self.rng.choice(self.logs[log])[seen - 1].entry
        elif reason is CancelReason.END_OF_LOG:
            seqnum = self.rng.choice((1, max(1, first - 1), self.rng.randint(1, LENGTH)))
        elif reason is CancelReason.FORK:
            at = min(self.rng.randint(1, LENGTH), self.rng.choice((first, LENGTH)))
            one, other = self.rng.sample(self.logs[log], 2)
            proof = find_fork(one[at - 1].entry, other[at - 1].entry)
        request.cancel(reason, entry=entry, seqnum=seqnum, proof=proof)

    # On the data channel.

    def _send_next(self, request: Request) -> None:
        piece = request.send_cursor.piece
        if request.apology_owed:
            request.apologize()
        elif piece is None:
            if self._chance(0.3):
                request.cancel(CancelReason.END_OF_RANGE)
        elif request.behind and self._chance(0.7):
            request.notify(request.behind if self._chance(0.9) else 1)
        elif self._chance(0.06):
            self._pass_over(request)
        elif piece.seqnum <= self.draws.length:
            self._send_piece(request, piece)

    def _pass_over(self, request: Request) -> None:
        """With whatever is not due, as a rule."""
        match self.rng.choice(("skip", "jump", "notify")):
            case "skip":
                request.skip_payload(SkipReason.UNAVAILABLE)
            case "jump":
                request.jump(self.rng.choice((1, 5, 30)))
            case _:
                request.notify(self.rng.choice((1, 1, 2, 5, LENGTH, 1 << 63)))

    def _send_piece(self, request: Request, piece: Piece) -> None:
        demand, new = request.peer_demand, self._news(request)[piece.seqnum - 1]
        assert demand is not None
        size = new.entry.payload_size
        if piece.part is Part.METADATA:
            if demand.eagerness.wants_metadata:
                request.send_metadata(new.entry)
            else:
                request.notify()
        elif not demand.size_min <= size <= demand.size_max:
            too = SkipReason.TOO_LARGE if size > demand.size_max else SkipReason.TOO_SMALL
            request.skip_payload(too)
        elif not demand.eagerness.wants_payload(size):
            request.notify()
        else:
            self._send_payload(request, new)

    def _send_payload(self, request: Request, new: NewEntry) -> None:
        session, offset = self.connection.session, request.send_cursor.offset
        assert session is not None
        data = (new.payload or b"")[offset:]
        if session.send_mode is Mode.GREEDY and offset == 0 and self._chance(0.05):
            data = bytes(len(data))  # an apology is owed for it
        elif self._chance(0.3):
            data = data[: max(1, len(data) // 2)]
        request.send_payload(data, entry=new.entry if request.due_entry is None else None)


def _hash(news: tuple[NewEntry, ...], seqnum: int) -> bytes:
    return news[seqnum - 1].entry.hash()


def _links(news: tuple[NewEntry, ...]) -> dict[int, bytes]:
    return {new.entry.seqnum: new.entry.hash() for new in news}
