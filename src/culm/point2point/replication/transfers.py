"""The requests for which data may flow, and whose turn it is to have data sent."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from culm.bamboo.entry import LogKey
from culm.bamboo.verify import PayloadVerifier
from culm.buffer import Buffer
from culm.effects import StoreWork
from culm.point2point.connection import Connection
from culm.point2point.events import PayloadReceived, RequestEvent
from culm.point2point.handles import Request
from culm.point2point.replication.download import Download
from culm.point2point.replication.limits import ENTRY_SIZE, ReplicatorLimits
from culm.point2point.replication.log_state import LogState
from culm.point2point.replication.steps import Inputs
from culm.point2point.replication.upload import Upload
from culm.point2point.states import State
from culm.replication import Room, Turns

__all__ = ["Transfers"]


class Transfers:
    """The requests for which data may flow, by id: a download and an upload each."""

    def __init__(
        self,
        connection: Connection,
        *,
        logs: Mapping[LogKey, LogState],
        work: StoreWork,
        limits: ReplicatorLimits,
    ) -> None:
        self.inputs = Inputs()
        """What has happened to the logs of the requests, to be taken from here."""
        self.touched: OrderedDict[int, None] = OrderedDict()
        """The requests to which something has happened."""
        self._connection = connection
        self._logs = logs
        self._work = work
        self._limits = limits
        self._about: dict[int, LogKey] = {}
        self._downloads: dict[int, Download] = {}
        self._unwritten: dict[int, Download] = {}  # those with entries in an open batch
        self._uploads: dict[int, Upload] = {}
        self._turns: Turns[int] = Turns()  # of those that may have something to send
        self.room = Room(
            self._turns,
            size_max=limits.read_ahead_size_max,
            read_size_max=limits.connection.packet_size_max + ENTRY_SIZE,
        )

    @property
    def count(self) -> int:
        """How many requests there are for which data may flow, now or once they are confirmed."""
        return len(self._uploads)

    def involve(self, request: Request) -> None:
        """A proposal is about a log that has a place."""
        self._about[request.request_id] = request.proposal.log

    def log_of(self, request_id: int) -> LogKey | None:
        """The log that a request is about, if it has a place."""
        return self._about.get(request_id)

    def open(self, request: Request, begun: PayloadVerifier | None = None) -> None:
        """Data of a request may flow, now or when the peer has confirmed it."""
        request_id, work, limits = request.request_id, self._work, self._limits
        self.involve(request)
        family = self._logs[request.proposal.log].family
        download = Download(request, family=family, inputs=self.inputs, work=work, limits=limits)
        if begun is not None:
            download.resume_payload(begun)
        self._downloads[request_id] = download
        self._uploads[request_id] = Upload(
            request,
            connection=self._connection,
            logs=self._logs,
            inputs=self.inputs,
            work=work,
            limits=limits,
            room=self.room,
            turns=self._turns,
        )

    def forget(self, request_id: int) -> None:
        """A request is over."""
        upload = self._uploads.pop(request_id, None)
        if upload is not None:
            upload.close()
        download = self._downloads.pop(request_id, None)
        if download is not None:
            download.finish()
        self._about.pop(request_id, None)
        self._unwritten.pop(request_id, None)
        self.touched.pop(request_id, None)
        self._turns.discard(request_id)

    def touch(self, request_id: int) -> None:
        """Something has happened that may let a request rest."""
        self.touched[request_id] = None

    # Coming in.

    def handle(self, event: RequestEvent) -> None:
        """Something happened to a request."""
        self.touch(event.request_id)
        download = self._downloads.get(event.request_id)
        if download is not None:
            download.handle(event)
            if download.has_batch:
                self._unwritten[event.request_id] = download
        if not isinstance(event, PayloadReceived) or event.finished:
            self.wake(event.request_id)

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

    def idle(self, request_id: int) -> Request | None:
        """That request, if there is nothing to send or to receive for it just now."""
        upload = self._uploads.get(request_id)
        if upload is None or request_id in self._turns or upload.busy:
            return None
        return upload.request

    # Going out.

    def wake(self, request_id: int) -> None:
        """There may be something new to send for a request."""
        if request_id in self._uploads:
            self._turns.add(request_id)

    def tell_news(self, request_id: int) -> None:
        """There are new entries of its log in the store, or payloads."""
        self._uploads[request_id].wake()
        self._turns.add(request_id)

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
        if not self._turns or connection.state is not State.ESTABLISHED:
            return False
        unsent_size = connection.unsent_size()
        if unsent_size:
            # Read what is sent next; no more, for nobody knows when that will be.
            self._uploads[self._turns.first()].prepare()
            return False
        size_max = self._limits.connection.packet_size_max
        while self._turns and unsent_size < size_max:
            if unsent_size and not connection.send_credit():
                break
            request_id = self._turns.take()
            upload = self._uploads[request_id]
            if upload.step():
                self._turns.go_on(request_id)
            elif request_id not in self._turns:
                upload.rest()
                self.touched[request_id] = None
            unsent_size = connection.unsent_size()
        return unsent_size > 0
