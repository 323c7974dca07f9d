"""The diagrams of docs/replicator.md: real conversations of two replicators.

``python tests/point2point/replicator_page.py`` writes them into the page, between the markers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

from p2p_page import filled
from p2p_page import words as connection_words
from replicator_support import (
    FETCH,
    KEEP,
    SERVE,
    SMALL,
    End,
    Node,
    World,
    key_of,
    news_of,
    store_of,
)

from culm.machine import Event
from culm.point2point import (
    Cancelled,
    Closed,
    Confirmed,
    CreditReceived,
    EntryWanted,
    Established,
    HashWanted,
    IdFreed,
    PayloadReceived,
    Proposal,
    ProposalDropped,
    Proposed,
    RequestEnded,
)
from culm.point2point.replication import (
    EntryStored,
    ForkFound,
    Interest,
    LogOffered,
    LogRefused,
    LogSynced,
    PayloadProgress,
    PiecesNotified,
    ReplicatorLimits,
    Settled,
    Want,
)
from culm.point2point.replication.events import LogEvent
from culm.point2point.replication.steps import (
    PEER_STAGES,
    STAGES,
    PeerStage,
    Stage,
)

PAGE = Path(__file__).parents[2] / "docs" / "replicator.md"
OTHER = {"A": "B", "B": "A"}


class Diagram:
    """The messages of two nodes and their effects, as the lines of a sequence diagram."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lines: list[str] = []
        self._tapped: list[End] = []

    def connect(self, one: Node, other: Node) -> None:
        """Connect `one`, A, to `other`, B; everything they say from now on is drawn."""
        cable = self.world.connect(one, other)
        for name, end in (("A", cable.left), ("B", cable.right)):
            self._tap(name, end)
        self.world.settle()

    def _tap(self, name: str, end: End) -> None:
        self._tapped.append(end)
        for machine, tell in (
            (end.machine.connection, lambda event: self._heard(name, event)),
            (end.machine, lambda event: self._told(name, event)),
        ):
            machine.next_event = _telling(machine.next_event, tell)

    def _heard(self, name: str, event: Event) -> None:
        """An event of the connection: a message from the other side."""
        if isinstance(event, (Established, CreditReceived, RequestEnded, IdFreed, Closed)):
            return
        if isinstance(event, (ProposalDropped, HashWanted, EntryWanted)):
            self.note(name, connection_words(event))
            return
        arrow = f"    {OTHER[name]}->>{name}: "
        more = f"{arrow}PayloadReceived(..)"
        if isinstance(event, PayloadReceived) and event.offset and not event.finished:
            if self.lines[-1] == more:
                return
            if self.lines[-1].startswith(f"{arrow}PayloadReceived("):
                self.lines.append(more)
                return
        self.lines.append(arrow + _words(event))

    def _told(self, name: str, event: Event) -> None:
        """An event of the replicator."""
        if isinstance(event, (Settled, Closed, PayloadProgress, LogOffered)):
            return
        self.note(name, _words(event))

    def note(self, names: str, text: str) -> None:
        note = f"    Note over {names}: "
        if self.lines and self.lines[-1].startswith(note):
            self.lines[-1] += f"<br/>{text}"
        else:
            self.lines.append(note + text)

    def drawn(self) -> str:
        head = ["sequenceDiagram", "    participant A", "    participant B"]
        return "\n".join(["```mermaid", *head, *self.lines, "```"])


def _telling(
    next_event: Callable[[], Event | None], tell: Callable[[Event], None]
) -> Callable[[], Event | None]:
    def telling() -> Event | None:
        event = next_event()
        if event is not None:
            tell(event)
        return event

    return telling


def _words(event: Event) -> str:
    match event:
        case Proposed(proposal=proposal):
            return f"Proposed(request {event.request_id}, {_range(proposal)})"
        case Confirmed(adjustment=adjustment):
            eagerness = adjustment.eagerness
            wants = "" if eagerness is None or eagerness.wants_metadata else ", notify only"
            return f"Confirmed(request {event.request_id}{wants})"
        case Cancelled(cancel=cancel):
            proof = " with both entries" if cancel.proof is not None else ""
            return f"Cancelled(request {event.request_id}, {cancel.reason.name}{proof})"
        case PayloadReceived():
            last = ", the last" if event.finished else ""
            return f"PayloadReceived(entry {event.seqnum}, from byte {event.offset}{last})"
        case EntryStored():
            payload = "with payload" if event.payload_stored else "metadata"
            return f"EntryStored({event.seqnum}, {payload})"
        case ForkFound(proof=proof):
            return f"ForkFound(at {proof.seqnum})"
        case LogSynced() | PiecesNotified():
            return f"{type(event).__name__}({event.seqnum})"
        case LogRefused():
            reason = event.reason or event.fault
            return f"LogRefused({'' if reason is None else reason.name})"
        case LogEvent():
            return type(event).__name__
    return connection_words(event)


