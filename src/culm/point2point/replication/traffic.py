"""The requests under way: what comes in and what goes out for each."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from culm.bamboo.entry import LogKey
from culm.buffer import Buffer
from culm.effects import StoreWork
from culm.machine import Effect
from culm.point2point.connection import Connection
from culm.point2point.events import PayloadReceived, RequestEvent
from culm.point2point.handles import Request
from culm.point2point.replication.events import ReplicatorLimits
from culm.point2point.replication.fetching import Fetching
from culm.point2point.replication.payloads import BegunPayload
from culm.point2point.replication.readahead import ENTRY_SIZE, ReadAhead
from culm.point2point.replication.replica import Replica
from culm.point2point.replication.serving import Serving
from culm.point2point.states import State
from culm.wire.multihash import HashFamily

__all__ = ["Traffic"]


class Traffic:
    """Fetching and serving of each request, by id."""

    def __init__(
        self,
        connection: Connection,
        *,
        work: StoreWork,
        limits: ReplicatorLimits,
        family: HashFamily,
    ) -> None:
        self._connection = connection
        self._work = work
        self._limits = limits
        self._family = family
        self._involved: dict[int, Replica] = {}  # in the request of that id
        self._fetching: dict[int, Fetching] = {}
        self._unwritten: dict[int, Fetching] = {}  # those with entries in an open batch
        self._serving: dict[int, Serving] = {}
        self._by_log: dict[LogKey, dict[int, Serving]] = {}
        # Those that may have to send: such as have just got something, and such as go on.
        self._fresh: OrderedDict[int, Serving] = OrderedDict()
        self._going_on: OrderedDict[int, Serving] = OrderedDict()
        self._fresh_had_turn = False
        self.stirred: OrderedDict[int, None] = OrderedDict()  # to which something has happened
        self.ahead = ReadAhead(
            size_max=limits.read_ahead_size_max,
            read_size_max=limits.connection.packet_size_max + ENTRY_SIZE,
        )

    @property
    def count(self) -> int:
        """How many requests there are for which data may flow, now or once they are confirmed."""
        return len(self._serving)

    def involve(self, request: Request, replica: Replica) -> None:
        """A proposal of the peer is about that replica."""
        self._involved[request.request_id] = replica

    def replica_of(self, request_id: int) -> Replica | None:
        """The replica that a request is about."""
        return self._involved.get(request_id)

    def open(self, request: Request, replica: Replica, begun_payload: BegunPayload | None) -> None:
        """Data of a request may flow, now or when the peer has confirmed it."""
        request_id = request.request_id
        self.involve(request, replica)
        fetching = Fetching(
            request, replica, work=self._work, limits=self._limits, family=self._family
        )
        if begun_payload is not None:
            fetching.resume_payload(begun_payload)
        self._fetching[request_id] = fetching
        serving = self._serving[request_id] = Serving(
            request,
            replica,
            work=self._work,
            limits=self._limits,
            family=self._family,
            ahead=self.ahead,
            may_send=lambda: self._connection.send_credit() > 0,
            rouse=lambda fresh: self.rouse(request_id, fresh=fresh),
        )
        self._by_log.setdefault(replica.log, {})[request_id] = serving

    def forget(self, request_id: int) -> Replica | None:
        """A request is over; returns whose it was."""
        serving = self._serving.pop(request_id, None)
        if serving is not None:
            serving.close()
            of_log = self._by_log[serving.replica.log]
            del of_log[request_id]
            if not of_log:
                del self._by_log[serving.replica.log]
        self._fresh.pop(request_id, None)
        self._going_on.pop(request_id, None)
        fetching = self._fetching.pop(request_id, None)
        self._unwritten.pop(request_id, None)
        self.stirred.pop(request_id, None)
        if fetching is not None:
            fetching.finish()
        return self._involved.pop(request_id, None)

    # Coming in.

    def handle(self, event: RequestEvent) -> None:
        """Something happened to a request."""
        self.stirred[event.request_id] = None
        fetching = self._fetching.get(event.request_id)
        if fetching is not None:
            fetching.handle(event)
            if fetching.has_batch:
                self._unwritten[event.request_id] = fetching
        if not isinstance(event, PayloadReceived) or event.finished:
            self.rouse(event.request_id)

    def next_effect(self) -> Effect[Any] | None:
        """Ask the store for what is due by now, if it has been asked for nothing else."""
        self._flush()
        self.send_some()
        return self._work.next_effect()

    def _flush(self) -> None:
        """Write what has come in."""
        for request_id, fetching in list(self._unwritten.items()):
            fetching.flush()
            if not fetching.has_batch:
                del self._unwritten[request_id]

    def finish(self) -> None:
        """Nothing more will come in."""
        for fetching in self._fetching.values():
            fetching.finish()

    def idle(self, request_id: int) -> Replica | None:
        """What a request is about, if there is nothing to send or to receive for it just now."""
        serving = self._serving.get(request_id)
        busy = request_id in self._fresh or request_id in self._going_on
        return None if serving is None or busy or serving.busy else serving.replica

    # Going out.

    def rouse(self, request_id: int, *, fresh: bool = True) -> None:
        """There may be something to send for a request: something new (`fresh`), or more."""
        serving = self._serving.get(request_id)
        if serving is None or request_id in self._going_on or request_id in self._fresh:
            return
        queue = self._fresh if fresh else self._going_on
        queue[request_id] = serving

    def under_way(self, log: LogKey) -> list[Request]:
        """The requests about `log` for which data may flow, now or once they are confirmed."""
        return [each.request for each in self._by_log.get(log, {}).values()]

    def wake(self, log: LogKey) -> None:
        """There are new entries of `log`."""
        for request_id, serving in self._by_log.get(log, {}).items():
            serving.wake()
            self.rouse(request_id)

    def pieces_to_send(self, size_max: int | None) -> list[Buffer]:
        """Take bytes for the peer, and choose what else there is to send as far as they go."""
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

        Each request gets its turn, a packet at a time; one that has just got something does not
        wait for those that go on and on, nor they for more than one of these.  Nothing is put
        behind data that waits for the peer's credit, nor read for that.
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
            request_id, serving = queue.popitem(last=False)
            self._fresh_had_turn = queue is self._fresh
            if serving.step():
                self._going_on[request_id] = serving
                self._fresh.pop(request_id, None)
            elif request_id not in self._going_on and request_id not in self._fresh:
                serving.rest()
                self.stirred[request_id] = None
            unsent_size = connection.unsent_size()
        return unsent_size > 0

    def _turn(self) -> OrderedDict[int, Serving]:
        """Where the request is that is next."""
        if self._fresh and not (self._going_on and self._fresh_had_turn):
            return self._fresh
        return self._going_on

    def _prepare(self) -> None:
        """Have read what is to be sent next; no more, for nobody knows when that will be."""
        next(iter(self._turn().values())).prepare()
