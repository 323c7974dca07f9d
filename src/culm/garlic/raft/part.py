"""The part of a snapshot that a follower has written."""

from __future__ import annotations

from culm.garlic.raft.messages import SnapshotRequest
from culm.garlic.raft.model import Snapshot

# Bytes are compared by the remainder of the number that they make up: chunks may be cut anywhere.
_PRIME = 2**128 - 159


class SnapshotPart:
    """The first bytes of a snapshot, and how many of them their sender is known to have, too.

    They outlast the leader that has sent them: otherwise a follower whose disk is too slow for its
    leader would begin anew in each term.  The snapshot of another leader may differ in its bytes,
    so each sends all of them again, and goes on where the part ends if they are the same.
    """

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._size = 0
        self._remainder = 0
        self._sender: tuple[int, int] | None = None  # term and leader
        self._shown = 0  # bytes that it has sent
        self._shown_remainder = 0

    def clear(self) -> None:
        self._snapshot, self._size, self._remainder, self._sender = None, 0, 0, None

    def wanted(self, request: SnapshotRequest) -> int:
        """The offset from which the snapshot of that request is wanted of its sender."""
        is_sender = request.snapshot == self._snapshot and _sender(request) == self._sender
        return self._shown if is_sender else 0

    def has(self, request: SnapshotRequest) -> bool:
        """Whether bytes at the offset of that chunk are written."""
        return request.snapshot == self._snapshot and request.offset < self._size

    def compare(self, request: SnapshotRequest) -> None:
        """Take a chunk that is wanted, and written; what is written goes if it is another."""
        if request.offset == 0:
            self._sender, self._shown, self._shown_remainder = _sender(request), 0, 0
        again = request.data[: self._size - self._shown]
        self._shown += len(again)
        self._shown_remainder = _followed(self._shown_remainder, again)
        differs = self._shown == self._size and self._shown_remainder != self._remainder
        # One that ends here is not what is written, and must be written to be there as a whole.
        if differs or (request.done and len(again) == len(request.data)):
            self.clear()

    def begin(self, request: SnapshotRequest) -> None:
        """A chunk that is wanted, and not written, is about to be: perhaps the first of another."""
        if request.offset == 0:
            self.clear()
            self._snapshot, self._sender, self._shown = request.snapshot, _sender(request), 0

    def add(self, request: SnapshotRequest) -> None:
        """That chunk is written."""
        self._remainder = _followed(self._remainder, request.data)
        self._size = self._shown = request.offset + len(request.data)


def _sender(request: SnapshotRequest) -> tuple[int, int]:
    return request.term, request.source


def _followed(remainder: int, data: bytes) -> int:
    """The remainder of a number that is followed by `data`."""
    return (remainder * pow(256, len(data), _PRIME) + int.from_bytes(data)) % _PRIME
