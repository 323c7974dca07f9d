"""What stores in one file have in common: a ``with`` statement closes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["FileStore"]


class FileStore(ABC):
    """A store in a file."""

    @abstractmethod
    def close(self) -> None:
        """Close the file; the store is of no use any more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
