"""The state of one log between our store and one peer, as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self

from culm.bamboo.effects import AddFork, ReadEntry, ReadHashes, ReadLog
from culm.bamboo.entry import Entry, LogKey, decode
from culm.bamboo.errors import Reason
from culm.bamboo.forks import ForkProof
from culm.bamboo.links import SEQNUM_MAX
from culm.bamboo.records import Head, NewEntry, StoredEntry
from culm.machine import Effect
from culm.point2point.handles import Request
from culm.point2point.messages import CancelReason, Proposal
from culm.point2point.pieces import Piece
from culm.point2point.replication import steps
from culm.point2point.replication.events import (
    EntryStored,
    Interest,
    LogEnded,
    LogRefused,
    LogSynced,
    Want,
)
from culm.point2point.replication.steps import PeerStage, Purpose, Stage, Step
from culm.point2point.states import RequestState
from culm.wire.multihash import HashFamily

_JOINS: Final = (PeerStage.COMPARING, PeerStage.CONFIRMED, PeerStage.CANCELLED)  # in this order

_ANSWERED: Final = frozenset({Stage.OPEN, Stage.ENDING, Stage.FINISHED})
_COMPARED_MAX: Final = 8


class Ours(NamedTuple):
    """One proposal of ours at a time, from the wish to the end of the request."""

    stage: Stage = Stage.IDLE
    request: Request | None = None  # from its proposal to its end

    @property
    def unanswered(self) -> bool:
        return self.request is not None and self.request.unanswered

    @property
    def probed(self) -> int | None:
        """The entry that it compares with the peer's, if that is all."""
        return None if self.request is None else compared_by(self.request.proposal)

    def only_waits(self, *, hasty: bool) -> bool:
        """Whether the peer has no room for it, as far as we know; see `LogState.only_waits`."""
        if self.request is None:
            return self.is_turned_away
        return hasty and self.request.state is RequestState.PROPOSED_BY_US

    @property
    def is_turned_away(self) -> bool:
        """Whether there was no room for it, and there is none yet as far as we know."""
        return self.stage in (Stage.TURNED_AWAY, Stage.DEFERRED)


class Theirs(NamedTuple):
    """A request of the peer, its stage, and whether we take part to get its entries, or will."""

    request: Request
    stage: PeerStage = PeerStage.WAITING
    joins: bool = False

    @property
    def waits(self) -> bool:
        return self.request.state is RequestState.PROPOSED_BY_PEER


def compared_by(proposal: Proposal) -> int | None:
    """The entry that a proposal of ours is to compare with the peer's, if that is all."""
    return proposal.start if proposal.start == proposal.end and not proposal.size_max else None


def is_owed(range: Want | Proposal) -> bool:
    """Whether one that has confirmed a range has to send it (else it may wait for entries)."""
    end = range.last if isinstance(range, Want) else range.end
    return end is not None and range.eagerness.wants_metadata


