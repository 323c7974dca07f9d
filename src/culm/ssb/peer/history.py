"""Feeds over one link without a session: createHistoryStream in both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from culm.ssb.ebt import Replicator
from culm.ssb.history import HistoryReader, HistoryServer
from culm.ssb.muxrpc import CallEnded, CallReceived, Connection, ValueReceived
from culm.ssb.peer.context import Context


class _Reads:
    """The way of what was read to a link, as long as that lasts: a slow store does not keep it."""

    def __init__(self, history: LinkHistory) -> None:
        self._history: LinkHistory | None = history

    def take(self, number: int, messages: Sequence[bytes]) -> None:
        if self._history is not None:
            self._history.have_read(number, messages)

    def end(self) -> None:
        self._history = None


class LinkHistory:
    """createHistoryStream over one link, whose peer is known.

    wake: called when there may be something to send.

    Reader and server are made only when they are needed.
    """

    def __init__(
        self,
        *,
        peer: str,
        rpc: Connection,
        context: Context,
        heard_at: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._peer = peer
        self._rpc = rpc
        self._context = context
        self._core = context.core
        self._time = context.time
        self._heard_at = heard_at
        self._wake = wake
        self._server: HistoryServer | None = None
        self._reads = _Reads(self)
        self._reader: HistoryReader | None = None

    def is_of(self, number: int) -> bool:
        """Whether a call is ours, and asks for a feed."""
        return self._reader is not None and self._reader.is_of(number)

    # Asking

    def begin(self) -> None:
        """Ask for all feeds that are exchanged with the peer."""
        core = self._core
        self._reader = HistoryReader(
            connection=self._rpc,
            next_of=lambda feed: _next_of(core, feed),
            heard_at=self._heard_at,
            room=self._context.early_room,
            limits=self._context.limits.history,
            timing=self._context.timing.history,
        )
        for feed in self._core.followed:
            self.update(feed)

    def stop(self) -> None:
        """Stop asking for feeds: there is a session."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.stop(self._time.now)

    def receive(self, event: ValueReceived) -> None:
        """Take a value of the peer in a call that asks for a feed."""
        reader = self._reader
        if reader is None:
            return
        for message in reader.receive(event, self._time.now):
            if not self._core.receive_outside(
                self._peer, message.author, message.sequence, message
            ):
                reader.reject(message.author, self._time.now)
                return

    # Calls of the peer

    def open(self, event: CallReceived) -> None:
        """Take the peer's request for a feed."""
        if self._server is None:
            core, peer, time = self._core, self._peer, self._time
            self._server = HistoryServer(
                connection=self._rpc,
                last_of=core.stored,
                may_read=lambda feed: core.shares(feed, peer),
                time_ms=lambda: time.unix_ms,
                limits=self._context.limits.history,
            )
        self._server.open(self._rpc.call(event.number), event.args)
        self._read(self._server)

    def _read(self, server: HistoryServer) -> None:
        """Have the store read as much as can be sent."""
        while (read := server.next_read()) is not None:
            self._core.read(
                read.feed,
                first=read.first,
                count_max=read.count_max,
                size_max=read.size_max,
                then=partial(self._reads.take, read.number),
            )

    def have_read(self, number: int, messages: Sequence[bytes]) -> None:
        """Take what the store has read."""
        if self._server is not None:
            self._server.take(number, messages)
            self._read(self._server)
            self._wake()

    def make_room(self) -> None:
        """Let the peer make one more call: a call that waits for news gives up its place."""
        if self._server is not None:
            self._server.make_room()

    def fill(self) -> None:
        """Send messages that the peer has asked for, and ask for feeds, as far as there is room."""
        if self._server is not None:
            self._read(self._server)
        if self._reader is not None:
            self._reader.fill(self._time.now)

    # Both directions

    def update(self, feed: str) -> None:
        """Look again whether the feed is exchanged with the peer."""
        shares = self._core.shares(feed, self._peer)
        if self._server is not None and not shares:
            self._server.withdraw(feed)
        if self._reader is not None:
            (self._reader.want if shares else self._reader.forget)(feed, self._time.now)
        self._wake()

    def grown(self, feed: str) -> None:
        """Serve new messages of a feed."""
        if self._server is not None:
            self._server.grown(feed)
            self._read(self._server)
            self._wake()

    def call_ended(self, event: CallEnded) -> None:
        if self._server is not None:
            self._server.call_ended(event.number)
        if self._reader is not None:
            self._reader.call_ended(event, self._time.now)

    def disconnect(self) -> None:
        """Drop all calls: the link has ended."""
        self._reads.end()
        if self._server is not None:
            self._server.close()
        if self._reader is not None:
            self._reader.close()

    # Time

    def next_deadline(self) -> float | None:
        return None if self._reader is None else self._reader.next_deadline()

    def advance(self) -> None:
        if self._reader is not None:
            self._reader.advance(self._time.now)


def _next_of(core: Replicator, feed: str) -> int:
    head = core.head(feed)
    return 1 if head is None else head.sequence + 1
