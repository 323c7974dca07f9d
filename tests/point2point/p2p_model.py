"""A dumb model of two connections and everything that their users may do.

`Sent` keeps the position of a sender, with lists; `Player` is one user, who knows the legal moves
and makes no others; `Duel` is both of them and the bytes under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from p2p_snapshots import request_as_it_is
from p2p_support import stored
from range_twin import METADATA, PAYLOAD, Place, index_after, pieces

from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import lipmaa, lower_pool, upper_pool
from culm.bamboo.records import NewEntry
from culm.machine import Closed, Event, LocalProtocolError
from culm.machines.sample_logs import make_log
from culm.point2point import (
    EVERYTHING,
    NOTIFY,
    Adjusted,
    Apologized,
    Cancelled,
    CancelReason,
    Confirmed,
    Connection,
    EntriesReceived,
    EntryWanted,
    ErrorCode,
    ForkSuspected,
    HashWanted,
    IdFreed,
    Limits,
    MetadataReceived,
    Mode,
    PayloadReceived,
    Proposal,
    ProposalDropped,
    Proposed,
    Request,
    RequestEnded,
    RequestState,
    Role,
    Setup,
    SkipReason,
    State,
    payloads_up_to,
)
from culm.wire.multihash import YAMF
from culm.wire.varu64 import MAX

Log = Mapping[int, NewEntry]
Step = tuple[int | None, str, tuple[Any, ...], dict[str, Any]]


def _four_logs(**options: Any) -> dict[LogKey, Log]:
    logs = (make_log(YAMF, log_id, 45, **options) for log_id in range(4))
    return {log[0].entry.log: {new.entry.seqnum: new for new in log} for log in logs}


LOGS, FORKS = _four_logs(), _four_logs(branch=b"other")
WHOLE = 1 << 64
T = TypeVar("T")
Action = Callable[[], object]


class Dice:
    """Choices; shrunk examples take the first options."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = list(numbers)

    def below(self, count: int) -> int:
        return self._numbers.pop() % count if self._numbers else 0

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, one_in: int) -> bool:
        return self.below(one_in) == one_in - 1


class Sent:
    """Everything that one endpoint has sent for one request."""

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal
        self.end, self.upper = proposal.end, proposal.upper_certpool
        self.pieces = pieces(proposal, self.end, self.upper)
        self.index = 0
        self.offset = self.start_of(self.due)
        self.metadata: set[int] = set()
        self.bad = False  # the payload so far has wrong bytes
        self.owed: Place | None = None  # something sent that is invalid as a whole
        self.apologized: Place | None = None
        self.jumped = False  # within the payload that is due
        self.unsure = False  # whether the last thing sent is valid cannot be known

    @property
    def due(self) -> Place | None:
        return self.pieces[self.index] if self.index < len(self.pieces) else None

    def start_of(self, piece: Place | None) -> int:
        inside = piece == (self.proposal.start, PAYLOAD)
        return (self.proposal.start_offset or 0) if inside else 0

    def move(self, index: int) -> None:
        self.index = index
        self.offset = self.start_of(self.due)
        self.bad = self.jumped = self.unsure = False

    def retarget(self, end: int | None, upper: int | None) -> None:
        last = self.pieces[self.index - 1] if self.index else None
        due, offset, kept = self.due, self.offset, (self.bad, self.jumped)
        unsure = self.unsure
        if end is not None and (self.end is None or end < self.end):
            self.end = end
        if upper is not None and (self.upper is None or upper < self.upper):
            self.upper = upper
        self.pieces = pieces(self.proposal, self.end, self.upper)
        self.move(index_after(self.pieces, last))
        if self.due == due:
            self.offset, (self.bad, self.jumped) = offset, kept
        elif offset > self.start_of(due):
            self.owed, unsure = None, False
        self.unsure = unsure

    def passed_by(self, place: tuple[int, int, int]) -> int:
        """The number of pieces that come before a place of the other endpoint."""
        seqnum, part, amount = place
        return sum(
            p <= (seqnum, part) if amount == WHOLE else p < (seqnum, part) for p in self.pieces
        )


class Game:
    """One request as one player sees it."""

    def __init__(self, request: Request, entries: Log, *, mine: bool) -> None:
        self.request = request
        self.entries = entries
        self.proposal = request.proposal
        self.sent = Sent(request.proposal)
        self.state = RequestState.PROPOSED_BY_US if mine else RequestState.PROPOSED_BY_PEER
        self.got_metadata: set[int] = set()
        self.bytes: dict[int, bytearray] = {}

    def entry(self, seqnum: int) -> Entry:
        return self.entries[seqnum].entry

    def payload(self, seqnum: int) -> bytes:
        return self.entries[seqnum].payload or b""


