"""The author of a p2panda node: the key beside its store, and another one where that is a copy.

An author who writes from an older store, or from a copy beside the first, writes entries in the
places of others that peers have: these logs have forked, for good.  But anybody may change a
document, and a new key has no logs anywhere.  So each write counts, in the store and in a `Mark`
beside it, and where the two do not agree the author goes on with a new key.  Operations of the
old one come back from peers, as do those of anybody else.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nacl.signing import SigningKey

from culm.p2panda import Author
from culm_io.programs.ending import ImpossibleError
from culm_io.stores.mark import Mark
from culm_io.stores.p2panda import OperationSqliteStore

__all__ = ["author_of"]

_KEY_SIZE = 32


@contextmanager
def author_of(
    path: Path, store: OperationSqliteStore, *, on_restored: Callable[[Path], None]
) -> Iterator[Author]:
    """The author of the store at `path`, who writes one operation; no other process writes
    meanwhile.

    A new key is kept once something has been written with it.  A write that fails, at the very end
    too, leaves key and mark as they were.

    on_restored: told where the key is now that is not used any more.
    Raises `ImpossibleError` for a file that is no key.
    """
    file = path.with_name(path.name + ".key")
    aside: Path | None = None
    with store.alone() as failed:
        mark = Mark(path)  # as of our turn: others may have written while we waited for it
        former = _read(file) if file.exists() else None
        begun = store.place is not None or mark.last > 0
        restored = former is not None and begun and store.place != _place(mark, former)
        key = SigningKey.generate() if former is None or restored else former
        yield Author(key, store)
        # Before the transaction ends, so that no peer can have an operation that the mark does
        # not count, nor one signed with a key that we do not have.
        if key is not former:
            staged = _staged(file, key)
            if former is None:
                failed.callback(file.unlink, missing_ok=True)
            else:
                aside = _set_aside(file, former)
                failed.callback(aside.rename, file)
            staged.rename(file)
        failed.callback(mark.write, mark.last)
        mark.write(mark.last + 1)
        store.keep_place(_place(mark, key))
    if aside is not None:
        on_restored(aside)


def _place(mark: Mark, key: SigningKey) -> str:
    """Where the store belongs: beside this mark, this number and this key."""
    return f"{mark.identity} {mark.last} {bytes(key.verify_key).hex()}"


def _read(file: Path) -> SigningKey:
    found = file.read_bytes()
    if len(found) != _KEY_SIZE:
        raise ImpossibleError(f"{file}: not a key ({_KEY_SIZE} bytes)")
    return SigningKey(found)


def _staged(file: Path, key: SigningKey) -> Path:
    """The key in a file beside that one, to be renamed: there as a whole or not at all."""
    staged = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as whole:
            whole.write(bytes(key))
            whole.flush()
            os.fsync(whole.fileno())
    except OSError:
        staged.unlink()
        raise
    return staged


def _set_aside(file: Path, key: SigningKey) -> Path:
    return file.rename(file.with_name(f"{file.name}.{bytes(key.verify_key).hex()[:16]}"))