@dataclass(kw_only=True, eq=False)
class LogState:
    """Knowledge of one log, our wishes, and the requests under way.

    Its requests are looked at as they are on the wire; only commands change them.

    follows, keeps_live
        The entries that come next are wanted, not only the ranges that the user asks for: as far as
        the peer offers them, or (`live`) while the connection lasts, and the peer is told of ours.
    only_stored
        As long as nothing of it is stored, only the ranges are wanted that the user asks for.
    serves_stored
        A peer of which we want nothing gets the stored entries that it asks for.
    """

    log: LogKey
    family: HashFamily
    follows: bool
    keeps_live: bool
    only_stored: bool
    serves_stored: bool
    want: Want  # of the next entries
    # Fork, unbroken log and newest entry, as far as the store has told of them.
    loaded: bool = False
    fork: ForkProof | None = None
    head: Head | None = None
    newest: int = 0  # the last entry, with or without gaps before it
    payload_due: bool = False  # of the entry at the head: it is on its way into the store
    withheld: int = 0  # the entry of whose payload the peer has only the part that has come
    writing: int = 0  # batches that have come and are not in the store
    appending: int = 0  # those of them that do not only wait for a payload
    questions: int = 0  # to the store that it has not answered
    looking: tuple[steps.Question, ...] = ()  # that go on when it tells the state of the log,
    later: tuple[steps.Question, ...] = ()  # and the next time
    # The peer's entries, and its knowledge of ours.
    offered: int | None = None  # the last entry that it has mentioned
    begun: int = 0  # the last entry within whose payload it has been
    ahead: tuple[int, int] = (0, 0)  # the entry and byte of the furthest that we have passed
    passed: int = 0  # the last entry that it has notified
    told: Piece | None = None  # it knows that we have all before this one
    fork_told: int | None = None  # the first forked entry that it knows of
    peer_end: int | None = None  # the end of the log by its word, before a range ends
    synced: int | None = None  # the entry of the last LogSynced
    compared: tuple[int, ...] = ()  # entries of ours that we have compared with the peer's, lately
    # Our wishes of the moment.
    probe: int | None = None  # an entry of which the peer may have a different one
    refused: bool = False  # the peer refuses our proposals for the next entries, or we its data;
    rests: bool = False  # or these end when there is nothing new, as there are more logs
    rested: frozenset[int] = frozenset()  # requests that we have ended for that reason
    withdrawn: bool = False  # it makes way for others: nothing is proposed
    ranges: tuple[Want, ...] = ()  # the first is the one under way
    # Those that have made way for others, until the peer has these entries.
    resting: Mapping[Want, int] = field(default_factory=dict[Want, int])
    over: bool = False  # the end of the first of them has been told;
    lost: bool = False  # a part of it is not in the store after all, or comes later
    # The requests, and those for which data may flow, now or once they are confirmed.
    ours: Mapping[Purpose, Ours] = field(default_factory=lambda: dict.fromkeys(Purpose, Ours()))
    theirs: Mapping[int, Theirs] = field(default_factory=dict[int, Theirs])
    under_way: Mapping[int, Request] = field(default_factory=dict[int, Request])
    _commands: list[steps.Command] = field(default_factory=list[steps.Command])  # of this step

    @classmethod
    def of(
        cls, log: LogKey, interest: Interest, *, family: HashFamily, only_stored: bool = False
    ) -> Self:
        """A log of which nothing is known yet."""
        want = None if interest.want is None or interest.want.is_range else interest.want
        return cls(
            log=log,
            family=family,
            follows=want is not None,
            keeps_live=interest.live,
            only_stored=want is not None and only_stored,
            serves_stored=interest.offer_stored,
            want=want or Want(),
        )

    # Queries.

    @property
    def position(self) -> int:
        """The last entry of the unbroken log; 0: there is none."""
        return 0 if self.head is None else self.head.seqnum

    @property
    def live(self) -> bool:
        return self.follows and self.keeps_live

    @property
    def ended(self) -> bool:
        """Whether the author has ended the log, and all of it is here."""
        return self.head is not None and self.head.end_of_log and not self.payload_due

    @property
    def joined(self) -> Theirs | None:
        """A request for the next entries in which we take part, or will."""
        found = [each for each in self.theirs.values() if each.joins]
        return min(found, key=lambda each: _JOINS.index(each.stage), default=None)

    def _is_for_next(self, request: Request) -> bool:
        """Whether the next entries come in it, as long as there are any."""
        joined = None if self.joined is None else self.joined.request
        is_next = request in (self.ours[Purpose.NEXT].request, joined)
        return is_next and request.proposal.end is None

    def _only_compares(self, request: Request | None) -> bool:
        """Whether it is for an entry to compare: without that one the next ones still come."""
        ours = self.ours[Purpose.NEXT]
        return ours.request is request and ours.probed not in (None, self.position + 1)

    @property
    def fork_at(self) -> int | None:
        """The first forked entry."""
        return None if self.fork is None else self.fork.seqnum

    @property
    def last_offered(self) -> int:
        """The last valid entry that the peer has mentioned; 0: there is none."""
        return self._before_fork(self.offered or 0)

    @property
    def last_begun(self) -> int:
        """The last valid entry within whose payload it has been; 0: there is none."""
        return self._before_fork(self.begun)

    @property
    def resumes(self) -> bool:
        """Whether the next entries begin with the payload at the head.

        Not if it is one of the ranges that the user has asked for.
        """
        return self.payload_due and Want.payload_of(self.position) not in self.ranges

    def _before_fork(self, seqnum: int) -> int:
        """That entry, or the last valid one before it."""
        return seqnum if self.fork is None else min(seqnum, self.fork.seqnum - 1)

    @property
    def to_keep(self) -> Mapping[str, Any]:
        """What is remembered while it has no place; else both might say it for ever, by turns."""
        kept: dict[str, Any] = {}
        if self.refused and not self.ended:
            kept = {"refused": True, "offered": self.offered, "probe": self.probe}
        if self.fork is not None:
            kept |= {"fork_told": self.fork_told, "compared": self.compared}
        return kept

    @property
    def deferred(self) -> bool:
        """Whether there has been no room for a proposal of ours."""
        return any(ours.is_turned_away for ours in self.ours.values())

    def only_waits(self, *, hasty: bool) -> bool:
        """Whether nothing is left but proposals for which the peer has no room.

        `hasty`: one that is not answered counts as such, which on a long line may only be late.
        One that is to go on inside a payload has something to write, but nothing has come for it.
        """
        if self.questions or self.theirs:
            return False
        ours = [each for each in self.ours.values() if each.stage is not Stage.IDLE]
        return bool(ours) and all(each.only_waits(hasty=hasty) for each in ours)

    def decode(self, stored: StoredEntry) -> Entry:
        return decode(stored.encoded, family=self.family)

    def purpose_of(self, request_id: int) -> Purpose | None:
        for purpose, (_, request) in self.ours.items():
            if request is not None and request.request_id == request_id:
                return purpose
        return None

    # Changes of the state.

    def _is_due(self, last: StoredEntry) -> bool:
        """Whether the payload at the head is wanted, and has been begun or is mandatory."""
        if last.seqnum == self.withheld:
            return False
        if last.payload_complete or not self.want.admits_payload(last.payload_size):
            return False
        return last.payload_begun or self.want.payload_mandatory  # which was deleted, then

    def _see_payload(self, last: StoredEntry | None) -> None:
        """Take the state of the payload at the head."""
        self.payload_due = last is not None and self._is_due(last)
        if last is not None and last.seqnum == self.withheld and last.payload_complete:
            self.withheld, self.told = 0, None  # which is news to the peer
            self._end(self.ours[Purpose.NEXT].request)

    def _store_all(self, batch: Sequence[NewEntry]) -> None:
        first, last = self.position + 1, self.position + len(batch)
        if batch and [new.entry.seqnum for new in batch] == list(range(first, last + 1)):
            entry, _, staged = batch[-1]  # those before it would not leave a trace
            self.newest = max(self.newest, last)
            self.head = Head(last, entry.hash(), entry.end_of_log)
            self.payload_due = staged and last != self.withheld
        else:
            for new in batch:
                self._store(new)

    def _store(self, new: NewEntry) -> None:
        entry = new.entry
        self.newest = max(self.newest, entry.seqnum)
        if entry.seqnum == self.position + 1:
            self.head = Head(entry.seqnum, entry.hash(), entry.end_of_log)
            self.payload_due = new.staged and entry.seqnum != self.withheld
        elif entry.seqnum == self.position and new.payload is not None and not new.staged:
            self.payload_due = False

    def _payload_over(self, seqnum: int) -> None:
        if seqnum == self.position:
            self.payload_due = False

    def _move(self, purpose: Purpose, step: Step) -> None:
        stage, request = self.ours[purpose]
        self.ours = {**self.ours, purpose: Ours(steps.STAGES[stage][step], request)}

    def _make_room(self, *purposes: Purpose) -> None:
        """If there was no room for them, there may be now."""
        for purpose in purposes:
            if Step.MAKE_ROOM in steps.STAGES[self.ours[purpose].stage]:
                self._move(purpose, Step.MAKE_ROOM)

    def _rest(self, known: Piece) -> None:
        """A request without an end is over; by it the peer knows that we have all before `known`.

        So it is not told again: a peer that has forgotten the log would take it up for that.
        """
        self.told = max(self.told or known, known)
        self.rests = not self.refused

    def _refuse(self) -> None:
        """One side finds fault with the wishes or the data of the other."""
        self.refused, self.rests = True, False

    def _note_compared(self, ours: Ours, *, dropped: bool) -> None:
        """A request of ours is over: if it was to compare an entry, that has been done."""
        if ours.probed is not None and not dropped and ours.stage in _ANSWERED:
            self.compared = (*self.compared[1 - _COMPARED_MAX :], ours.probed)

    def _in(self, stage: PeerStage) -> list[Theirs]:
        return [each for each in self.theirs.values() if each.stage is stage]

    def _will_displace(self, proposal: Proposal) -> bool:
        ours = self.ours[Purpose.NEXT]
        if ours.request is not None and ours.unanswered:
            return ours.request.proposal.start < proposal.start
        return ours.stage in (Stage.PREPARING, Stage.QUEUED)

    def _peer_knows(self, fork: ForkProof) -> None:
        self.fork_told = min(fork.seqnum, self.fork_told or fork.seqnum)

    def _knows_end(self, seqnum: int) -> bool:
        """Whether both have everything; if not, find out about the peer's entry there."""
        if self.ended and self.position == seqnum:
            return True
        if seqnum <= self.newest:
            self.probe = seqnum
        elif self.ranges and self.peer_end is None:
            # Fetch that entry.  Once is enough: a peer that then names another entry has nothing
            # to show for it.
            self.peer_end, of_range = seqnum, self.ranges[0]
            at_end = replace(of_range, first=seqnum, last=seqnum, sparse=False, payload_only=False)
            self.ranges += (at_end,)
        return False

    # Ranges.

    def _line_up(self, *wants: Want) -> None:
        """Take up ranges: those that are owed do not wait for one that may never be over."""
        request = self.ours[Purpose.RANGE].request
        first = () if request is None or self.lost else self.ranges[:1]
        displaces = any(map(is_owed, wants)) and not any(map(is_owed, first))
        if first and displaces and request is not None and request.is_open:
            due = request.receive_cursor.piece
            if due is not None:
                first, wants = (), (*wants, self._set_aside(due))
                self._cancel(request, CancelReason.RESOURCE_LIMIT)
        line = [*self.ranges[len(first) :]]
        is_mixed = not all(map(is_owed, line[:1] + line[-1:]))
        line += (each for each in wants if each not in first and each not in line)
        if is_mixed:
            line.sort(key=lambda each: not is_owed(each))
        self.ranges = (*first, *line)

    def _set_aside(self, due: Piece) -> Want:
        """Take the range under way out of the line; returns it from the piece that is due on."""
        current = self.ranges[0]
        self.ranges, self.lost = self.ranges[1:], True
        first = max(due.seqnum, current.first or 1)  # in the upper pool it is past the last
        return replace(current, first=min(first, current.last or first))

    def _rouse(self, newest: int) -> None:
        """Ranges that rest go on if entries up to that one are new to them."""
        self._go_on(*(each for each, due in self.resting.items() if due <= newest))

    def _go_on(self, *ranges: Want) -> None:
        self.resting = {each: due for each, due in self.resting.items() if each not in ranges}
        self._line_up(*ranges)

    def _range_rests(self, request: Request) -> None:
        """A range that is not owed makes way for others, until the peer has more of it."""
        due = request.receive_cursor.piece
        if due is not None and self.ranges and not is_owed(self.ranges[0]):
            rest = self._set_aside(due)
            self.resting = {**self.resting, rest: max(due.seqnum, rest.first or 1)}

    def _received(self, received: steps.Received) -> None:
        request = received.request
        if request is not self.ours[Purpose.RANGE].request or not self.ranges or self.over:
            return
        last = self.ranges[0].last
        if last is not None:
            self.over = True
            whole = request.receive_cursor.range.end == last  # else it was to end before a fork
            refused = LogRefused(log=self.log, reason=CancelReason.END_OF_RANGE)
            self._do(LogSynced(log=self.log, seqnum=last) if whole else refused)

    def _cut_off(self, cut: steps.CutOff) -> None:
        if cut.request is self.ours[Purpose.RANGE].request and not self.over:
            self.over = True
            self._do(LogRefused(log=self.log, fault=Reason.FORK))

    # Commands.

    def _do(self, command: steps.Command) -> None:
        self._commands.append(command)

    def _cancel(self, request: Request, reason: CancelReason) -> None:
        self._commands.append(steps.Cancel(request, reason))

    def _end(self, request: Request | None) -> None:
        if request is not None and request.is_open:
            self._cancel(request, CancelReason.RESOURCE_LIMIT)

    def _ask(
        self,
        question: steps.Question,
        kind: Callable[..., Effect[Any]] | StoredEntry,
        **fields: Any,
    ) -> None:
        self.questions += 1
        self._commands.append(steps.Ask(question, kind, fields, ordered=kind is AddFork))

    def _look(self, question: steps.Question) -> None:
        """Ask for the state of the log; questions that come meanwhile are answered together."""
        if self.looking:
            self.later += (question,)
            return
        self.looking = (question,)
        self._ask(steps.Happening.LOOKED, ReadLog)

    # News, and events that follow from it.

    def _stored(self, stored: steps.EntriesStored) -> None:
        batch, before = stored.batch, self.newest
        self._store_all(batch)
        if self.newest > before:
            self._rouse(self.newest)
        # The peer may want them in another request.
        if len(self.under_way) > 1 or stored.request_id not in self.under_way:
            self._do(steps.Notice.NEWS)
        self._tell_news()
        if not self.follows:  # there may be gaps before it
            for new in batch:
                if new.entry.end_of_log:
                    self._do(LogEnded(log=self.log, seqnum=new.entry.seqnum))

    def _payload_stored(self, stored: EntryStored) -> None:
        self._payload_over(stored.seqnum)
        self._do(steps.Notice.NEWS)
        self._do(stored)
        self._tell_news()

    def _payload_withheld(self, withheld: steps.PayloadWithheld) -> None:
        self.withheld = withheld.seqnum
        self._payload_over(withheld.seqnum)
        self._do(steps.Notice.NEWS)  # to the peer, if it waits for that payload in another request

    def _payload_lost(self, lost: steps.PayloadLost) -> None:
        self._ask(lost, ReadEntry, seqnum=lost.seqnum)

    def _tell_news(self) -> None:
        position, offered = self.position, self.last_offered
        if not self.follows or self.payload_due or position < offered:
            return
        if self.live and position > offered:
            return  # the peer's next live entry may be on its way
        if self.synced == position:
            return
        self.synced = position
        self._do(LogSynced(log=self.log, seqnum=position))
        if self.ended:
            self._do(LogEnded(log=self.log, seqnum=position))

    def _add_fork(self, proof: ForkProof) -> bool:
        """A (verified) fork of the log has become known: whether it is news.

        The log ends before it then.
        """
        if self.fork is not None and self.fork.seqnum <= proof.seqnum:
            return False
        self.fork = proof
        self._ask(proof, AddFork, proof=proof)
        return True

    def _is_shown(self, proof: ForkProof) -> None:
        self._peer_knows(proof)
        if not self._add_fork(proof):
            self._look_before(proof)  # the peer may have another log before it

    def _look_before(self, proof: ForkProof) -> None:
        """The fork begins earlier if one of its branches is not the one that we have."""
        seqnums = tuple(seqnum for seqnum, _ in proof.links)
        self._ask(proof, ReadHashes, seqnums=seqnums)

    def _compare(self, question: steps.Compare) -> None:
        seqnum = question.entry.seqnum
        beside = [each for each in (seqnum - 1, seqnum + 1) if 1 <= each <= SEQNUM_MAX]
        self._ask(question, ReadLog, entry=seqnum, hashes=beside)

    def _show_fork(self, request: Request, fork: ForkProof) -> None:
        self._peer_knows(fork)
        self._do(steps.Cancel(request, CancelReason.FORK, proof=fork))
