"""The option ``--capture`` of all programs: the calls of their machines, written to files.

    captures = Captures.of(options)
    tape = captures.tape("oxen", session="server 9001")
    node = tape.make(Node, me=b"9001", rng=tape.chance(SystemRandom()), ...)

Without the option `make` makes the object and nothing else.  With it every machine has a file
of its own: the first that of the option, others the same with a number, and none is ever written
over.  A process that is killed loses the last quarter of a second.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar
from weakref import WeakSet

from culm_io.programs.arguments import file
from culm_io.programs.ending import ImpossibleError, sentence_of

if TYPE_CHECKING:
    from culm.capture import Recorder

__all__ = ["Captures", "Tape", "add_capture", "capture_words"]

M = TypeVar("M")
P = ParamSpec("P")

_FLUSH_S = 0.25
_LEFT_OUT = {"keys": ("keys",), "nothing": (), "payloads": ("keys", "payloads")}


def add_capture(parser: ArgumentParser) -> None:
    """Add the option, and the one for omissions."""
    parser.add_argument(
        "--capture",
        type=file,
        metavar="FILE",
        help="record the program's machines, for `culm capture`; each connection that has"
        " a machine of its own has a file of its own, with a number",
    )
    parser.add_argument(
        "--capture-without",
        choices=sorted(_LEFT_OUT),
        default="keys",
        help="omissions from captures: secret keys and passwords, all bytes and texts as well,"
        " or nothing (default: %(default)s)",
    )


def capture_words(options: Namespace) -> list[str]:
    """The words of a command line that give another process the same options."""
    if options.capture is None:
        return []
    return ["--capture", str(options.capture), "--capture-without", options.capture_without]


class Tape(Protocol):
    """Makes one machine, and arguments of its calls."""

    def make(self, kind: Callable[P, M], /, *arguments: P.args, **keywords: P.kwargs) -> M:
        """An object of the class `kind`; the first is the machine."""
        ...

    def chance(self, rng: random.Random) -> random.Random:
        """The generator for the machine."""
        ...


class _Unrecorded:
    def make(self, kind: Callable[P, M], /, *arguments: P.args, **keywords: P.kwargs) -> M:
        return kind(*arguments, **keywords)

    def chance(self, rng: random.Random) -> random.Random:
        return rng


class Captures:
    """The captures of a program; `path` is that of the first, ``None`` for no captures."""

    def __init__(self, path: Path | None = None, *, without: str = "keys") -> None:
        self._path = path
        self._left_out = _LEFT_OUT[without]
        self._recorders: WeakSet[Recorder] = WeakSet()
        # The recorders that drivers have let go since the last time are flushed, too.
        self._held: list[Recorder] = []
        self._ticks = False

    @classmethod
    def of(cls, options: Namespace) -> Captures:
        """Those that the command line asks for.  Raises `ImpossibleError` without a folder."""
        path = options.capture
        if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK)):
            raise ImpossibleError(f"{path}: no capture can be written there")
        return cls(options.capture, without=options.capture_without)

    def tape(self, machine: str, *, session: str = "", **config: Any) -> Tape:
        """The maker of the next machine.

        machine, session, config: see `Recorder`; the config need not be all.

        If there cannot be another file, that is told, and the machine is not recorded.
        """
        if self._path is None:
            return _Unrecorded()
        try:
            path = _made(self._path)
        except OSError as error:
            _tell(f"no capture: {sentence_of(error)}")
            return _Unrecorded()
        from culm.capture import Recorder, Redact  # programs begin sooner without it

        recorder = Recorder(
            _Sink(path),
            machine=machine,
            config=config,
            session=session,
            clock=time.monotonic,
            began=time.time(),
            redact=frozenset(map(Redact, self._left_out)),
        )
        recorder.flush()
        self._recorders.add(recorder)
        self._held.append(recorder)
        if not self._ticks:
            self._ticks = True
            self._wait()
        return recorder

    def _wait(self) -> None:
        asyncio.get_running_loop().call_later(_FLUSH_S, self._tick)

    def _tick(self) -> None:
        self.flush()
        self._wait()

    def flush(self) -> None:
        """Write out all steps so far."""
        for each in {*self._held, *self._recorders}:
            each.flush()
        self._held = list(self._recorders)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.flush()


class _Sink:
    """Appends to a new file, which is open only while it is written to.

    A file that cannot be written any more keeps its content, and the program goes on.
    """

    def __init__(self, path: Path) -> None:
        self._path: Path | None = path
        self._size = 0

    def __call__(self, block: bytes) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("ab", buffering=0) as opened:
                written = opened.write(block)
                if written != len(block):  # the disk is full
                    opened.truncate(self._size)
                    raise OSError(0, "no room", str(self._path))
        except OSError as error:
            _tell(f"the capture ends here: {sentence_of(error)}")
            self._path = None
        else:
            self._size += len(block)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _made(path: Path) -> Path:
    """A new file: `path`, or the same with the first number that is free."""
    for number in count(1):
        name = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        try:
            name.touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            continue
        return name
    raise AssertionError
