"""The effects for the store, and their order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from culm.effects import Then, Tickets
from culm.machine import StoreFailed, Ticket
from culm.ssb.ebt.effects import (
    AppendMessages,
    LoadClock,
    MarkForked,
    ReadMessages,
    ReplicatorEffect,
    SaveClock,
)
from culm.ssb.ebt.feed import Feed
from culm.ssb.ebt.limits import Limits
from culm.ssb.ebt.model import Message, PeerClock
from culm.ssb.ebt.session import Session
from culm.ssb.ebt.writer import Writer

__all__ = ["Work"]

R = TypeVar("R")


class Work:
    """Effects of a replicator: small ones first, then one write at a time, then reads.

    A session has one read under way, when there is room for its messages.

    on_written: gets the messages that a write has stored, by feed.
    """

    def __init__(
        self, limits: Limits, *, on_written: Callable[[dict[str, list[Message]]], None]
    ) -> None:
        self._limits = limits
        self._on_written = on_written
        self._tickets: Tickets[Then, ReplicatorEffect] = Tickets()
        self.writer = Writer(limits)
        self._memories: dict[str, PeerClock] = {}  # on their way to the store
        self._readers: dict[int, Session] = {}  # with something to read, perhaps

    @property
    def has_room(self) -> bool:
        """Whether messages may come: there is room for them until they are written."""
        return self.writer.has_room

    @property
    def is_done(self) -> bool:
        return not len(self._tickets) and self.writer.is_idle

    # Requests

    def read_for(self, session: Session) -> None:
        """Note that there may be something to read for that session."""
        self._readers[session.number] = session

    def read_one(self, feed: Feed, then: Callable[[bytes], None]) -> None:
        """Read the last message of a feed."""
        self._tickets.ask(
            ReadMessages,
            lambda messages: then(messages[0]),
            feed=feed.id,
            first=feed.stored,
            count_max=1,
            size_max=self._limits.unsent_size_max,
        )

    def read(self, then: Callable[[tuple[bytes, ...]], None], **fields: Any) -> None:
        """Read messages for a peer without a session."""
        self._tickets.ask(ReadMessages, then, **fields)

    def mark_forked(self, feed: Feed, ours: bytes, theirs: bytes, then: Then) -> None:
        self._tickets.ask(MarkForked, then, feed=feed.id, ours=ours, theirs=theirs)

    def load_clock(self, peer: str, then: Callable[[PeerClock], None]) -> None:
        """Load a peer's clock; at once if it is still on its way to the store."""
        memory = self._memories.get(peer)
        if memory is None:
            self._tickets.ask(LoadClock, then, peer=peer)
        else:
            then(memory)

    def save_clock(self, peer: str, clock: PeerClock) -> None:
        self._memories[peer] = clock
        self._tickets.ask(SaveClock, partial(self._saved, peer, clock), peer=peer, clock=clock)

    def _saved(self, peer: str, clock: PeerClock, _: None) -> None:
        if self._memories.get(peer) is clock:  # and not a later one
            del self._memories[peer]

    # Effects

    def next_effect(self) -> ReplicatorEffect | None:
        effect = self._tickets.next_effect()
        if effect is not None:
            return effect
        batch = self.writer.next_batch()
        if batch:
            return self._tickets.hand_out(
                AppendMessages, lambda _: self._on_written(self.writer.written()), messages=batch
            )
        while self._readers:
            number = next(iter(self._readers))
            effect = self._next_read(self._readers[number])
            if effect is not None:
                return effect
            del self._readers[number]
        return None

    def _next_read(self, session: Session) -> ReplicatorEffect | None:
        relation = session.next_read()
        if relation is None:
            return None
        first = session.next_to_send(relation)
        return self._tickets.hand_out(
            ReadMessages,
            lambda messages: session.receive_read(relation, first, messages),
            feed=relation.feed.id,
            first=first,
            count_max=min(self._limits.read_count_max, relation.feed.stored + 1 - first),
            size_max=session.outgoing.read_size,
        )

    def answered(self, ticket: Ticket[R], result: R) -> Then:
        """Take an answer; returns the callback that gets it."""
        return self._tickets.answered(ticket, result)

    def failed(self, ticket: Ticket[Any], error: Exception) -> StoreFailed:
        failure, _ = self._tickets.failed(ticket, error)
        return failure

    def stop(self) -> None:
        """Issue no more effects, all sessions having ended; those issued may still be answered."""
        self._tickets.drop_asked()
        self.writer.clear()
