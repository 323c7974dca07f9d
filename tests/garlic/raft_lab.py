"""One core under a test's hands: the test plays its peers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from culm.garlic.raft import (
    Apply,
    Configuration,
    Entry,
    Limits,
    Persist,
    Raft,
    Server,
    Snapshot,
    State,
    Stored,
    Timing,
)
from culm.garlic.raft.messages import (
    AppendRequest,
    AppendResponse,
    Message,
    VoteRequest,
    VoteResponse,
)
from culm.machine import Effect, Event

M = TypeVar("M", bound=Message)

TIMING = Timing(
    election_timeout_min_s=1.0,
    election_timeout_max_s=2.0,
    heartbeat_interval_s=0.5,
    request_timeout_s=0.9,
)
LIMITS = Limits(sync_gap=2, attempts_max=3, chunk_size=4, trailing_entries=0, catch_up_entries=0)


def configuration(*ids: int, index: int = 0, last: int = 0) -> Configuration:
    return Configuration(index, last, tuple(Server(one, f"tcp://lab:{one}") for one in ids))


def founders(*ids: int) -> Stored:
    return Stored(snapshot=Snapshot(configuration=configuration(*ids)))


def entries(*terms: int) -> list[Entry]:
    return [Entry(term, b"%d" % position) for position, term in enumerate(terms)]


class Lab:
    """Core 1 of a cluster; effects are done at once unless `hold` is set."""

    def __init__(
        self,
        stored: Stored | None = None,
        *,
        server_id: int = 1,
        log: Sequence[int] = (),
        term: int = 0,
        pre_vote: bool = False,
        asks_leader: bool = False,
        **changes: object,
    ) -> None:
        stored = founders(1, 2, 3) if stored is None else stored
        stored = replace(stored, term=term or stored.term, entries=entries(*log) or stored.entries)
        of_timing = {name: value for name, value in changes.items() if name.endswith("_s")}
        of_limits = {name: value for name, value in changes.items() if name not in of_timing}
        self.core = Raft(
            server_id=server_id,
            stored=stored,
            timing=replace(TIMING, **of_timing),  # type: ignore[arg-type]
            limits=replace(LIMITS, **of_limits),  # type: ignore[arg-type]
            rng=random.Random(1),
            now=0.0,
            pre_vote=pre_vote,
            asks_leader=asks_leader,
        )
        self.now = 0.0
        self.hold = False
        self.pending: list[Effect] = []
        self.effects: list[Effect] = []
        self.events: list[Event] = []
        self.sent: list[Message] = []
        self.applied: list[Entry] = []

    def drain(self) -> list[Message]:
        """Take everything; returns the messages of this turn."""
        while True:
            while (event := self.core.next_event()) is not None:
                self.events.append(event)
            effect = self.core.next_effect()
            if effect is None:
                break
            self.effects.append(effect)
            if self.hold:
                self.pending.append(effect)
            else:
                self.do(effect)
        messages = self.core.messages_to_send()
        self.sent += messages
        return messages

    def do(self, effect: Effect, result: object = None) -> None:
        if isinstance(effect, Apply):
            self.applied += effect.entries
        self.core.complete(effect.ticket, result)

    def release(self) -> list[Message]:
        pending, self.pending = self.pending, []
        for effect in pending:
            self.do(effect)
        return self.drain()

    def tell(self, message: Message) -> list[Message]:
        self.core.receive_message(message)
        return self.drain()

    def wait(self, seconds: float) -> list[Message]:
        self.now += seconds
        self.core.advance(self.now)
        return self.drain()

    # Messages of peers

    def append(
        self,
        *,
        source: int = 2,
        term: int,
        previous: tuple[int, int] = (0, 0),
        commit: int = 0,
        entries: Sequence[Entry] = (),
    ) -> AppendResponse:
        return one(
            self.tell(
                AppendRequest(
                    source=source,
                    destination=self.core.server_id,
                    term=term,
                    previous_index=previous[0],
                    previous_term=previous[1],
                    commit_index=commit,
                    entries=entries,
                )
            ),
            AppendResponse,
        )

    def ask_vote(
        self, *, source: int = 2, term: int, last: tuple[int, int] = (0, 0), transfer: bool = False
    ) -> VoteResponse:
        return one(
            self.tell(
                VoteRequest(
                    source=source,
                    destination=self.core.server_id,
                    term=term,
                    last_log_index=last[0],
                    last_log_term=last[1],
                    transfer=transfer,
                )
            ),
            VoteResponse,
        )

    def vote(self, source: int, *, term: int | None = None, accepted: bool = True) -> list[Message]:
        return self.tell(
            VoteResponse(
                source=source,
                destination=self.core.server_id,
                term=self.core.term if term is None else term,
                next_index=0,
                accepted=accepted,
            )
        )

    def accept(self, request: Message, *, next_index: int | None = None) -> list[Message]:
        """The peer accepts an append request."""
        assert isinstance(request, AppendRequest)
        end = request.previous_index + len(request.entries) + 1
        return self.answer(request, end if next_index is None else next_index, accepted=True)

    def answer(self, request: Message, next_index: int, *, accepted: bool) -> list[Message]:
        return self.tell(
            AppendResponse(
                source=request.destination,
                destination=request.source,
                term=request.term,
                sequence=request.sequence,
                next_index=next_index,
                accepted=accepted,
            )
        )

    def lead(self) -> list[Message]:
        """Become leader; returns the first append requests."""
        self.wait(2.0)
        # a core that wakes so late gives the leader more time
        if self.core.state is State.FOLLOWER:
            self.wait(2.0)
        assert self.core.state is State.CANDIDATE
        messages: list[Message] = []
        for peer in self.core.configuration.ids - {self.core.server_id}:
            if self.core.state is not State.LEADER:
                messages = self.vote(peer)
        assert self.core.state is State.LEADER
        return messages

    def settle(self, messages: list[Message]) -> None:
        """Peers accept everything, until no message is left."""
        while messages:
            request = messages.pop(0)
            if isinstance(request, AppendRequest):
                messages += self.accept(request)

    @property
    def log(self) -> list[int]:
        """Terms of the log."""
        log = self.core.log
        return [entry.term for entry in log.slice(log.base_index + 1, log.last_index)]

    @property
    def persists(self) -> list[Persist]:
        return [effect for effect in self.effects if isinstance(effect, Persist)]


def one(messages: Sequence[Message], kind: type[M]) -> M:
    """The only message of that kind."""
    found = [message for message in messages if isinstance(message, kind)]
    assert len(found) == 1, messages
    return found[0]


def all_of(messages: Sequence[Message], kind: type[M]) -> list[M]:
    return [message for message in messages if isinstance(message, kind)]
