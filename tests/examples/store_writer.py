"""Writes a log into a store until it is killed, and reports each piece as soon as it is stored.

``python store_writer.py STORE``: payloads of one row, of several rows and in pieces take
turns.  Each line is the number of an entry and the stored bytes of its payload.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from nacl.signing import SigningKey

from culm.bamboo import LogAuthor, NewEntry
from culm.wire.multihash import YAMF
from culm_io.stores.bamboo import CHUNK_SIZE, SqliteStore

KEY = SigningKey(bytes(32))
_SIZES = (0, 100, 3 * CHUNK_SIZE // 2, 4 * CHUNK_SIZE)
_PIECE_SIZE = CHUNK_SIZE - 5000


def payload(seqnum: int) -> bytes:
    """The payload of entry `seqnum`."""
    return seqnum.to_bytes(4) * (_SIZES[seqnum % len(_SIZES)] // 4)


def write(path: str) -> None:
    store = SqliteStore(path, family=YAMF)
    author = LogAuthor.resume(KEY, store)
    log = author.log
    finish(store, author)
    while True:
        seqnum = 1 if author.head is None else author.head.seqnum + 1
        new = author.publish(payload(seqnum))
        if seqnum % 3:
            store.append(log, [new])
            report(seqnum, new.entry.payload_size)
        else:
            store.append(log, [NewEntry(new.entry)])
            report(seqnum, 0)
            finish(store, author)


def finish(store: SqliteStore, author: LogAuthor) -> None:
    """Write the missing rest of the newest entry's payload."""
    if author.head is None:
        return
    seqnum = author.head.seqnum
    data = payload(seqnum)
    stored = store.entry(author.log, seqnum)
    assert stored is not None
    for start in range(stored.payload_stored, len(data), _PIECE_SIZE):
        piece = data[start : start + _PIECE_SIZE]
        store.write_payload(author.log, seqnum, start, piece)
        report(seqnum, start + len(piece))
    store.finish_payload(author.log, seqnum)


def report(seqnum: int, stored: int) -> None:
    print(seqnum, stored, flush=True)


if __name__ == "__main__":
    write(sys.argv[1])