class Player:
    """The user of one connection; `steps`: its calls, and the bytes it received."""

    def __init__(self, role: Role, logs: Mapping[LogKey, Log], **options: Any) -> None:
        self.role = role
        self.logs = logs
        self.in_runs = options.get("in_runs", False)
        self.connection = Connection(role=role, **options)
        self.steps: list[Step] = []
        self.games: dict[int, Game] = {}
        self.in_use: set[int] = set()  # ids of ours that are not free
        self.wanted: list[Event] = []
        self.closed: Closed | None = None
        self.patient = False  # answers only when told to
        self.safe = True

    def do(self, request: Request | None, verb: str, /, *args: Any, **options: Any) -> Any:
        """Call a verb of that request, or of the connection."""
        request_id = None if request is None else request.request_id
        self.steps.append((request_id, verb, args, options))
        return getattr(self.connection if request is None else request, verb)(*args, **options)

    # Events

    def receive(self, data: bytes) -> None:
        if data:
            self.do(None, "receive_data", data)
        self.drain()

    def drain(self) -> None:
        while (event := self.connection.next_event()) is not None:
            assert self.closed is None
            self.take(event)
            if not self.patient:
                self.answer()
        self.check()

    def take(self, event: Event) -> None:
        match event:
            case Proposed():
                request = self.connection.requests.get(event.request_id)
                if request is not None and request.proposal == event.proposal:
                    self.games[event.request_id] = Game(
                        request, self.logs[request.proposal.log], mine=False
                    )
            case ProposalDropped():
                self.games.pop(event.request_id, None)
            case Confirmed() | Adjusted():
                game, adjust = self.games[event.request_id], event.adjustment
                if game.state is RequestState.PROPOSED_BY_US:
                    game.state = RequestState.CONFIRMED
                    assert isinstance(event, Confirmed)
                game.sent.retarget(adjust.end, adjust.upper_certpool)
            case Cancelled():
                self.games[event.request_id].state = RequestState.CANCELLED
            case RequestEnded():
                del self.games[event.request_id]
            case IdFreed():
                self.in_use.remove(event.request_id)
            case MetadataReceived():
                self.take_metadata(event)
            case PayloadReceived():
                self.take_payload(event)
            case EntriesReceived():
                self.take_entries(event)
            case Apologized():
                game = self.games[event.request_id]
                if event.part is METADATA:
                    game.got_metadata.discard(event.seqnum)
                game.bytes.pop(event.seqnum, None)
            case HashWanted() | EntryWanted():
                self.wanted.append(event)
            case ForkSuspected():
                raise AssertionError("there is no fork")
            case Closed():
                assert event.error is None, event.error
                self.closed = event
            case _:
                pass

    def take_metadata(self, event: MetadataReceived) -> None:
        game = self.games[event.request_id]
        assert event.verified == (event.entry == game.entry(event.entry.seqnum))
        if event.verified:
            game.got_metadata.add(event.entry.seqnum)
        else:
            assert not self.safe

    def take_entries(self, event: EntriesReceived) -> None:
        assert self.in_runs
        assert self.safe
        game = self.games[event.request_id]
        for new in event.entries:
            seqnum = new.entry.seqnum
            assert new.entry == game.entry(seqnum)
            assert new.payload == game.payload(seqnum)
            assert seqnum not in game.bytes
            game.got_metadata.add(seqnum)

    def take_payload(self, event: PayloadReceived) -> None:
        game = self.games[event.request_id]
        true = game.payload(event.seqnum)
        if event.verified:
            assert event.finished
        kept = game.bytes.setdefault(event.seqnum, bytearray())
        kept += event.data
        if event.finished:
            whole = bytes(game.bytes.pop(event.seqnum))
            assert event.offset + len(event.data) == len(true)
            if event.verified is not None:
                assert event.verified == (whole == true)

    def answer(self) -> None:
        wanted, self.wanted = self.wanted, []
        for event in wanted:
            assert isinstance(event, HashWanted | EntryWanted)
            game = self.games.get(event.request_id)
            if game is None:
                continue
            if isinstance(event, HashWanted):
                game.request.provide_hash(event.seqnum, game.entry(event.seqnum).hash())
            else:
                game.request.provide_entry(game.entry(event.seqnum))

    def check(self) -> None:
        """The connection agrees with the model."""
        if self.closed is not None:
            return
        assert set(self.connection.requests) == set(self.games)
        for request_id, game in self.games.items():
            request = self.connection.requests[request_id]
            assert request == game.request
            if self.connection.state is State.CLOSING:  # too late for any verb
                assert request.state is RequestState.ENDED
                continue
            if game.state in (RequestState.CANCELLED, RequestState.CANCELLING):
                assert request.state in (RequestState.CANCELLED, RequestState.CANCELLING)
                continue
            assert request.state is game.state
            cursor, sent = request.send_cursor, game.sent
            assert (cursor.range.end, cursor.range.upper_certpool) == (sent.end, sent.upper)
            assert (cursor.piece, cursor.offset) == (sent.due, sent.offset)

    # Legal calls

    def propose(self, dice: Dice) -> None:
        if not self.connection.proposal_credit:
            return
        log = dice.pick(list(self.logs))
        start = 1 + dice.below(min(30, len(self.logs[log])))
        kinds = ["plain", "payload only", "sparse", "sparse, payload only"]
        kind = dice.pick([*kinds, "inside", "inside, payload only"])
        offset = dice.below(9) if kind.startswith("inside") and start > 2 else None
        lower = None if offset is not None else dice.pick(lower_pool(start)[::-1])
        end = start + dice.below(14) if dice.chance(2) or "sparse" in kind else None
        expected = start if lower is None else lipmaa(lower)
        proposal = Proposal(
            log=log,
            start=start,
            lower_certpool=lower,
            expected_hash=self.logs[log][expected].entry.hash() if expected else None,
            start_offset=offset,
            end=end,
            upper_certpool=None if end is None else self.upper(dice, end),
            payload_only="payload only" in kind,
            sparse="sparse" in kind,
            payload_mandatory=dice.chance(2),
            eagerness=self.eagerness(dice),
            size_min=dice.pick([0, 0, 0, 30]),
            size_max=dice.pick([WHOLE - 1, WHOLE - 1, 200]),
        )
        request_id = None
        if dice.chance(3):  # an id in use, perhaps
            request_id = 2 * dice.below(4) + self.role
        try:
            request = self.do(None, "propose", proposal, request_id=request_id)
        except LocalProtocolError as error:
            if error.code is not ErrorCode.ID_IN_USE or request_id not in self.in_use:
                raise
            return
        assert request.request_id not in self.in_use
        self.in_use.add(request.request_id)
        self.games[request.request_id] = Game(request, self.logs[proposal.log], mine=True)
        self.drain()

    @staticmethod
    def upper(dice: Dice, end: int) -> int:
        return dice.pick([end, *upper_pool(end)])

    @staticmethod
    def eagerness(dice: Dice) -> Any:
        return dice.pick([EVERYTHING, EVERYTHING, NOTIFY, payloads_up_to(0), payloads_up_to(100)])

    def adjustment(self, game: Game, dice: Dice) -> dict[str, Any]:
        """Fields of an adjustment that is legal now."""
        request = game.request
        made: dict[str, Any] = {}
        if dice.chance(2):
            made["eagerness"] = self.eagerness(dice)
        if dice.chance(4):
            made["allow_skipping"] = True
        new_end = game.sent.end
        # The target of a sparse range depends on its end, which payloads do not tell.
        closed = game.proposal.sparse and game.proposal.payload_only
        if dice.chance(2) and (game.state is RequestState.PROPOSED_BY_PEER or not closed):
            made["end"] = game.proposal.start + dice.below(14)
            new_end = made["end"] if new_end is None else min(new_end, made["end"])
        if new_end is not None and dice.chance(3):
            made["upper_certpool"] = self.upper(dice, new_end)
        demand = request.our_demand
        old = (demand.size_min, demand.size_max) if demand else (0, WHOLE - 1)
        if dice.chance(5):
            made["size_min"] = old[0] + dice.below(40)
        if dice.chance(5):
            made["size_max"] = max(0, old[1] - dice.below(40))
        return made or {"allow_skipping": True}

    def control(self, game: Game, dice: Dice) -> None:
        """Confirm, adjust or cancel."""
        request = game.request
        if game.state is RequestState.PROPOSED_BY_PEER and not dice.chance(8):
            made = self.adjustment(game, dice)
            made.setdefault("eagerness", self.eagerness(dice))
            if dice.chance(2):
                seqnums = range(1, game.proposal.start)
                made["links"] = {n: game.entry(n).hash() for n in seqnums}
            self.do(request, "confirm", **made)
            game.state = RequestState.CONFIRMED
            game.sent.retarget(made.get("end"), made.get("upper_certpool"))
        elif game.state in (RequestState.PROPOSED_BY_US, RequestState.CONFIRMED) and not (
            dice.chance(3)
        ):
            made = self.adjustment(game, dice)
            self.do(request, "adjust", **made)
            game.sent.retarget(made.get("end"), made.get("upper_certpool"))
        elif game.state not in (RequestState.CANCELLING, RequestState.CANCELLED):
            self.cancel(game, dice)

    def cancel(self, game: Game, dice: Dice) -> None:
        proposal, log = game.proposal, game.proposal.log
        reasons = set(CancelReason) - {CancelReason.CONFIRM}
        if log not in FORKS:
            reasons -= {CancelReason.HASH_MISMATCH, CancelReason.FORK}
        reason = dice.pick(sorted(reasons))
        proof: dict[str, Any] = {}
        if reason is CancelReason.HASH_MISMATCH:
            if proposal.expected_hash is None:
                return
            proof["entry"] = FORKS[log][proposal.expected_seqnum].entry
        if reason is CancelReason.END_OF_LOG:
            if proposal.first_seqnum == 1:
                return
            proof["seqnum"] = 1 + dice.below(proposal.first_seqnum - 1)
        if reason is CancelReason.FORK:
            n = 1 + dice.below(min(len(game.entries), proposal.first_seqnum))
            proof["proof"] = ForkProof(game.entry(n), FORKS[log][n].entry)
        self.do(game.request, "cancel", reason, **proof)
        game.state = RequestState.CANCELLING

    # Legal transmissions

    def send(self, game: Game, dice: Dice) -> None:
        options = self.options(game, dice)
        if options:
            dice.pick(options)()

    def stream(self, game: Game, dice: Dice) -> None:
        """Go on with whole entries, in runs where possible."""
        sent, demand = game.sent, game.request.peer_demand
        confirmed = game.state is RequestState.CONFIRMED and demand is not None
        due = sent.due if confirmed and sent.owed is None else None
        if due is None or due[0] not in game.entries:
            return
        assert demand is not None
        if due[1] is METADATA and demand.eagerness.wants_metadata:
            before = sent.index
            self.send_entries(game, dice)
            if sent.index == before:
                self.send_metadata(game, due[0])
        else:
            self.send(game, dice)

    def options(self, game: Game, dice: Dice) -> list[Action]:
        """Everything that may legally be sent now for that request."""
        sent, request = game.sent, game.request
        if game.state is not RequestState.CONFIRMED or sent.due is None:
            return [lambda: self.apologize(game)] if self.may_apologize(game) else []
        if sent.owed is not None:
            return [lambda: self.apologize(game)] if self.may_apologize(game) else []
        demand = request.peer_demand
        assert demand is not None
        received = request_as_it_is(request).incoming
        place = min(cursor.place for cursor in received.cursors)
        behind = 0
        if not received.apology_owed:
            behind = max(0, sent.passed_by(place) - sent.index)
        left = len(sent.pieces) - sent.index
        found: list[Action] = []
        if behind:
            found.append(lambda: self.notify(game, 1 + dice.below(behind)))
        seqnum, part = sent.due
        if seqnum not in game.entries:
            return found
        if not demand.eagerness.wants_metadata:
            found.append(lambda: self.notify(game, 1 + dice.below(min(left, 9))))
        if part == METADATA:
            if demand.eagerness.wants_metadata:
                found += [lambda: self.send_metadata(game, seqnum)] * 3
                found += [lambda: self.send_entries(game, dice)] * 3
                if self.may_be_wrong(sent.due, sent):
                    found.append(lambda: self.send_bad_metadata(game, seqnum))
        else:
            found += self.payload_options(game, dice, seqnum, place, behind)
        if self.may_apologize(game):
            found.append(lambda: self.apologize(game))
        return found

    def payload_options(
        self, game: Game, dice: Dice, seqnum: int, place: tuple[int, int, int], behind: int
    ) -> list[Action]:
        sent, request = game.sent, game.request
        demand = request.peer_demand
        assert demand is not None
        size = len(game.payload(seqnum))
        found: list[Action] = []
        if size < demand.size_min:
            found.append(lambda: self.skip(game, SkipReason.TOO_SMALL))
        if size > demand.size_max:
            found.append(lambda: self.skip(game, SkipReason.TOO_LARGE))
        if demand.skipping_allowed:
            found.append(lambda: self.skip(game, SkipReason.UNAVAILABLE))
        inside = sent.start_of(sent.due) or game.proposal.payload_only
        inside = inside or (
            sent.due == (game.proposal.start, PAYLOAD) and (game.proposal.start_offset is not None)
        )
        known = inside or seqnum in sent.metadata | game.got_metadata
        rest = size - sent.offset
        if not demand.eagerness.wants_payload(size):
            found.append(lambda: self.notify(game, 1))
        elif demand.admits_payload(size) and rest >= 0:
            if known:
                found += [lambda: self.send_payload(game, seqnum, rest, dice)] * 4
            else:
                found.append(lambda: self.notify(game, 1))
        ahead = place[2] - sent.offset if place[:2] == sent.due and place[2] != WHOLE else 0
        ahead = rest if behind else ahead
        if known and min(ahead, rest) > 0:
            found.append(lambda: self.jump(game, seqnum, 1 + dice.below(min(ahead, rest))))
        return found

    def may_be_wrong(self, piece: Place, sent: Sent) -> bool:
        session = self.connection.session
        assert session is not None
        return session.send_mode is Mode.GREEDY and piece != sent.apologized

    def may_apologize(self, game: Game) -> bool:
        session, sent = self.connection.session, game.sent
        if session is None or session.send_mode is Mode.SAFE:
            return False
        if game.state is not RequestState.CONFIRMED:
            return False
        if sent.owed is not None:
            return True
        return (
            sent.due is not None
            and sent.offset > sent.start_of(sent.due)
            and sent.due != sent.apologized
        )

    def notify(self, game: Game, count: int) -> None:
        self.do(game.request, "notify", count)
        game.sent.move(game.sent.index + count)

    def skip(self, game: Game, reason: SkipReason) -> None:
        self.do(game.request, "skip_payload", reason)
        game.sent.move(game.sent.index + 1)

    def jump(self, game: Game, seqnum: int, size: int) -> None:
        self.do(game.request, "jump", size, entry=game.entry(seqnum))
        game.sent.jumped = True
        self.passed(game, seqnum, size)
        game.sent.bad = False

    def passed(self, game: Game, seqnum: int, size: int) -> None:
        sent = game.sent
        sent.offset += size
        if sent.offset == len(game.payload(seqnum)):
            sent.move(sent.index + 1)

    def send_metadata(self, game: Game, seqnum: int) -> None:
        self.do(game.request, "send_metadata", game.entry(seqnum))
        game.sent.metadata.add(seqnum)
        game.sent.move(game.sent.index + 1)
        targets = {seqnum - 1, lipmaa(seqnum)} if seqnum > 1 else set()
        game.sent.unsure = any(game.request.link(n) is None for n in targets)

    def send_entries(self, game: Game, dice: Dice) -> None:
        """As many as fit in one go; perhaps none."""
        sent, demand = game.sent, game.request.peer_demand
        assert sent.due is not None
        assert demand is not None
        first, entries = sent.due[0], game.entries
        seqnums = range(first, first + 1 + dice.below(6))
        row = [stored(entries[n]) for n in seqnums if n in entries]
        count = self.do(game.request, "send_entries", row)
        assert count <= len(row)
        for kept in row[:count]:
            for part in (METADATA, PAYLOAD):
                assert sent.due == (kept.seqnum, part)
                sent.move(sent.index + 1)
            assert demand.eagerness.wants_payload(kept.payload_size)
            assert demand.admits_payload(kept.payload_size)
            sent.metadata.add(kept.seqnum)

    def grant(self, dice: Dice) -> None:
        """Let the peer make more proposals."""
        self.do(None, "grant_proposals", 1 + dice.below(2))

    def pass_over(self, game: Game) -> None:
        """Want nothing more for a request, and end it."""
        if game.state in (RequestState.PROPOSED_BY_US, RequestState.CONFIRMED):
            self.do(game.request, "pass_over")
            self.do(game.request, "cancel", CancelReason.DO_NOT_RETRY)
            game.state = RequestState.CANCELLING

    def send_bad_metadata(self, game: Game, seqnum: int) -> None:
        good = game.entry(seqnum)
        self.do(game.request, "send_metadata", replace(good, payload_size=good.payload_size + 1))
        game.sent.owed = (seqnum, METADATA)
        game.sent.move(game.sent.index + 1)

    def send_payload(self, game: Game, seqnum: int, rest: int, dice: Dice) -> None:
        sent, due = game.sent, game.sent.due
        assert due is not None
        size = rest if rest == 0 or dice.chance(3) else 1 + dice.below(rest)
        data = game.payload(seqnum)[sent.offset : sent.offset + size]
        if size and self.may_be_wrong(due, sent) and dice.chance(4):
            data = bytes([data[0] ^ 1]) + data[1:]
            sent.bad = True
        compress, entry = not dice.chance(2), game.entry(seqnum)
        finished = self.do(game.request, "send_payload", data, entry=entry, compress=compress)
        bad = sent.bad
        sent.offset += size
        assert finished == (sent.offset == len(game.payload(seqnum)))
        sent.unsure = False
        if finished:
            unsure = sent.jumped or sent.start_of(due) > 0
            sent.move(sent.index + 1)
            sent.unsure = unsure
            if bad:
                sent.owed = due

    def apologize(self, game: Game) -> None:
        sent = game.sent
        self.do(game.request, "apologize")
        piece = sent.owed or sent.due
        sent.owed = None
        sent.apologized = piece
        if sent.due == piece:
            sent.move(sent.index)
        elif sent.index and sent.pieces[sent.index - 1] == piece:
            sent.move(sent.index - 1)


