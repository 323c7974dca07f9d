"""One connection of a node, dialled or accepted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import inf

from culm.buffer import Buffer
from culm.garlic.connection import Connection
from culm.garlic.errors import ErrorCode
from culm.garlic.events import Authenticated, RequestReceived, ResponseReceived
from culm.garlic.limits import Limits
from culm.garlic.messages import EXTENSION_OF, Extension, MessageType, ResponseFrame
from culm.garlic.raft import messages as m
from culm.garlic.states import ConnectionRole, ConnectionState
from culm.garlic.translate import Translator
from culm.machine import Closed, Event, RemoteProtocolError, StreamMachine
from culm.stack import then

# While more bytes than these wait to be sent, no further request is taken.
_UNSENT_MAX = 1 << 20

# Requests from outside of the cluster; their source and destination say nothing.
_CLIENT_TYPES = frozenset(
    (MessageType.CLIENT_REQUEST, MessageType.ADD_SERVER_REQUEST, MessageType.REMOVE_SERVER_REQUEST)
)


class Link:
    """A `culm.machine.Link`: the bytes of a connection, whose events come from the node.

    `peer` is the server dialled or, on an accepted connection, the source of its requests.  `user`
    is the authenticated user, if there was a handshake.
    """

    def __init__(
        self,
        *,
        number: int,
        role: ConnectionRole,
        peer: int | None,
        handshake: StreamMachine | None,
        translator: Translator,
        limits: Limits,
        server_id: int,
        users: Mapping[int, str] | None,
        now: Callable[[], float],
        wake: Callable[[Link], None],
    ) -> None:
        self.number = number
        self.dialled = role is ConnectionRole.DIALLER
        self.peer = peer
        self.user: str | None = None
        self.extensions: frozenset[Extension] = frozenset()
        self.established = handshake is None
        self.closed = False
        self.leads = False  # the peer has asked as a leader last
        self._wake = wake  # called when there may be events
        self._server_id = server_id
        self._users = users
        self._limits = limits
        self._translator = translator
        self._connection = Connection(role=role, limits=limits)
        self._machine: StreamMachine = self._connection
        if handshake is not None:
            self._machine = then(
                handshake,
                lambda event: self._connection if isinstance(event, Authenticated) else None,
            )
        self._asked: deque[m.RaftRequest] = deque()  # sent, not answered
        self.doubted: int | None = None  # bytes, if none as large is known to have got through
        self._slots: deque[int] = deque()  # received, not answered
        self._answers: dict[int, ResponseFrame] = {}  # that wait for earlier ones
        self._now = now
        self._waiting_since = inf  # when bytes last began to wait for being taken
        self._moved_at = 0.0  # when bytes last came, or went after a wait, or a first question went
        self._stirred = False  # bytes have come over an accepted link, or gone after a wait
        self._fault: RemoteProtocolError | None = None

    # Bytes

    def receive_data(self, data: Buffer) -> None:
        """See `culm.machine.Link`; the node's events follow."""
        size = memoryview(data).nbytes  # TypeError unless it is a buffer
        if not self.closed:
            self._machine.receive_data(data)
            if size:
                self._stirred, self._moved_at = self._stirred or not self.dialled, self._now()
            self._wake(self)

    def receive_eof(self) -> None:
        self._machine.receive_eof()
        self._wake(self)

    def read_size(self) -> int:
        return 0 if self.closed else self._machine.read_size()

    def data_to_send(self, size_max: int | None = None) -> bytes:
        full = not self.dialled and self._connection.full
        data = self._machine.data_to_send(size_max)
        if full and data:
            self._wake(self)  # more requests may be read when answers have been taken
        if data and (now := self._now()) > self._waiting_since:
            self._stirred, self._moved_at = True, now
            self._wake(self)
        return data

    def close(self) -> None:
        """Give the connection up; the node reports its end."""
        self._machine.close()
        self._wake(self)

    # For the node

    @property
    def receiving(self) -> bool:
        """Whether an accepted link has new bytes that no event has reported."""
        return self._stirred and not self.dialled and self._connection.partial

    def moved(self) -> bool:
        """Whether bytes that had to wait have gone over a dialled link since the last call."""
        if not (self._stirred and self.dialled and self.established):
            return False
        self._stirred = False
        return True

    @property
    def quiet_since(self) -> float | None:
        """The time since which no byte has moved, if answers are owed to us."""
        return self._moved_at if self._asked else None

    def doubt(self, size: int) -> None:
        """Note that a request as large was not answered in time: `doubted` until one is."""
        self.doubted = size

    @property
    def owed_size(self) -> int:
        """Bytes of the largest request that is not answered."""
        return max(map(self._size_of, self._asked))

    def _size_of(self, message: m.RaftRequest) -> int:
        return len(self._translator.encode_request(message).log)

    def idle_since(self, before: float) -> float | None:
        """The time of the last byte, if that was not after `before` and we owe no answer."""
        return None if self._slots or self._moved_at > before else self._moved_at

    @property
    def outbid(self) -> bool:
        """Whether a leader may have its place: the peer asks for no more than votes, or reads."""
        return not self.leads and not self._slots

    def rest(self) -> None:
        """Note that all movement of bytes has been reported."""
        self._stirred = False

    def next_event(self) -> Event | None:
        if self.closed:
            return None
        if self._fault is not None:
            self.closed = True
            return Closed(error=self._fault)
        event = self._machine.next_event()
        if isinstance(event, Authenticated):
            self.established, self.user = True, event.user
            self.extensions = event.extensions
        elif isinstance(event, Closed):
            self.closed = True
        return event

    def fail(self, error: RemoteProtocolError) -> None:
        """End the link: the peer has sent well-formed frames against a rule."""
        self._fault = error.detached()
        self._machine.close()
        self._wake(self)

    def read_request(self, event: RequestReceived, slot: int) -> m.RaftRequest:
        """Check source and destination, and translate; raises `RemoteProtocolError`.

        `slot` is the request's sequence: `answer` finds its place by it.
        """
        request = event.request
        extension = EXTENSION_OF.get(request.type)
        if extension is not None and extension not in self.extensions:
            raise RemoteProtocolError(ErrorCode.UNKNOWN_MESSAGE_TYPE, request.type.name)
        if request.type not in _CLIENT_TYPES:
            if not self._may_speak_for(request.source):
                raise RemoteProtocolError(ErrorCode.WRONG_SOURCE, str(request.source))
            if request.destination != self._server_id:
                raise RemoteProtocolError(ErrorCode.WRONG_DESTINATION, str(request.destination))
            self.peer = request.source
        message = self._translator.decode_request(request, slot)
        self.leads = type(message) in m.LEADER_REQUESTS
        self._slots.append(slot)
        return message

    def _may_speak_for(self, server_id: int) -> bool:
        if server_id == self._server_id or self.peer not in (None, server_id):
            return False
        if self._users is None:
            return True
        return self.user is not None and self._users.get(server_id) == self.user

    def read_response(self, event: ResponseReceived) -> m.RaftResponse:
        """Check source and destination, and translate; raises `RemoteProtocolError`."""
        asked, response = self._asked.popleft(), event.response
        if self.doubted is not None and self._size_of(asked) >= self.doubted:
            self.doubted = None
        if response.source != self.peer:
            raise RemoteProtocolError(ErrorCode.WRONG_SOURCE, str(response.source))
        if type(asked) not in m.CLIENT_REQUESTS and response.destination != self._server_id:
            raise RemoteProtocolError(ErrorCode.WRONG_DESTINATION, str(response.destination))
        return self._translator.decode_response(asked, response)

    def ask(self, message: m.RaftRequest) -> bool:
        """Send a request, unless too many are unanswered, too many bytes unsent, or the link ends.

        A request of an extension that was not agreed upon in the handshake is not sent, nor is one
        that exceeds our own limit of a frame.
        """
        connection = self._connection
        unsent = connection.unsent_size
        if connection.state is not ConnectionState.OPEN:
            return False  # its end has yet to be told
        if connection.unanswered >= self._limits.unanswered_max or unsent > _UNSENT_MAX:
            return False
        extension = m.EXTENSION_OF.get(type(message))
        if extension is not None and extension not in self.extensions:
            return False
        request = self._translator.encode_request(message)
        if len(request.log) > self._limits.log_size_max:
            return False
        if not unsent:
            self._waiting_since = self._now()
        connection.send_request(request)
        if not self._asked:
            self._moved_at = self._now()
        self._asked.append(message)
        return True

    def answer(self, slot: int, message: m.RaftResponse) -> None:
        """Answer the request of that slot, once all before it are answered."""
        self._answers[slot] = self._translator.encode_response(message)
        while self._slots and self._slots[0] in self._answers:
            self._connection.send_response(self._answers.pop(self._slots.popleft()))

    @property
    def slots(self) -> frozenset[int]:
        """The requests that are not answered."""
        return frozenset(self._slots)
