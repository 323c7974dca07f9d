"""One end of a chat: each end says ``5:alice,`` who it is, ``2:hi,`` whatever, ``0:,`` goodbye."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from culm.arguments import check_numbers, check_text
from culm.machine import (
    Closed,
    ContractErrorCode,
    Event,
    LocalProtocolError,
    ProtocolErrorCode,
    RemoteProtocolError,
    StreamBase,
)

__all__ = ["Connection", "ConnectionEvent", "ErrorCode", "Joined", "Limits", "Said", "State"]

_HEAD = re.compile(rb"([0-9]*)(.?)", re.DOTALL)
_GOODBYE = b"0:,"


class State(Enum):
    INTRODUCING = 1  # the peer has not said who it is
    TALKING = 2
    CLOSED = 3


class ErrorCode(ProtocolErrorCode):
    NOT_A_NETSTRING = 1
    TOO_LONG = 2
    NOT_TEXT = 3
    CUT_SHORT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Event):
    """The peer has said who it is."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said(Event):
    """The peer has said something."""

    text: str


ConnectionEvent = Joined | Said | Closed


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that both ends may say at once; an end keeps about one text in memory.

    name_max
        Bytes of a name.
    text_max
        Bytes of a text.
    """

    name_max: int = 64
    text_max: int = 4096

    def __post_init__(self) -> None:
        check_numbers(self, low=1)


class Connection(StreamBase[ConnectionEvent]):
    """One end of a chat; both ends are alike.

    name: tells the peer who we are.  Raises as `say` does.
    """

    def __init__(self, *, name: str, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._state = State.INTRODUCING
        most = max(self.limits.name_max, self.limits.text_max)
        self._digits_max = len(str(most))
        super().__init__(receive_max=self._digits_max + len(":") + most + len(","))
        self._outbox.append(_netstring("name", name, self.limits.name_max))

    @property
    def state(self) -> State:
        return self._state

    @property
    def unsent_size(self) -> int:
        """How many bytes wait for `data_to_send`."""
        return self._outbox.size

    def say(self, text: str) -> None:
        """Say `text` to the peer.

        Raises `ValueError` if it is empty, `LocalProtocolError` if it is ``TOO_LONG``, or after
        the end (``ALREADY_CLOSED``).
        """
        said = _netstring("text", text, self.limits.text_max)
        if self._closing or self._closed is not None:
            raise LocalProtocolError(ContractErrorCode.ALREADY_CLOSED)
        self._outbox.append(said)

    def _step(self) -> Joined | Said | Closed | None:
        content = self._take_netstring()
        if content is None:
            return None
        if not content:
            self.close()
            return Closed()
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError(ErrorCode.NOT_TEXT) from None
        if self._state is State.TALKING:
            return Said(text=text)
        self._state = State.TALKING
        return Joined(name=text)

    def _take_netstring(self) -> bytes | None:
        """The content of the next netstring, once all of it is there."""
        size_max = self.limits.text_max if self._state is State.TALKING else self.limits.name_max
        head = _HEAD.match(self._inbox.peek(self._digits_max + 1))
        assert head is not None
        digits, colon = head.groups()
        if digits.startswith(b"0") and digits != b"0":
            raise RemoteProtocolError(ErrorCode.NOT_A_NETSTRING)
        # A size is refused at its first digit too many, whatever follows, and whenever.
        if digits and int(digits) > size_max:
            raise RemoteProtocolError(ErrorCode.TOO_LONG)
        if colon and (colon != b":" or not digits):
            raise RemoteProtocolError(ErrorCode.NOT_A_NETSTRING)
        if not colon or len(self._inbox) <= (end := len(digits) + 1 + int(digits)):
            return None
        if self._inbox[end] != ord(","):
            raise RemoteProtocolError(ErrorCode.NOT_A_NETSTRING)
        return self._inbox.take(end + 1)[len(digits) + 1 : end]

    def _step_eof(self) -> Closed:
        if len(self._inbox):
            raise RemoteProtocolError(ErrorCode.CUT_SHORT)
        return Closed()

    def _goodbye(self) -> None:
        self._outbox.append(_GOODBYE)

    def _ended(self, error: RemoteProtocolError | None) -> None:
        self._state = State.CLOSED


def _netstring(what: str, text: str, size_max: int) -> bytes:
    check_text(what, text)
    content = text.encode()
    if not content:
        raise ValueError(f"{what} must not be empty: that says goodbye")
    if len(content) > size_max:
        raise LocalProtocolError(ErrorCode.TOO_LONG, f"{what} of {len(content)} bytes")
    return b"%d:%b," % (len(content), content)
