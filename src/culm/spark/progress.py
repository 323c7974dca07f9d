"""The progress of a job: the step, and on a terminal the number of tasks that are done."""

from __future__ import annotations

from threading import Event, Thread
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 0.5
_CLEAR = "\r\x1b[K"


class ProgressLine:
    """Writes to `stream`: a line for each step, and on a terminal a bar of its tasks below it.

    A context manager.  Without a terminal, or under Spark Connect, which has no such reports on
    tasks, there are only the lines.
    """

    def __init__(self, spark: SparkSession, stream: IO[str], *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._tracker = None if quiet or not stream.isatty() else _tracker(spark)
        self._ended = Event()
        self._thread = Thread(target=self._draw, name="culm progress", daemon=True)

    def __enter__(self) -> Self:
        if self._tracker is not None:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._tracker is not None:
            self._thread.join()

    def tell(self, step: str) -> None:
        """Announce the next step of the job."""
        if not self._quiet:
            start = "" if self._tracker is None else _CLEAR
            self._stream.write(f"{start}{step}\n")
            self._stream.flush()

    def _draw(self) -> None:
        while not self._ended.wait(_SECONDS):
            done, tasks = _count_tasks(self._tracker)
            if tasks:
                self._stream.write(f"{_CLEAR}  {done} of {tasks} tasks")
                self._stream.flush()
        self._stream.write(_CLEAR)
        self._stream.flush()


def _tracker(spark: SparkSession) -> Any:
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext.statusTracker()
    except PySparkException:
        return None


def _count_tasks(tracker: Any) -> tuple[int, int]:
    done = tasks = 0
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        if info is not None:
            done += info.numCompletedTasks
            tasks += info.numTasks
    return done, tasks
