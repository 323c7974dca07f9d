"""A server's output for people, without waiting for them."""

from __future__ import annotations

import os
from contextlib import suppress
from queue import Full, Queue
from threading import Thread
from typing import TextIO

__all__ = ["Telling"]

_LINES_MAX = 1000  # that wait for a reader; further ones are left out
_LAST_WORDS_S = 1.0


class Telling:
    """Writes lines in a thread of its own: neither a slow reader nor a full disk stops a server.

    The thread writes to the descriptor, not to the file: it would hold the file's lock while
    it waits for a reader, and a program that flushes the file at its end would never end.
    """

    def __init__(self, file: TextIO) -> None:
        self._descriptor, self._encoding = file.fileno(), file.encoding
        self._lines: Queue[str | None] = Queue(_LINES_MAX)
        self._thread = Thread(target=self._write, daemon=True)
        self._thread.start()

    def tell(self, line: str) -> None:
        """Write that as soon as possible, if there is room for it."""
        with suppress(Full):
            self._lines.put_nowait(line)

    def close(self) -> None:
        """Write the rest, if that takes no longer than a second."""
        with suppress(Full):
            self._lines.put_nowait(None)
        self._thread.join(_LAST_WORDS_S)

    def _write(self) -> None:
        readable = True
        while (line := self._lines.get()) is not None:
            rest = f"{line}\n".encode(self._encoding, "backslashreplace")
            while readable and rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except OSError:  # it is no longer read, or cannot be written
                    readable = False