def _range(proposal: Proposal) -> str:
    start, end = proposal.start, proposal.end
    text = f"from {start} on" if end is None else f"{start} to {end}" if end > start else f"{start}"
    parts = [f"entries {text}" if end is None or end > start else f"entry {text}"]
    if proposal.start_offset is not None:
        parts = [f"{parts[0]}, from byte {proposal.start_offset}"]
    if proposal.lower_certpool is not None and proposal.lower_certpool < start:
        parts.append(f"pool from {proposal.lower_certpool}")
    if proposal.upper_certpool is not None and end is not None and proposal.upper_certpool > end:
        parts.append(f"pool to {proposal.upper_certpool}")
    parts += ["sparse"] * proposal.sparse + ["payloads only"] * proposal.payload_only
    return ", ".join(parts)


# The conversations


def live() -> Diagram:
    """An entry that is stored while the connection is open."""
    news = news_of((20, 30, 40))
    diagram = Diagram(World())
    reader = diagram.world.node(interest=KEEP)
    author = diagram.world.node(store_of(news[:2]), interest=SERVE)
    diagram.connect(reader, author)
    diagram.note("B", "another process stores entry 3")
    diagram.note("B", "stored(log)")
    author.add(news[2])
    diagram.world.settle()
    assert reader.store.entries(key_of(news)) == author.store.entries(key_of(news))
    return diagram


def sparse() -> Diagram:
    """One entry, and the proof that it belongs to its log."""
    news = news_of(tuple(range(41)))
    diagram = Diagram(World())
    reader = diagram.world.node(interest=Interest(live=False, accept_new_logs=True, want=None))
    server = diagram.world.node(store_of(news), interest=SERVE)
    diagram.connect(reader, server)
    diagram.note("A", "LogOffered(41)")
    diagram.note("A", "replicate(log, Want(first=30, last=30, sparse=True))")
    reader.end.machine.replicate(key_of(news), Want(first=30, last=30, sparse=True))
    reader.end.drain()
    diagram.world.settle()
    assert [e.seqnum for e in reader.store.entries(key_of(news)) if e.payload_complete] == [30]
    return diagram


def fork() -> Diagram:
    """Two branches meet."""
    news, other = news_of((20,) * 4), news_of((20,) * 4, branch=b"other", fork_at=3)
    diagram = Diagram(World())
    one = diagram.world.node(store_of(news[:3]), interest=KEEP)
    two = diagram.world.node(store_of(other), interest=KEEP)
    diagram.connect(one, two)
    for node in (one, two):
        proof = node.store.fork(key_of(news))
        assert proof is not None
        assert proof.seqnum == 3
    return diagram


def resume() -> Diagram:
    """A connection that breaks inside a payload, and the next one."""
    news = news_of((20, 3000))
    log = key_of(news)
    narrow = replace(SMALL.connection, data_window_max=1024)
    limits = ReplicatorLimits(payload_inline_max=500, connection=narrow)
    diagram = Diagram(World())
    reader = diagram.world.node(interest=FETCH, limits=limits)
    server = diagram.world.node(store_of(news), interest=SERVE, limits=limits)
    cable = diagram.world.connect(reader, server)
    while not (kept := reader.store.entry(log, 2)) or kept.payload_stored < 1500:
        diagram.world.run(1)
    diagram.world.cut(cable)
    diagram.world.run()
    kept = reader.store.entry(log, 2)
    assert kept is not None
    assert not kept.payload_complete
    diagram.note("A,B", "the connection has broken")
    diagram.note(
        "A", f"of the {kept.payload_size} bytes of payload 2, {kept.payload_stored} are stored"
    )
    diagram.connect(reader, server)
    assert reader.store.entries(log) == server.store.entries(log)
    return diagram


def parts() -> dict[str, str]:
    """The text between ``<!-- name -->`` and ``<!-- end -->``."""
    drawn = {each.__name__: each().drawn() for each in (live, sparse, fork, resume)}
    tables = {
        "stages": table(Stage.IDLE, STAGES, direction="LR"),
        "peer-stages": table(PeerStage.WAITING, PEER_STAGES, direction="LR"),
    }
    return {**drawn, **tables}


def table(
    first: Enum,
    steps_of: Mapping[Any, Mapping[Any, Enum]],
    direction: str = "TB",
) -> str:
    """A table of states as a diagram."""
    lines = ["```mermaid", "stateDiagram-v2", f"    direction {direction}"]
    lines.append(f"    [*] --> {first.name}")
    for state, steps in steps_of.items():
        ways: dict[str, list[str]] = {}
        for step, after in steps.items():
            ways.setdefault(after.name, []).append(step.name)
        lines += [f"    {state.name} --> {after}: {', '.join(ways[after])}" for after in ways]
    return "\n".join([*lines, "```"])


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), parts()), encoding="utf-8")