class Duel:
    """Two players and the bytes under way between them."""

    def __init__(
        self,
        setups: tuple[Setup, Setup],
        limits: tuple[Limits, Limits],
        in_runs: tuple[bool, bool] = (False, False),
        *,
        logs: Mapping[LogKey, Log] = LOGS,
        **options: Any,
    ) -> None:
        self.players = tuple(
            Player(role, logs, setup=setup, limits=limit, in_runs=runs, **options)
            for role, setup, limit, runs in zip(Role, setups, limits, in_runs, strict=True)
        )
        self.under_way = [b"", b""]
        for _ in range(2):
            self.deliver(0, None)
            self.deliver(1, None)
        for player in self.players:
            assert player.connection.session is not None
            player.safe = player.connection.session.receive_mode is Mode.SAFE

    def deliver(self, sender: int, size: int | None) -> bool:
        """Bytes arrive at the other player; returns whether there were any."""
        player, other = self.players[sender], self.players[1 - sender]
        self.under_way[sender] += player.connection.data_to_send(size)
        size = len(self.under_way[sender]) if size is None else size
        data, self.under_way[sender] = (
            self.under_way[sender][:size],
            self.under_way[sender][size:],
        )
        other.receive(data)
        return bool(data)

    def settle(self) -> None:
        """Everything arrives, and every request is answered."""
        while True:
            moved = [self.deliver(0, None), self.deliver(1, None)]
            for player in self.players:
                while player.wanted:
                    moved.append(True)
                    player.answer()
                    player.drain()
            if not any(moved):
                break

    def agree(self) -> None:
        """Nothing is under way: both must agree about everything."""
        left, right = self.players
        for player in self.players:
            assert player.closed is None, player.closed
        assert set(left.games) == set(right.games)
        mirrored = {
            RequestState.PROPOSED_BY_US: RequestState.PROPOSED_BY_PEER,
            RequestState.PROPOSED_BY_PEER: RequestState.PROPOSED_BY_US,
            RequestState.CONFIRMED: RequestState.CONFIRMED,
        }
        for request_id, game in left.games.items():
            other = right.games[request_id]
            assert mirrored[game.state] is other.state
            assert (game.sent.end, game.sent.upper) == (other.sent.end, other.sent.upper)
            for one, two in ((game.request, other.request), (other.request, game.request)):
                place, received = one.send_cursor, request_as_it_is(two).incoming
                assert place.range.bounds in received.ranges
                assert place in [each.retargeted(place.range) for each in received.cursors]
                if game.state is RequestState.CONFIRMED:
                    assert one.peer_demand == two.our_demand
        for one, two in ((left, right), (right, left)):
            # `two` counts no fewer than `one`, or it could grant more.
            most = MAX - one.connection.proposal_credit
            with pytest.raises(LocalProtocolError) as caught:
                two.connection.grant_proposals(most + 1)
            assert caught.value.code is ErrorCode.CREDIT_OVERFLOW

    def grant_all(self) -> None:
        """Neither may count more proposals than the other, or it could not grant all the rest."""
        for one, two in (self.players, self.players[::-1]):
            two.do(None, "grant_proposals", MAX - one.connection.proposal_credit)
        self.settle()
        for player in self.players:
            assert player.connection.proposal_credit == MAX
