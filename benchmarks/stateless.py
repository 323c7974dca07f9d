"""A state machine that costs nothing, so that the log alone is measured."""

from __future__ import annotations

__all__ = ["Nothing"]


class Nothing:
    """A state machine without a state."""

    def apply(self, index: int, value: bytes) -> None:
        pass

    def snapshot(self) -> bytes:
        return b""

    def restore(self, image: bytes) -> None:
        pass
