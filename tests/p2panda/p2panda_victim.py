"""A node, and a hostile peer that talks to it."""

from __future__ import annotations

from typing import Any

from p2panda_nodes import SCHEMA, Node
from p2panda_support import decoded

from culm.machine import Closed, Event
from culm.p2panda import (
    Dialect,
    Limits,
    OperationLeftOut,
    Policy,
    Replicator,
    ReplicatorLimits,
    SessionEnded,
    Timing,
)
from culm.p2panda.codec import Codec
from culm.p2panda.messages import Message, Reconcile, SyncRequest

CODEC = Codec(dialect=Dialect.SEED, limits=Limits())


class Victim:
    """A node and its replicator, at the mercy of a hostile peer."""

    def __init__(
        self,
        *,
        documents: int = 0,
        timing: Timing | None = None,
        asks: bool = False,
        **limits: Any,
    ) -> None:
        self.node = Node(1)
        for number in range(documents):
            self.node.create(name=f"{number}")
        self.machine = Replicator(
            local_peer=b"a",
            remote_peer=b"b",
            policy=Policy(asks=asks, live=True),
            limits=ReplicatorLimits(**limits),
            timing=timing or Timing(),
        )
        self.machine.announce((SCHEMA,), timestamp=1)
        self.effects: list[str] = []
        self.said: list[Message] = []

    def tell(self, *messages: Message | bytes) -> list[Event]:
        for each in messages:
            self.machine.receive_data(each if isinstance(each, bytes) else CODEC.encode(each))
        return self.run()

    def run(self) -> list[Event]:
        found: list[Event] = []
        busy = True
        while busy:
            busy = False
            while (event := self.machine.next_event()) is not None:
                found.append(event)
                busy = True
            while (effect := self.machine.next_effect()) is not None:
                self.effects.append(type(effect).__name__)
                self.machine.complete(effect.ticket, self.node.store.perform(effect))
                busy = True
            if data := self.machine.data_to_send():
                self.said += decoded(data, CODEC)
                busy = True
        return found

    def begin(self, mode: int = 1, session_id: int = 0) -> None:
        self.tell(SyncRequest(session_id, mode, (SCHEMA,)))

    def entries(self) -> set[bytes]:
        """All entries in the store."""
        found = self.node.store.read_new((SCHEMA,), count_max=1 << 20, size_max=1 << 30)
        return {each.entry for each in found}

    def code(self, *messages: Message | bytes) -> Any:
        """The code with which these messages of the peer end the session; nothing was stored."""
        before = len(self.node.documents())
        events = self.tell(*messages)
        (ended,) = [each for each in events if isinstance(each, (SessionEnded, Closed))]
        assert ended.error is not None
        assert len(self.node.documents()) == before
        return ended.error.code

    def refusal(self, message: Message) -> Any:
        """The reason for not storing that message, whichever side is to blame."""
        (event,) = self.tell(message)
        if isinstance(event, OperationLeftOut):
            return event.reason
        assert isinstance(event, SessionEnded)
        assert event.error is not None
        return event.error.code


def rounds(*messages: Any) -> list[Message]:
    return [Reconcile(0, each) for each in messages]
