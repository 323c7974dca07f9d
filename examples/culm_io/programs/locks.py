"""The lock of a store's writer."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["StoreFilesError", "lock_file", "locked"]


class StoreFilesError(Exception):
    """A key that cannot be used, or a store that another process is writing to."""


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Be the only one who writes to `store`: two authors of one log would fork it.

    Raises `StoreFilesError` if there is another, `OSError` if there can be no lock.
    """
    with open(lock_file(store), "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreFilesError(f"{store}: another process is writing to this store") from None
        yield


def lock_file(store: Path) -> Path:
    """Where the lock of that store is."""
    return store.with_name(store.name + ".lock")
