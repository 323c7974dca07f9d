"""Whose turn it is: to be proposed, and to have data sent."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from culm.bamboo.verify import PayloadVerifier
from culm.buffer import Buffer
from culm.effects import StoreWork
from culm.point2point.connection import Connection
from culm.point2point.events import PayloadReceived, RequestEvent
from culm.point2point.handles import Request
from culm.point2point.replication.download import Download
from culm.point2point.replication.limits import ENTRY_SIZE, ReplicatorLimits
from culm.point2point.replication.proposals import OurRequest, Prepared
from culm.point2point.replication.replica import Replica
from culm.point2point.replication.states import Stage
from culm.point2point.replication.upload import ReadAhead, Upload
from culm.point2point.states import State

__all__ = ["Proposer", "Transfers"]


class Transfers:
    """The requests for which data may flow, by id: a download and an upload each."""

    def __init__(
        self, connection: Connection, *, work: StoreWork, limits: ReplicatorLimits
    ) -> None:
        self._connection = connection
        self._work = work
        self._limits = limits
        self._replicas: dict[int, Replica] = {}  # by the requests that are about them
        self._downloads: dict[int, Download] = {}
        self._unwritten: dict[int, Download] = {}  # those with entries in an open batch
        self._uploads: dict[int, Upload] = {}
        # Those that may have something to send: those with something new, and those that go on.
        self._fresh: OrderedDict[int, Upload] = OrderedDict()
        self._going_on: OrderedDict[int, Upload] = OrderedDict()
        self._fresh_had_turn = False
        self.touched: OrderedDict[int, None] = OrderedDict()  # to which something has happened
        self.ahead = ReadAhead(
            size_max=limits.read_ahead_size_max,
            read_size_max=limits.connection.packet_size_max + ENTRY_SIZE,
        )

    @property
    def count(self) -> int:
        """How many requests there are for which data may flow, now or once they are confirmed."""
        return len(self._uploads)

    def involve(self, request: Request, replica: Replica) -> None:
        """A proposal of the peer is about that replica."""
        self._replicas[request.request_id] = replica

    def replica_of(self, request_id: int) -> Replica | None:
        """The replica that a request is about."""
        return self._replicas.get(request_id)

    def open(self, request: Request, replica: Replica, begun: PayloadVerifier | None) -> None:
        """Data of a request may flow, now or when the peer has confirmed it."""
        request_id = request.request_id
        self.involve(request, replica)
        download = Download(request, replica, work=self._work, limits=self._limits)
        if begun is not None:
            download.resume_payload(begun)
        self._downloads[request_id] = download
        self._uploads[request_id] = Upload(
            request,
            replica,
            work=self._work,
            limits=self._limits,
            ahead=self.ahead,
            may_send=lambda: self._connection.send_credit() > 0,
            rouse=lambda fresh: self.rouse(request_id, fresh=fresh),
        )

    def forget(self, request_id: int) -> None:
        """A request is over."""
        upload = self._uploads.pop(request_id, None)
        if upload is not None:
            upload.close()
        download = self._downloads.pop(request_id, None)
        if download is not None:
            download.finish()
        for kept in (self._replicas, self._unwritten, self._fresh, self._going_on, self.touched):
            kept.pop(request_id, None)

    # Coming in.

    def handle(self, event: RequestEvent) -> None:
        """Something happened to a request."""
        self.touched[event.request_id] = None
        download = self._downloads.get(event.request_id)
        if download is not None:
            download.handle(event)
            if download.has_batch:
                self._unwritten[event.request_id] = download
        if not isinstance(event, PayloadReceived) or event.finished:
            self.rouse(event.request_id)

    def ask(self) -> None:
        """Ask the store for what is due by now."""
        self._flush()
        self.send_some()

    def _flush(self) -> None:
        """Write what has come in."""
        for request_id, download in list(self._unwritten.items()):
            download.flush()
            if not download.has_batch:
                del self._unwritten[request_id]

    def finish(self) -> None:
        """Nothing more will come in."""
        for download in self._downloads.values():
            download.finish()

    def idle(self, request_id: int) -> Replica | None:
        """What a request is about, if there is nothing to send or to receive for it just now."""
        upload = self._uploads.get(request_id)
        busy = request_id in self._fresh or request_id in self._going_on
        return None if upload is None or busy or upload.busy else upload.replica

    # Going out.

    def rouse(self, request_id: int, *, fresh: bool = True) -> None:
        """There may be something to send for a request: something new (`fresh`), or more."""
        upload = self._uploads.get(request_id)
        if upload is None or request_id in self._going_on or request_id in self._fresh:
            return
        queue = self._fresh if fresh else self._going_on
        queue[request_id] = upload

    def wake(self, replica: Replica) -> None:
        """There are new entries of its log, or payloads."""
        for request_id in replica.under_way:
            self._uploads[request_id].wake()
            self.rouse(request_id)

    def pieces_to_send(self, size_max: int | None) -> list[Buffer]:
        """Take bytes for the peer; as far as there is room for more, choose what else to send."""
        pieces = self._connection.pieces_to_send(size_max)
        left = None if size_max is None else size_max - sum(map(len, pieces))
        while (left is None or left > 0) and self.send_some():
            more = self._connection.pieces_to_send(left)
            if not more:
                break
            pieces += more
            left = None if left is None else left - sum(map(len, more))
        return pieces

    def send_some(self) -> bool:
        """Put about a packet's worth of data on its way; returns whether there was some.

        Requests take turns, a packet at a time.  One that has just got something new does not wait
        for those that go on and on, and they wait for no more than one of these.  Nothing is queued
        behind data that waits for the peer's credit, nor read for that purpose.
        """
        connection = self._connection
        if not self._turn() or connection.state is not State.ESTABLISHED:
            return False
        unsent_size = connection.unsent_size()
        if unsent_size:
            self._prepare()
            return False
        size_max = self._limits.connection.packet_size_max
        while (
            unsent_size < size_max
            and (not unsent_size or connection.send_credit())
            and (queue := self._turn())
        ):
            request_id, upload = queue.popitem(last=False)
            self._fresh_had_turn = queue is self._fresh
            if upload.step():
                self._going_on[request_id] = upload
                self._fresh.pop(request_id, None)
            elif request_id not in self._going_on and request_id not in self._fresh:
                upload.rest()
                self.touched[request_id] = None
            unsent_size = connection.unsent_size()
        return unsent_size > 0

    def _turn(self) -> OrderedDict[int, Upload]:
        """Where the request is that is next."""
        if self._fresh and not (self._going_on and self._fresh_had_turn):
            return self._fresh
        return self._going_on

    def _prepare(self) -> None:
        """Have the store read what is sent next; no more, for nobody knows when that will be."""
        next(iter(self._turn().values())).prepare()


class _Wish(NamedTuple):
    """A proposal that we want to make."""

    replica: Replica
    ours: OurRequest
    prepared: Prepared


class Proposer:
    """Makes proposals in the order of the wishes, as far as there is credit (`ReplicaOwner`).

    If there are more logs than requests, those without an end take turns: one for which both sides
    have everything ends, and is proposed again when there is something new.
    """

    def __init__(self, connection: Connection, transfers: Transfers) -> None:
        self._connection = connection
        self._transfers = transfers
        self._wishes: deque[_Wish] = deque()  # that wait for credit
        self._leaving: set[int] = set()  # requests that end to make room for them
        # Replicas that are to try again when there is room.  What is taken from the front of a dict
        # has to be passed over every time after that.
        self._deferred: OrderedDict[Replica, None] = OrderedDict()
        self._crowded: OrderedDict[Replica, None] = OrderedDict()  # those that got no credit
        self._unsettled: dict[Replica, None] = {}  # all that are so, and some that were

    @property
    def waiting(self) -> bool:
        """Whether something is to be proposed as soon as there is credit."""
        return bool(self._wishes)

    @property
    def expecting(self) -> bool:
        """Whether there will be credit for what waits as soon as the peer answers."""
        return bool(self._wishes and self._leaving)

    @property
    def settled(self) -> bool:
        """Whether all replicas are settled; each is checked after something has happened to it."""
        while self._unsettled and next(reversed(self._unsettled)).settled:
            self._unsettled.popitem()
        return not self._unsettled

    def ended(self, request_id: int) -> None:
        """A request is over."""
        self._leaving.discard(request_id)

    def make_room(self, *, patient: bool = True, wanted: int = 0) -> None:
        """End requests that only wait for what is to come.

        `patient`: only where the peer has said how far it has the log, and so has sent it.
        `wanted`: how many logs wait for a place.
        """
        touched = self._transfers.touched
        if not patient:
            touched.update(dict.fromkeys(self._connection.requests))
            wanted += self.turned_away  # the peer may make a place of what ends here
        waiting = wanted + len(self._wishes) + len(self._crowded)
        while touched and waiting > len(self._leaving):
            request_id, _ = touched.popitem(last=False)
            # If it is not idle, something will happen to it again.
            replica = self._transfers.idle(request_id)
            if replica is not None and replica.rest(request_id, patient=patient, ours=not wanted):
                self._leaving.add(request_id)

    @property
    def turned_away(self) -> bool:
        """Whether there is a log for which the peer had no room."""
        while self._deferred and not next(iter(self._deferred)).deferred:
            self._deferred.popitem(last=False)
        return bool(self._deferred)

    @property
    def makes_room(self) -> bool:
        """Whether requests are about to end so that others have room."""
        return bool(self._leaving)

    def give_up(self) -> None:
        """Nobody makes room: what waits is reported as refused."""
        wishes, self._wishes = self._wishes, deque()
        for wish in wishes:
            self._crowded[wish.replica] = None
            self.unsettle(wish.replica)
            wish.replica.crowded_out(wish.ours)

    def go_on(self) -> None:
        """Propose what there is credit for."""
        while self._wishes and self._connection.proposal_credit:
            replica, ours, prepared = self._wishes.popleft()
            self.unsettle(replica)
            if replica.ours.still_wants(ours, prepared):
                request = self._connection.propose(prepared.proposal, links=prepared.links)
                self._transfers.open(request, replica, prepared.begun)
                replica.sent(ours, request)

    def retry(self) -> None:
        """A request has ended: there may be room for one that was refused for lack of it."""
        _ = self._retry_first(self._crowded) or self._retry_first(self._deferred)

    def retry_crowded(self) -> None:
        """There is credit: propose what was refused for lack of it."""
        for _ in range(self._connection.proposal_credit):
            if not self._retry_first(self._crowded):
                break

    def _retry_first(self, waiting: OrderedDict[Replica, None]) -> bool:
        """Let the first of those that wait try again; whether there was one."""
        while waiting:
            replica, _ = waiting.popitem(last=False)
            if replica.deferred:
                self.unsettle(replica)
                replica.retry()
                return True
        return False

    # What replicas ask for.

    def defer(self, replica: Replica) -> None:
        """There was no room for what it proposes: let it try again when there may be some."""
        self._deferred[replica] = None

    def propose(self, replica: Replica, ours: OurRequest, prepared: Prepared) -> None:
        """Propose as soon as there is credit; `OurRequests.sent` is told then."""
        self._wishes.append(_Wish(replica, ours, prepared))
        self.go_on()
        if ours.stage is Stage.QUEUED:
            replica.queued()

    def confirmed(self, request: Request, replica: Replica) -> None:
        """Data of a request may flow."""
        self._transfers.open(request, replica, None)
        self._transfers.rouse(request.request_id)

    def wake(self, replica: Replica) -> None:
        """Something that requests may have waited for is in the store."""
        self._transfers.wake(replica)

    def unsettle(self, replica: Replica) -> None:
        """Something has happened to a replica: see again whether it has settled."""
        self._unsettled[replica] = None

    def forget(self, replica: Replica) -> None:
        """Nothing will happen to a replica any more."""
        self._unsettled.pop(replica, None)
        self._deferred.pop(replica, None)
        self._crowded.pop(replica, None)

    def touch(self, request: Request | None) -> None:
        """Something has happened that may let a request rest."""
        if request is not None:
            self._transfers.touched[request.request_id] = None
