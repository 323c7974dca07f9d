"""The frames of sessions: read, and kept in order while signatures are verified elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from culm.machine import RemoteProtocolError
from culm.signatures import Verification
from culm.ssb.ebt import Replicator, State
from culm.ssb.messages import ClassicMessage, MessageError

_SIZE_MAX: Final = 1 << 17
_AT_WORK: Final = frozenset({State.OPEN, State.CLOSING})


class Judged(NamedTuple):
    """A message with the verdict on its signature."""

    message: ClassicMessage
    is_signed: bool


class MessageFrame(NamedTuple):
    """A message as received, with the feed and sequence that it claims; not verified.

    sequence: 0 if it claims none.
    """

    author: str
    sequence: int
    message: ClassicMessage | MessageError | Judged


Content: TypeAlias = MessageFrame | Mapping[str, int] | RemoteProtocolError
"""The content of a frame, or the reason why it is none."""


class Frame:
    """A frame of a session.

    waits: whether a verdict on its signature is due; asked: the number of that question.
    """

    __slots__ = ("asked", "content", "session", "waits")

    def __init__(self, session: int, content: Content) -> None:
        self.session = session
        self.content = content
        self.waits = False
        self.asked = 0

    def wait(self, asked: int) -> None:
        self.waits, self.asked = True, asked

    def judge(self, is_signed: bool | None) -> None:
        """Take the verdict, if there is a signature."""
        self.waits = False
        if is_signed is not None:
            assert isinstance(self.content, MessageFrame)
            author, sequence, message = self.content
            assert isinstance(message, ClassicMessage)
            self.content = MessageFrame(author, sequence, Judged(message, is_signed))


class FrameVerifier(NamedTuple):
    """Has signatures in frames verified, of all links together.

    count_max: frames of one session that wait at a time.
    """

    count_max: int
    verification: Verification[Frame]
    hmac_key: bytes | None


class FrameQueue:
    """Frames of the sessions of one link, in order: a message waits for its verdict.

    They have 128 KiB, and one frame more.
    """

    def __init__(self, core: Replicator, verifier: FrameVerifier) -> None:
        self._core = core
        self._verifier = verifier
        self._frames: deque[Frame] = deque()
        self._size = 0  # of all since there was none
        self._last: dict[str, int] = {}  # by author: of messages since then, the last one to wait

    def __bool__(self) -> bool:
        return bool(self._frames)

    @property
    def is_full(self) -> bool:
        return len(self._frames) >= self._verifier.count_max or self._size >= _SIZE_MAX

    @property
    def waits(self) -> bool:
        """Whether the next frame waits for a verdict, which will come."""
        return bool(self._frames) and self._frames[0].waits and self._core.state in _AT_WORK

    def add(self, session: int, content: Content, size: int) -> None:
        """Take a frame of `size` bytes; the signature of a message that may count is verified."""
        if not self._frames:
            self._size = 0
            self._last.clear()
        self._size += size
        frame = Frame(session, content)
        self._frames.append(frame)
        if not isinstance(content, MessageFrame):
            return
        author, sequence, message = content
        last = self._last.get(author, 0)
        if isinstance(message, ClassicMessage) and self._core.expects(
            session, author, sequence, last=last
        ):
            self._last[author] = sequence
            signed = message.signed_by_author(hmac_key=self._verifier.hmac_key)
            frame.wait(self._verifier.verification.add(frame, signed))

    def take(self) -> Frame:
        """Take the first frame."""
        return self._frames.popleft()

    def clear(self) -> None:
        """Forget all frames; the session is over."""
        for frame in self._frames:
            self._verifier.verification.discard(frame.asked)
        self._frames.clear()
