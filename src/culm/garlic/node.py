"""A server of a Garlic Farm cluster: a Raft core and its connections."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final, TypeVar

from culm.arguments import check_type, read_buffers
from culm.buffer import Buffer
from culm.garlic.dials import Dials
from culm.garlic.errors import ErrorCode
from culm.garlic.events import (
    Authenticated,
    DialWanted,
    LinkClosed,
    NodeEffect,
    NodeEvent,
    RequestReceived,
    ResponseReceived,
)
from culm.garlic.limits import Limits, Timing
from culm.garlic.link import Link
from culm.garlic.places import Places
from culm.garlic.raft import Configuration, PeerFault, PeerStatus, Raft, Server, State, Stored
from culm.garlic.raft import messages as m
from culm.garlic.raft.model import check_server_id
from culm.garlic.states import ConnectionRole
from culm.garlic.translate import Translator, fitting, value_size_max
from culm.machine import (
    Closed,
    ContractErrorCode,
    Event,
    LinkedMachine,
    LocalProtocolError,
    RemoteProtocolError,
    StreamMachine,
    Ticket,
)
from culm.timers import Deadlines, earliest

R = TypeVar("R")

_DEFAULT_TIMING: Final = Timing()
_DEFAULT_LIMITS: Final = Limits()

# Requests that may be unanswered beside those of replication: votes, joins, leaves.
_SPARE_REQUESTS = 4


class Node(LinkedMachine[NodeEvent]):
    """Owns the core, and the connections by the peer's id.

    server_id
        Our id in configurations.
    stored
        The content of the store, as `Store.load` returns it.
    rng
        The source of election timeouts.
    now
        The time (monotonic seconds).
    timing
        The waits of connections, and the core's times.
    limits
        Bounds on the data of peers, and on the core.
    users
        The only user that may speak for a server, by the server's id.  A request in the name of a
        server then ends its connection (``WRONG_SOURCE``) unless that user was authenticated there,
        so handshakes are needed.  Without the table everybody with a password speaks for all
        servers.

    A `culm.machine.LinkedMachine`: `accepted` and `dialled` open its links.

    Requests to a peer without a connection, or whose connection is full, are dropped: the core
    sends them again.  Connections that we dial, one for each server, do not count in
    ``limits.links_max``.
    Worst-case memory beside the log: for each connection one frame (``limits.log_size_max``)
    and ``limits.unanswered_max`` requests; of a stranger in its handshake one head.
    """

    def __init__(
        self,
        *,
        server_id: int,
        stored: Stored,
        rng: random.Random,
        now: float,
        timing: Timing = _DEFAULT_TIMING,
        limits: Limits = _DEFAULT_LIMITS,
        users: Mapping[int, str] | None = None,
    ) -> None:
        check_type("limits", limits, Limits)
        check_type("users", users, Mapping, type(None))
        check_type("timing", timing, Timing)
        self._limits = limits
        self._asking = replace(limits, unanswered_max=limits.raft.in_flight_max + _SPARE_REQUESTS)
        self._core = Raft(
            server_id=server_id,
            stored=stored,
            timing=timing.raft,
            limits=fitting(limits),
            rng=rng,
            now=now,
            pre_vote=True,
            asks_leader=True,
        )
        self._translator = Translator(self._limits)
        self._value_size_max = value_size_max(limits)
        self._users = users
        self._now = now
        self._places = Places(limits.links_max, limits.strangers_max)
        self._timing = timing
        self._numbers = count(1)
        self._slot_numbers = count(1)
        self._links: dict[int, Link] = {}
        self._dials = Dials(timing, rng)
        self._slots: dict[int, Link] = {}
        self._handshakes: Deadlines[int] = Deadlines()  # by number of the link
        self._awake: dict[int, Link] = {}  # links that may have events
        self._stirred: dict[int, Link] = {}  # links that may have something to send
        self._speaking: Link | None = None  # the link of the request that the core took last
        self._closing = False

    # State

    @property
    def state(self) -> State:
        return self._core.state

    @property
    def server_id(self) -> int:
        return self._core.server_id

    @property
    def term(self) -> int:
        return self._core.term

    @property
    def leader(self) -> int | None:
        return self._core.leader

    @property
    def commit_index(self) -> int:
        return self._core.commit_index

    @property
    def applied_index(self) -> int:
        return self._core.applied_index

    @property
    def last_index(self) -> int:
        return self._core.last_index

    @property
    def configuration(self) -> Configuration:
        return self._core.configuration

    @property
    def peers(self) -> Sequence[PeerStatus]:
        """See `Raft.peers`."""
        return self._core.peers

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(self._links.values())

    # The user's verbs: see `Raft`

    def propose(self, values: Sequence[Buffer]) -> tuple[int, int]:
        """See `Raft.propose`; also ``VALUE_TOO_LARGE`` for a value that fits no frame."""
        return self._core.propose_bytes(self._read_values(values))

    def forward(self, values: Sequence[Buffer]) -> int:
        """See `Raft.forward`; also ``VALUE_TOO_LARGE`` for a value that fits no frame."""
        return self._core.forward_bytes(self._read_values(values))

    def _read_values(self, values: Sequence[Buffer]) -> list[bytes]:
        given = read_buffers("values", values)
        if given and max(map(len, given)) > self._value_size_max:
            raise LocalProtocolError(ErrorCode.VALUE_TOO_LARGE)
        return given

    def read(self) -> int:
        """See `Raft.read`; a follower that has no connection to the leader asks for one."""
        return self._core.read()

    def add_server(self, server: Server) -> None:
        self._core.add_server(server)

    def remove_server(self, server_id: int) -> None:
        self._core.remove_server(server_id)

    def cancel_change(self) -> None:
        self._core.cancel_change()

    def transfer_leadership(self, target: int) -> None:
        self._core.transfer_leadership(target)

    # Connections

    def accepted(self, *, handshake: StreamMachine | None = None) -> Link:
        """Open a link over an accepted connection.

        If there are too many strangers (`Limits.strangers_max`), the oldest is cut off
        (``CROWDED_OUT``).
        Raises `LocalProtocolError` (``ALREADY_CLOSED``).
        """
        self._check_open()
        link = self._open(ConnectionRole.LISTENER, None, handshake, self._limits)
        self._crowd_out(self._places.come(link))
        return link

    @staticmethod
    def _crowd_out(link: Link | None) -> None:
        if link is not None:
            link.fail(RemoteProtocolError(ErrorCode.CROWDED_OUT))

    def dialled(self, peer: int, *, handshake: StreamMachine | None = None) -> Link:
        """Open a link over the connection to `peer` that `DialWanted` asked for.

        Raises `LocalProtocolError`: ``UNKNOWN_PEER`` if it was not asked for,
        ``ALREADY_CLOSED``.
        """
        check_server_id(peer)
        self._check_open()
        if not self._dials.under_way(peer):
            raise LocalProtocolError(ErrorCode.UNKNOWN_PEER, str(peer))
        link = self._open(ConnectionRole.DIALLER, peer, handshake, self._asking)
        self._dials.made(peer, link)
        if link.established:
            self._reached(peer, link)
        return link

    def _reached(self, peer: int, link: Link) -> None:
        """Frames may go to `peer`."""
        self._dials.established(link)
        self._core.reachable(peer, link.extensions)

    def dial_failed(self, peer: int) -> None:
        """The dial has failed; after a pause `DialWanted` comes again."""
        check_server_id(peer)
        self._dials.failed(peer, self._now)

    def _open(
        self,
        role: ConnectionRole,
        peer: int | None,
        handshake: StreamMachine | None,
        limits: Limits,
    ) -> Link:
        if handshake is not None:
            check_type("handshake", handshake, StreamMachine)
        link = Link(
            number=next(self._numbers),
            role=role,
            peer=peer,
            handshake=handshake,
            translator=self._translator,
            limits=limits,
            server_id=self.server_id,
            users=self._users,
            now=lambda: self._now,
            wake=self._wake,
        )
        self._links[link.number] = link
        self._wake(link)
        if handshake is not None:
            self._handshakes.set(link.number, self._now + self._timing.handshake_timeout_s)
        return link

    def _check_open(self) -> None:
        if self._closing:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)

    def _wake(self, link: Link) -> None:
        if link.number in self._links:
            self._awake[link.number] = self._stirred[link.number] = link

    # The contract

    def next_event(self) -> NodeEvent | None:
        core = self._core
        while True:
            # The end of the node is told after that of its links.
            if not (self._closing and self._links):
                event = core.next_event()
                if event is not None:
                    if self._speaking is None or not isinstance(event, PeerFault):
                        return event
                    self._speaking.fail(event.error)
                    continue
                if self._closing:
                    return None
            # Dials are asked for before a link goes on, as if its bytes came one by one.
            peer = self._dials.missing(core.addressees)
            if peer is not None and (server := core.find_server(peer)) is not None:
                return DialWanted(server=server)
            found = self._next_of_links() if self._awake else None
            if found is None:
                return None
            ended = self._take(*found)
            if ended is not None:
                return ended

    def _next_of_links(self) -> tuple[Link, Event] | None:
        """The next event of a link; links without one rest."""
        while self._awake:
            link = next(iter(self._awake.values()))
            if link.peer is not None:
                # Parts of frames are signs of life, and whole ones have come in parts, good or bad.
                if link.receiving:
                    self._core.still_receiving(link.peer)
                elif link.moved():
                    self._core.still_sending(link.peer)
            event = link.next_event()
            if event is not None:
                return link, event
            del self._awake[link.number]
            link.rest()
        return None

    def _take(self, link: Link, event: Event) -> LinkClosed | None:
        try:
            match event:
                case RequestReceived():
                    slot, is_known = next(self._slot_numbers), link.peer is not None
                    message = link.read_request(event, slot)
                    self._slots[slot] = link
                    if not is_known:
                        self._seat(link)
                    self._speaking = link
                    self._core.receive_message(message)
                case ResponseReceived():
                    response = link.read_response(event)
                    self._speaking = None  # no fault that a response shows ends a connection
                    self._dials.answered(response.source)
                    self._core.receive_message(response)
                case Authenticated():
                    self._crowd_out(self._places.authenticated(link, self._idle_since()))
                    self._handshakes.cancel(link.number)
                    if link.dialled and link.peer is not None:
                        self._reached(link.peer, link)
                        self._stirred[link.number] = link
                case Closed():
                    return self._ended(link, event)
                case _:
                    pass  # a challenge: the link ends, and the next one has credentials
        except RemoteProtocolError as error:
            link.fail(error)
        return None

    def _idle_since(self) -> float:
        """A guest that has been idle from then on may have to make way for another."""
        return self._now - self._timing.raft.election_timeout_max_s

    def _seat(self, link: Link) -> None:
        """The peer of an accepted connection has made its first request."""
        server = None if link.peer is None else self._core.find_server(link.peer)
        number = None if server is None else server.server_id
        self._crowd_out(self._places.asked(link, self._idle_since(), number))

    def _ended(self, link: Link, closed: Closed) -> LinkClosed:
        del self._links[link.number], self._awake[link.number]
        self._stirred[link.number] = link
        self._places.ended(link)
        self._handshakes.cancel(link.number)
        slots = link.slots
        self._core.withdraw_responses(slots)
        for slot in slots:
            self._slots.pop(slot, None)  # it may have an answer that waits for earlier ones
        peer = link.peer
        if link.dialled and peer is not None:
            in_vain = not link.established and closed.error is not None
            self._dials.ended(peer, self._now, in_vain=in_vain)
            self._core.unreachable(peer)
        return LinkClosed(link=link.number, peer=peer, error=closed.error)

    def next_effect(self) -> NodeEffect | None:
        return self._core.next_effect()

    def complete(self, ticket: Ticket[R], result: R) -> None:
        self._core.complete(ticket, result)

    def fail(self, ticket: Ticket[Any], error: Exception) -> None:
        self._core.fail(ticket, error)
        self.close()

    def links_to_send(self) -> list[Link]:
        for message in self._core.messages_to_send():
            if isinstance(message, m.RaftResponse):
                link = self._slots.pop(message.sequence, None)
                if link is not None and not link.closed:
                    link.answer(message.sequence, message)
                    self._stirred[link.number] = link
            elif isinstance(message, m.RaftRequest):
                self._ask(message)
        stirred, self._stirred = self._stirred, {}
        return list(stirred.values())

    def _ask(self, request: m.RaftRequest) -> None:
        link = self._dials.link_to(request.destination)
        if link is None:
            self._dials.hold(request)
        elif self._dials.ask(link, request):
            self._stirred[link.number] = link
        else:
            self._core.dropped(request.destination)

    def next_deadline(self) -> float | None:
        return earliest(
            self._core.next_deadline(), self._dials.next_deadline(), self._handshakes.next()
        )

    def advance(self, now: float) -> None:
        self._core.advance(now)
        self._now = now
        for silent in self._dials.advance(now):
            silent.fail(RemoteProtocolError(ErrorCode.ANSWER_TIMEOUT))
        while (number := self._handshakes.pop_due(now)) is not None:
            self._links[number].fail(RemoteProtocolError(ErrorCode.HANDSHAKE_TIMEOUT))

    def close(self) -> None:
        """End all links, then the node; links may still have bytes to send."""
        if self._closing:
            return
        self._closing = True
        self._core.close()
        self._dials.stop()
        self._handshakes.clear()
        self._awake.clear()  # their ends are told in the order in which they were opened
        for link in self._links.values():
            link.close()
