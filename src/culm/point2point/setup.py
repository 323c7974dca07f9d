"""Session setup: what both endpoints send first, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from culm.arguments import check_int, check_type
from culm.wire import varu64

__all__ = ["Mode", "Session", "Setup", "decode_setup", "encode_setup"]

_SEND_GREEDILY = 0b10  # the seventh bit, counted from the most significant one
_RECEIVE_GREEDILY = 0b01


class Mode(Enum):
    """Whether data may be sent before it is verified."""

    SAFE = "safe"
    GREEDY = "greedy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What one endpoint wants.  Windows in bytes; 0 means: no compression.

    Source: seed, "Session Setup" and "Running Bamboo-Point-2-Point Over Bymux".
    """

    send_mode: Mode = Mode.SAFE
    receive_mode: Mode = Mode.SAFE
    send_window_max: int = 1 << 16
    receive_window_max: int = 1 << 16

    def __post_init__(self) -> None:
        check_type("send_mode", self.send_mode, Mode)
        check_type("receive_mode", self.receive_mode, Mode)
        check_int("send_window_max", self.send_window_max)
        check_int("receive_window_max", self.receive_window_max)

    def within(self, window_max: int) -> Setup:
        """The same with windows of no more than `window_max` bytes."""
        return replace(
            self,
            send_window_max=min(self.send_window_max, window_max),
            receive_window_max=min(self.receive_window_max, window_max),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What applies to one endpoint once both setups are known."""

    send_mode: Mode
    receive_mode: Mode
    compression_window: int
    decompression_window: int

    @classmethod
    def derive(cls, ours: Setup, theirs: Setup) -> Session:
        """Combine our wishes with the peer's."""
        return cls(
            send_mode=_both_greedy(ours.send_mode, theirs.receive_mode),
            receive_mode=_both_greedy(ours.receive_mode, theirs.send_mode),
            compression_window=min(ours.send_window_max, theirs.receive_window_max),
            decompression_window=min(ours.receive_window_max, theirs.send_window_max),
        )


def _both_greedy(one: Mode, other: Mode) -> Mode:
    return Mode.GREEDY if one is other is Mode.GREEDY else Mode.SAFE


def encode_setup(setup: Setup) -> bytes:
    """Flags byte, send window, receive window."""
    flags = (_SEND_GREEDILY if setup.send_mode is Mode.GREEDY else 0) | (
        _RECEIVE_GREEDILY if setup.receive_mode is Mode.GREEDY else 0
    )
    windows = setup.send_window_max, setup.receive_window_max
    return bytes([flags]) + varu64.encode_many(windows)


def decode_setup(data: bytes) -> tuple[Setup, int]:
    """Decode a setup at the start of `data`; returns it and its size.

    The first six bits are ignored.  Raises `culm.wire.errors.Truncated`.
    """
    send_window, end = varu64.decode(data, 1)
    receive_window, end = varu64.decode(data, end)
    return (
        Setup(
            send_mode=Mode.GREEDY if data[0] & _SEND_GREEDILY else Mode.SAFE,
            receive_mode=Mode.GREEDY if data[0] & _RECEIVE_GREEDILY else Mode.SAFE,
            send_window_max=send_window,
            receive_window_max=receive_window,
        ),
        end,
    )
