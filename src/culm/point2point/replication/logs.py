"""The logs that have a place, and their requests: steps, places, and turns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from culm.bamboo.entry import LogKey
from culm.bamboo.forks import ForkProof
from culm.bamboo.records import StoredEntry
from culm.bamboo.staging import read_beginning
from culm.bamboo.verify import PayloadVerifier
from culm.buffer import Buffer, Queue
from culm.effects import StoreWork
from culm.machine import Event, LocalProtocolError
from culm.point2point.connection import Connection, room_beside
from culm.point2point.events import PayloadReceived, RequestEvent
from culm.point2point.handles import Request
from culm.point2point.limits import ReplicatorLimits
from culm.point2point.messages import NOTIFY, CancelReason, Proposal
from culm.point2point.replication import decisions, steps
from culm.point2point.replication.download import Download, TransferContext
from culm.point2point.replication.events import Want
from culm.point2point.replication.log_sync import LogSync
from culm.point2point.replication.steps import Purpose, Stage, Step
from culm.point2point.replication.upload import Upload
from culm.point2point.states import State

_LOOKS_MAX: Final = 64  # at logs that might give up their places, in one go
_ABSENT_MAX: Final = 1000  # logs without a place of which something is remembered, or `logs_max`

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Absent(NamedTuple):
    """What is remembered of a log without a place."""

    told: Proposal | None = None  # of the peer, and over: it has told of its entries
    fork: ForkProof | None = None  # which the peer has shown
    ranges: tuple[Want, ...] = ()  # that the user has asked for
    kept: Mapping[str, Any] = _NOTHING  # of its state


class Transfers:
    """The requests for which data may flow, by id: a download and an upload each."""

    def __init__(self, shared: TransferContext) -> None:
        self._shared = shared
        self.touched: OrderedDict[int, None] = OrderedDict()
        """The requests to which something has happened that may let them rest."""
        self.about: dict[int, LogKey] = {}
        """The logs that requests are about, if these have places."""
        self._downloads: dict[int, Download] = {}
        self._unwritten: dict[int, Download] = {}  # those with entries that may have to be stored
        self._uploads: dict[int, Upload] = {}

    def involve(self, request: Request) -> None:
        """A proposal is about a log that has a place."""
        self.about[request.request_id] = request.proposal.log

    def open(self, request: Request, begun: PayloadVerifier | None = None) -> None:
        """Data of a request may flow, now or when the peer has confirmed it."""
        self.involve(request)
        self._downloads[request.request_id] = Download(request, self._shared, begun)
        self._uploads[request.request_id] = Upload(request, self._shared)

    def forget(self, request_id: int) -> None:
        upload = self._uploads.pop(request_id, None)
        if upload is not None:
            upload.reading.close()
        download = self._downloads.pop(request_id, None)
        if download is not None:
            download.finish()
        self.about.pop(request_id, None)
        self.touched.pop(request_id, None)
        self._shared.turns.discard(request_id)

    # Coming in.

    def handle(self, event: RequestEvent) -> None:
        self.touched[event.request_id] = None
        download = self._downloads.get(event.request_id)
        if download is not None:
            download.handle(event)
            self._unwritten[event.request_id] = download
        if not isinstance(event, PayloadReceived) or event.finished:
            self.wake(event.request_id)

    def ask(self) -> None:
        """Ask the store for all that is due by now."""
        unwritten, self._unwritten = self._unwritten, {}
        for download in unwritten.values():
            download.batches.flush()
        self.send_some()

    def keep_entries(self) -> bool:
        """Nothing comes for now: store entries without their payloads; whether there are some."""
        return sum(download.keep_entry() for download in self._downloads.values()) > 0

    def finish(self) -> None:
        for download in self._downloads.values():
            download.finish()

    def idle(self, request_id: int, *, patient: bool) -> Request | None:
        """That request, if there is nothing to send or to receive for it just now.

        `patient`: the rest of a payload is waited for, though it may never come.
        """
        upload = self._uploads.get(request_id)
        if upload is None or request_id in self._shared.turns:
            return None
        if upload.reading.busy or self._shared.room.awaits(request_id):
            return None
        return None if patient and upload.inside else upload.request

    # Going out.

    def wake(self, request_id: int) -> None:
        """There may be something new to send for a request."""
        if request_id in self._uploads:
            self._shared.turns.add(request_id)

    def tell_news(self, request_id: int) -> None:
        """There are new entries of its log in the store, or payloads."""
        self._uploads[request_id].wake()
        self._shared.turns.add(request_id)

    def pieces_to_send(self, size_max: int | None) -> list[Buffer]:
        """Take bytes for the peer; while there is room for more, choose more to send."""
        pieces = self._shared.connection.pieces_to_send(size_max)
        left = room_beside(pieces, size_max) if pieces and size_max is not None else size_max
        while (left is None or left > 0) and self.send_some():
            more = self._shared.connection.pieces_to_send(left)
            if not more:
                break
            pieces += more
            if left is not None:
                left = room_beside(more, left)
        return pieces

    def send_some(self) -> bool:
        """Put about a packet's worth of data on its way; returns whether there was some.

        Requests take turns, a packet at a time.  One that has just got something new does not wait
        for those that go on and on, and they wait for no more than one of these.  Nothing is queued
        after data that waits for the peer's credit, nor read for that purpose.
        """
        connection, turns = self._shared.connection, self._shared.turns
        if not turns or connection.state is not State.ESTABLISHED:
            return False
        unsent_size = connection.unsent_size
        if unsent_size:
            # Read ahead for the next packet; no more, as its time is unknown.
            self._uploads[turns.first()].prepare()
            return False
        size_max = self._shared.limits.connection.packet_size_max
        while turns and unsent_size < size_max:
            if unsent_size and not connection.send_credit:
                break
            request_id = turns.take()
            upload = self._uploads[request_id]
            if upload.step():
                turns.go_on(request_id)
            elif request_id not in turns:
                upload.reading.rest()
                self.touched[request_id] = None
            unsent_size = connection.unsent_size
        return unsent_size > 0


class Logs:
    """Carries out the commands of each log (`LogSync`), and shares out places and credit.

    A log with nothing to do gives its place to another.  All that is forgotten with it can be found
    out again, but for what is remembered (`Absent`); where there is no room for that, it stays.

    Credit for proposals is spent in the order of the wishes.  If there are more logs than
    requests, those without an end take turns: one for which both sides have everything ends, and is
    proposed again when there is something new.
    """

    def __init__(self, connection: Connection, work: StoreWork, limits: ReplicatorLimits) -> None:
        self.states: OrderedDict[LogKey, LogSync] = OrderedDict()
        self.shared = TransferContext(connection, self.states, work, limits)
        self.transfers = Transfers(self.shared)
        self.made_way = False  # whether a log has given up its place
        self._hasty = True  # to withdraw a proposal that is not answered
        self.wishes: Queue[tuple[LogKey, steps.Propose]] = Queue()  # that wait for credit
        self.leaving: set[int] = set()  # requests that end to make room for them
        # Logs that try again when there is room.  In a plain dict, keys taken from the front would
        # be passed over every time after that.
        self._deferred: OrderedDict[LogKey, None] = OrderedDict()
        # Proposals that got no credit; of the same log others may have been turned away.
        self._crowded: OrderedDict[tuple[LogKey, Purpose], None] = OrderedDict()
        self._served: set[LogKey] = set()  # had some since the last time that others got none
        self._absent: dict[LogKey, Absent] = {}
        self.queue: OrderedDict[LogKey, bool] = OrderedDict()
        """Logs that wait for a place, or for another one, and whether the user knows."""
        self._unsettled: dict[LogKey, None] = {}  # all that are so, and some that were

    # Places.

    def take_place(self, log: LogSync) -> None:
        """Give a free place to a log, which goes on with what it has waited for."""
        kept = self._absent.get(log.log, Absent()).kept
        self.states[log.log] = replace(log, **kept) if kept else log
        self.tell(log.log, steps.Happening.STARTED)
        self._recall(log.log)

    def go_on_with(self, log: LogKey) -> None:
        """It has not left its place yet, and does not make way any more."""
        self.states[log] = replace(self.states[log], withdrawn=False)
        self._recall(log)
        self.tell(log, steps.RoomMade())

    def _recall(self, log: LogKey) -> None:
        """It has a place: nothing of it waits for one any more."""
        known = self._absent.pop(log, Absent())
        self.queue.pop(log, None)
        if known.told is not None:
            self.tell(log, steps.Offered(known.told, None))
        if known.fork is not None:  # else we would tell the peer of it, which has as little room
            self.tell(log, known.fork)
        for range_ in (*known.ranges, *self.states[log].resting):
            self.tell(log, steps.Wanted(range_))

    def wait(
        self, log: LogKey, told: Proposal | None = None, fork: ForkProof | None = None
    ) -> bool:
        """Let it wait for a place, with what the peer has told; whether that can be remembered."""
        known = self._absent.get(log, Absent())
        if log not in self._absent and not self._remembers_more():
            return False
        if told is None or (known.told is not None and not steps.Offered(told, None).tells):
            told = known.told
        self._absent[log] = known._replace(told=told, fork=fork or known.fork)
        self.queue[log] = told is not None or self.queue.get(log, False)
        return True

    def _remembers_more(self, *, share: int = 1) -> bool:
        """Whether there is room in that part of the memory for logs without a place."""
        return share * len(self._absent) < max(self.shared.limits.logs_max, _ABSENT_MAX)

    def free(self, wanted: int = 1) -> int:
        """The number of free places, up to `wanted`, after logs with nothing to do have made way.

        Looks at a few in turn, so that it comes to all of them.
        """
        states = self.states
        found = self.shared.limits.logs_max - len(states)
        for _ in range(min(_LOOKS_MAX, len(states))):
            if found >= wanted:
                break
            log, state = next(iter(states.items()))
            leaves_nothing = not (state.resting or state.ranges or state.refused)
            if state.has_nothing_to_do and (leaves_nothing or self._remembers_more()):
                self._leave(log)
                found += 1
            else:
                states.move_to_end(log)
        return min(found, wanted)

    def withdraw(self, newcomers: int | None) -> bool:
        """Have logs make way that only wait for a place at the peer; returns whether some do.

        As many as wait in the queue and are news.  `newcomers`: as many more, and those of the
        queue of which the peer has told; ``None``: none, as the peer lets its own make way.
        They lose their places as soon as the peer has answered, and wait for others.
        """
        wanted, hasty = sum(not told for told in self.queue.values()), False
        if newcomers is not None:
            theirs = newcomers + sum(self._absent[log].told is not None for log in self.queue)
            wanted, hasty = wanted + theirs, self._hasty and theirs > 0
        # The answer to a proposal brings credit for another.
        crowded = {log for log, _ in self._crowded} if self.unanswered else set[LogKey]()
        waiting = [
            log
            for log, each in self.states.items()
            if log not in crowded and each.only_waits(hasty=hasty)
        ]
        for log in waiting[:wanted]:
            state = self.states[log]
            self._absent[log] = Absent()
            self.queue[log] = state.deferred  # which has been told
            self.leaving.update(state.under_way)
            self.tell(log, steps.Happening.WITHDRAWN)
            if not self.states[log].under_way:  # that has to end first
                self._leave(log)
        return bool(waiting and wanted)

    def be_patient(self) -> None:
        """The peer had room for a proposal that has been withdrawn: its answer was only late."""
        self._hasty = False

    def _leave(self, log: LogKey) -> None:
        state = self.states.pop(log)
        kept = state.to_keep
        ranges = (*state.resting, *state.ranges)  # these may have come while it was withdrawn
        more = self._remembers_more(share=1 if state.refused else 2)  # forks leave half to others
        if ranges or (kept and (log in self._absent or more)):
            known = self._absent.get(log, Absent())
            self._absent[log] = known._replace(ranges=(*known.ranges, *ranges), kept=kept)
        self._served.discard(log)
        for table in (self._unsettled, self._deferred):
            table.pop(log, None)
        for purpose in Purpose:
            self._crowded.pop((log, purpose), None)
        self.made_way = True

    # Steps.

    def tell(self, log: LogKey, input: steps.Input, told: list[Event] | None = None) -> None:
        """Give a log an input, and carry out its commands; collect the events in `told`."""
        self._unsettled[log] = None
        self.states[log], commands = self.states[log].step(input)
        ours = self.states[log].ours[Purpose.NEXT].request
        if ours is not None:
            self.transfers.touched[ours.request_id] = None
        for command in commands:
            self._carry_out(log, command, told)

    def settle(self) -> None:
        """Take the inputs of logs that have come meanwhile, in order."""
        inputs = self.shared.inputs
        while inputs:
            self.tell(*inputs.popleft())

    def _carry_out(self, log: LogKey, command: steps.Command, told: list[Event] | None) -> None:
        match command:
            case Event():
                tell = self.shared.work.emit if told is None else told.append
                tell(command)
            case steps.Ask():
                self._ask(log, command)
            case steps.Notice.NEWS:
                for request_id in self.states[log].under_way:
                    self.transfers.tell_news(request_id)
            case steps.Notice.ROOM:
                if not self.retry_crowded(1) and self.turned_away:
                    self.retry(next(iter(self._deferred)))
            case steps.Notice.TURNED_AWAY:
                self._deferred[log] = None
            case steps.Propose():
                self.wishes.append((log, command))
                self.go_on()
                if self.states[log].ours[command.purpose].stage is Stage.QUEUED:
                    self.tell(log, steps.Happening.QUEUED)
            case steps.Confirm():
                self._confirm(command)
            case steps.Cancel(request, reason, entry, seqnum, proof):
                if request.is_open:
                    request.cancel(reason, entry=entry, seqnum=seqnum, proof=proof)
                else:
                    request.pass_over()
            case steps.Shorten(request, end):
                pool = request.send_cursor.range.upper_certpool
                if not request.is_open or (pool is not None and pool <= end):
                    return  # it has been, by another fork that was seen in the same step
                try:
                    request.adjust(end=end, upper_certpool=end)
                except LocalProtocolError:  # too many, or a sparse range of payloads alone
                    self.tell(log, steps.CutOff(request), told)
                    request.cancel(CancelReason.DO_NOT_RETRY)
            case steps.Refuse(request):
                request.refuse()

    def _ask(self, log: LogKey, ask: steps.Ask) -> None:
        told: list[Event] | None = [] if ask.ordered else None
        place = self.shared.work.reserve() if ask.ordered else None

        def answered(result: object) -> None:
            if place is not None and told is not None:
                place.fill(told)
            self.shared.inputs.put(log, steps.Answered(ask.question, result), told)

        if isinstance(ask.kind, StoredEntry):
            entry = self.states[log].decode(ask.kind)
            read_beginning(self.shared.work, entry, ask.kind.payload_stored, answered)
        else:
            self.shared.work.ask(ask.kind, answered, log=log, **ask.fields)

    def _confirm(self, confirm: steps.Confirm) -> None:
        request, want, end = confirm.request, confirm.want, confirm.end
        if want is None:
            request.confirm(NOTIFY, allow_skipping=True, end=end, upper_certpool=end)
        else:
            request.confirm(
                want.eagerness,
                size_min=want.size_min,
                size_max=want.size_max,
                allow_skipping=not want.payload_mandatory,
                end=end,
                upper_certpool=end,
                links=confirm.links,
            )
        self.transfers.open(request)
        self.transfers.wake(request.request_id)

    # Credit.

    @property
    def turned_away(self) -> bool:
        """Whether there is a log for which the peer had no room."""
        while self._deferred and not self.states[next(iter(self._deferred))].deferred:
            self._deferred.popitem(last=False)
        return bool(self._deferred)

    @property
    def unanswered(self) -> bool:
        """Whether a proposal awaits an answer, of either side."""
        return any(request.unanswered for request in self.shared.connection.requests.values())

    @property
    def waiting(self) -> bool:
        """Whether a proposal waits for credit or for room at the peer."""
        return bool(self.wishes or self._crowded) or self.turned_away

    @property
    def settled(self) -> bool:
        """Whether all logs are settled."""
        ranged = (state for state in self.states.values() if state.ranges)
        return self.settled_but_ranges and all(state.settled for state in ranged)

    @property
    def settled_but_ranges(self) -> bool:
        """The same, but for ranges that the peer has confirmed: it may lack a part of them.

        Each log is checked after something has happened to it.
        """
        unsettled = self._unsettled
        while unsettled and self.states[next(reversed(unsettled))].settled_but_range:
            unsettled.popitem()
        return not unsettled

    def go_on(self) -> None:
        while self.wishes and self.shared.connection.proposal_credit:
            log, wish = self.wishes.popleft()
            if not decisions.still_wants(wish, self.states[log]):
                self.tell(log, steps.Unsent(wish.purpose, Step.OVERTAKE))
                continue
            request = self.shared.connection.propose(wish.proposal, links=wish.links)
            self._served.add(log)
            self.transfers.open(request, wish.begun)
            self.tell(log, steps.Sent(wish.purpose, request))

    def give_up(self) -> None:
        """Expect no more room: waiting proposals are reported as refused.

        Those of logs that have just had credit for another proposal try again after the others.
        """
        wishes = sorted(self.wishes, key=lambda each: each[0] in self._served)
        self.wishes = Queue()
        self._served.clear()
        for log, wish in wishes:
            self._crowded[log, wish.purpose] = None
            self.tell(log, steps.Unsent(wish.purpose, Step.GIVE_UP))

    def make_room(self, *, patient: bool = True, wanted: int = 0) -> None:
        """End requests that only wait for new entries.

        `patient`: only where the peer has told its part of the log, and so has sent it.
        `wanted`: the number of logs that wait for a place.
        """
        touched = self.transfers.touched
        if not patient:
            touched.update(dict.fromkeys(self.shared.connection.requests))
            wanted += self.turned_away  # the peer may get a place where a request ends
        waiting = wanted + len(self.wishes) + len(self._crowded)
        while touched and waiting > len(self.leaving):
            # If it is not idle, something will happen to it again.
            self._rest(touched.popitem(last=False)[0], patient=patient, ours=not wanted)

    def let_ranges_take_turns(self) -> bool:
        """End requests for ranges that may never be over, where others of their log wait."""
        crowded = [state for state in self.states.values() if len(state.ranges) > 1]
        found = [state.ours[Purpose.RANGE].request for state in crowded]
        ids = [request.request_id for request in found if request is not None]
        return sum(self._rest(each, patient=False, ours=True) for each in ids) > 0

    def _rest(self, request_id: int, *, patient: bool, ours: bool) -> bool:
        """End a request if it only waits for new entries; `ours`: only one that is ours."""
        request = self.transfers.idle(request_id, patient=patient)
        if request is None:
            return False
        log = request.proposal.log
        if not self.states[log].may_rest(request, patient=patient, ours=ours):
            return False
        self.leaving.add(request_id)
        self.tell(log, steps.Rested(request))
        return True

    def retry(self, log: LogKey) -> None:
        """The peer has a place for that log, since it offers it: try again."""
        if log in self._deferred:
            del self._deferred[log]
            if self.states[log].deferred:
                self.tell(log, steps.RoomMade())

    def retry_crowded(self, count: int) -> bool:
        """Make that many proposals again that got no credit; whether there were any."""
        left = count
        while self._crowded and left:
            (log, purpose), _ = self._crowded.popitem(last=False)
            if self.states[log].ours[purpose].is_turned_away:
                self.tell(log, steps.RoomMade((purpose,)))
                left -= 1
        return left < count
