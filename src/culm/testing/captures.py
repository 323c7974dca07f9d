"""Captures of failures: the machine of an example of the suite, all machines of a simulator.

They are written if the environment variable `FOLDER` names a directory, or if the suite is given
one.  The note of the failure says where they are.  ``python -m culm.capture test --broken FILE``
makes a test of one, which fails for as long as the machine does the same.

A simulator makes its machines by `make` and is itself a function that is decorated with
`of_failures`: nothing is recorded, until a run fails; then the same run is done again, recorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial, wraps
from pathlib import Path
from random import Random
from typing import IO, NamedTuple, ParamSpec, TypeVar, cast

from culm.capture import Recorder, Redact
from culm.capture.recorder import recorder_of
from culm.machines.operations import Operation
from culm.testing import record
from culm.testing.spec import Conversation, MachineSpec

FOLDER = "CULM_CAPTURES"
"""The environment variable with the directory."""

P = ParamSpec("P")
T = TypeVar("T")

# All is kept: the keys of tests are no secrets, and a replay needs them.
_NOTHING: frozenset[Redact] = frozenset()
_STORY = "__culm_story__"
_HOW = "python -m culm.capture test --broken"


def folder() -> Path | None:
    """The directory for captures of failures, if there is one."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else None


class Story(NamedTuple):
    """The operations after which an example has failed."""

    spec: MachineSpec
    told: Conversation
    operations: Sequence[Operation]

    def capture(self, session: str) -> bytes:
        """A capture of the operations on a new machine; whatever it raises is in it."""
        pieces: list[bytes] = []
        driver = record.driver_for(self.spec.machine, self.told)
        driver.answer_by(None)
        recorder = Recorder(
            pieces.append,
            machine=self.spec.name,
            config=self.told.config,
            session=session,
            redact=_NOTHING,
        )
        driver.wrap(recorder.stand_in(driver.machine))
        driver.call_by(recorder.verb)
        with suppress(Exception):
            driver.tell(self.operations)
        recorder.flush()
        return b"".join(pieces)


def add_story(error: Exception, story: Story) -> None:
    """Attach to an error the story before it; of several stories the first one counts."""
    if not hasattr(error, _STORY):
        setattr(error, _STORY, story)


def keep_stories(error: BaseException, name: str, where: Path | None = None) -> None:
    """Write the capture of each story of an error, and of those in a group, and say so in a note.

    name: that of the file, without its suffix.
    where: the directory, instead of that of the environment.
    """
    where = where or folder()
    if where is None:
        return
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        for number, each in enumerate(group.exceptions, 1):
            keep_stories(each, f"{name}-{number}", where)
        return
    story: Story | None = getattr(error, _STORY, None)
    if story is not None:
        where.mkdir(parents=True, exist_ok=True)
        path = where / f"{name}.culmcap"
        path.write_bytes(story.capture(f"{name}: {story.told.name}"))
        error.add_note(f"capture: {path}; {_HOW} {path}")


_tapes: list[Callable[[str], Recorder]] = []  # of runs that are done again, the last one's in use


def make(kind: Callable[P, T], /, *arguments: P.args, **keywords: P.kwargs) -> T:
    """A machine of the class `kind`; recorded, with its chance, in a run that is done again."""
    if not _tapes:
        return kind(*arguments, **keywords)
    recorder = _tapes[-1](getattr(kind, "__name__", "machine"))
    return _made(recorder, kind, *arguments, **keywords)


def _made(recorder: Recorder, kind: Callable[..., T], *arguments: object, **keywords: object) -> T:
    given = {
        name: recorder.chance(value) if isinstance(value, Random) else value
        for name, value in keywords.items()
    }
    return cast(Callable[..., T], recorder.make)(kind, *arguments, **given)


def beside(machine: object, kind: Callable[P, T], /, *arguments: P.args, **keywords: P.kwargs) -> T:
    """An object of `kind` for calls of a machine that `make` has made, as handshakes are."""
    if (tape := recorder_of(machine)) is not None:
        return _made(tape, kind, *arguments, **keywords)
    return kind(*arguments, **keywords)


def of_failures(simulator: Callable[P, T]) -> Callable[P, T]:
    """A simulator, called with its seed first; each failure of it comes with captures."""

    @wraps(simulator)
    def run(*arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            return simulator(*arguments, **keywords)
        except Exception as error:
            if _tapes or (where := folder()) is None:
                raise
            name = "-".join(map(str, (simulator.__name__, *arguments[:1])))
            error.add_note(_recorded(where, name, partial(simulator, *arguments, **keywords)))
            raise

    return run


def _recorded(where: Path, name: str, again: Callable[[], object]) -> str:
    """Do a run again, recorded; a note about it."""
    where.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    found = "which did not fail again"
    with ExitStack() as files:

        def tape(kind: str) -> Recorder:
            """The recorder of a further machine."""
            number = len(paths) + 1
            paths.append(where / f"{name}-{number:03}-{kind.lower()}.culmcap")
            file: IO[bytes] = files.enter_context(paths[-1].open("wb"))
            recorder = Recorder(file.write, session=f"{name}, {kind} {number}", redact=_NOTHING)
            files.callback(recorder.flush)  # before the file is closed
            return recorder

        _tapes.append(tape)
        try:
            again()
        except Exception as error:
            found = f"which failed again: {error!r:.200}"
        finally:
            _tapes.remove(tape)
    listed = "\n".join(map(str, paths))
    return f"captures of the same run, {found}; {_HOW} FILE\n{listed}"
