"""Files beside the store: the author's key, and the lock file.

The latter also holds a note of its last publisher: which directory that has published as a
whole, and since when it has not been looked at.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from nacl.signing import SigningKey

from culm.bamboo import Head
from culm_io.programs.locks import StoreFilesError, lock_file

__all__ = [
    "belonging_to",
    "load_key",
    "note_published",
    "settled_before",
]

# File systems keep times in ticks of up to that number of nanoseconds: within one, a file may
# change and its time not.
_TICK = 2_000_000_000


def belonging_to(store: Path) -> list[Path]:
    """All files that belong to a store, whether or not they are there."""
    return [
        store.with_name(store.name + suffix)
        for suffix in ("", "-wal", "-shm", "-journal", ".key", ".lock")
    ]


def settled_before(
    store: Path, directory: Path, hash_of: Callable[[int], bytes | None]
) -> int | None:
    """Files of `directory` that are older were not changed since they were published.

    That is unless their size or time has changed, too.  Nanoseconds since 1970; ``None``: that
    is not known, as when another directory was published last, or if the log is an earlier one,
    from a backup: `hash_of` tells the hash of an entry that is there.  The caller has the lock.
    """
    try:
        *numbers, found = lock_file(store).read_text("ascii").split()
        began, seqnum, *identity = map(int, numbers)
    except ValueError:
        return None
    is_known = not seqnum or hash_of(seqnum) == bytes.fromhex(found)
    return began - _TICK if is_known and identity == _identity(directory) else None


def note_published(
    store: Path, directory: Path, began: int, unsettled: int | None, head: Head | None
) -> None:
    """All of `directory` has been published, with `head`, as it was at `began` or later.

    That is but for files that were changed at `unsettled` or later, if that is given; both in
    nanoseconds.  If this
    is cut short, the note is not one, or one of an earlier time: more files than necessary are
    read the next time.
    """
    since = began if unsettled is None else min(began, unsettled + _TICK)
    seqnum, found = (0, "-") if head is None else (head.seqnum, head.hash.hex())
    note = " ".join(map(str, [since, seqnum, *_identity(directory), found]))
    lock_file(store).write_text(note + "\n", "ascii")


def _identity(directory: Path) -> list[int]:
    found = directory.stat()
    return [found.st_dev, found.st_ino]


def load_key(store: Path, *, create: bool) -> SigningKey:
    """The key of the store's author, from the file beside it that only its owner can read.

    With `create`, a new key is made if there is none.  Raises `StoreFilesError`.
    """
    path = store.with_name(store.name + ".key")
    if create and not path.exists():
        _write_key(path, SigningKey.generate())
    try:
        mode = path.stat().st_mode
        text = path.read_bytes()
    except FileNotFoundError:
        raise StoreFilesError(f"{path}: the key of the store's author is missing") from None
    if stat.S_IMODE(mode) & 0o077:
        raise StoreFilesError(f"{path}: others can read the key; chmod 600 it")
    try:
        return SigningKey(bytes.fromhex(text.decode("ascii")))
    except ValueError:
        raise StoreFilesError(f"{path}: not a key (64 hexadecimal digits)") from None


def _write_key(path: Path, key: SigningKey) -> None:
    """Write the key so that it is there as a whole, also after a loss of power, or not at all."""
    staged = path.with_name(path.name + ".new")
    staged.unlink(missing_ok=True)
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(bytes(key).hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    staged.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
