"""Tables and bars for people: in colour and live on a terminal, plain text in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

from culm_io.programs.ending import need

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress, TaskID
    from rich.text import Text

# Most programs write to a pipe or a file, and start sooner without loading rich.
need("rich")

__all__ = ["Bars", "Column", "Screen", "Table", "Teller", "clean", "render", "show", "size_of"]

# The style of a word, wherever it stands; others have no colour.
_STYLES = {
    **dict.fromkeys(("leader", "joined", "running", "here", "direct", "connected"), "green"),
    **dict.fromkeys(
        ("candidate", "pre_candidate", "joining", "through", "missing", "probe", "snapshot"),
        "yellow",
    ),
    **dict.fromkeys(("down", "unreachable", "left", "gone", "disconnected", "forked"), "red"),
    "follower": "cyan",
    "replicate": "green",
}
GAP = "  "
"""Stands between two words on a line."""

_BETWEEN = 3  # columns on a terminal
_WORD_SIZE_MAX = 20  # longer ones, as ids and paths, may be broken


class Table:
    """A title, the names of columns, and rows of words.

    key: the column that identifies a row; by default the first.

    Words for states have colours; columns of numbers are set to the right.  Control characters,
    as in names that others have chosen, are escaped.
    """

    def __init__(
        self,
        title: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        key: str | None = None,
    ) -> None:
        self.title = clean(title)
        self.columns = list(columns)
        self._key = 0 if key is None else self.columns.index(key)
        self.rows = [[clean(str(cell)) for cell in row] for row in rows]
        self._right = [
            bool(self.rows) and all(_is_number(row[n]) for row in self.rows)
            for n in range(len(self.columns))
        ]

    def plain(self) -> str:
        """The same as lines of text."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[n]) for line in lines) for n in range(len(self.columns))]
        text = [
            GAP.join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, self._right, strict=True)
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, *text] if self.title else text)

    def parts(self, width: int) -> Iterator[list[int]]:
        """The numbers of columns that fit side by side; where not all do, the key is repeated."""
        numbers = list(range(len(self.columns)))
        if self._width(map(self._least, numbers)) <= width:
            yield numbers
            return
        part = [self._key]
        for number in numbers:
            if number == self._key:
                continue
            if len(part) > 1 and self._width(map(self._least, [*part, number])) > width:
                yield part
                part = [self._key]
            part.append(number)
        yield part

    def widths(self, part: Sequence[int], width: int) -> dict[int, int]:
        """The width of each of these columns, all of them together within `width` if possible."""
        widths = {number: max(map(len, self._cells(number))) for number in part}
        while self._width(widths.values()) > width:
            most = max(part, key=lambda n: (widths[n] > self._least(n), widths[n]))
            if widths[most] == 1:
                break
            widths[most] -= 1
        return widths

    def is_right(self, number: int) -> bool:
        """Whether a column is set to the right."""
        return self._right[number]

    def _cells(self, number: int) -> list[str]:
        return [self.columns[number], *(row[number] for row in self.rows)]

    def _least(self, number: int) -> int:
        """The least width of a column at which no word of its cells is broken."""
        words = (word for cell in self._cells(number) for word in cell.split())
        return min(max(map(len, words), default=1), _WORD_SIZE_MAX)

    @staticmethod
    def _width(widths: Iterable[int]) -> int:
        return sum(width + _BETWEEN for width in widths) - _BETWEEN


def style_of(cell: str) -> str:
    """The style of a cell, by its first word; empty for none."""
    word = cell.partition(" ")[0].strip(",:")
    return _STYLES.get(word, "")


def _is_number(cell: str) -> bool:
    """Whether a cell belongs in a column of numbers: digits, or a dash for none."""
    return cell in ("", "-") or cell.replace(",", "").replace(".", "").isdigit()


def clean(text: str) -> str:
    """A text of others, without characters that would move the cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def size_of(count: int | None) -> str:
    """A number with commas; a dash for an unknown one."""
    return "-" if count is None else f"{count:,}"


def show(*tables: Table, file: TextIO | None = None) -> None:
    """Print tables: with colours where there is a terminal."""
    out = file or sys.stdout
    if out.isatty():
        from culm_io.programs.drawing import coloured

        out.write(coloured(out, *tables))
    else:
        out.write("\n\n".join(table.plain() for table in tables) + "\n")
    out.flush()


def render(table: Table, file: TextIO) -> str:
    """The table as `file` takes it: with the codes of colours where that is a terminal."""
    if not file.isatty():
        return table.plain()
    from culm_io.programs.drawing import coloured

    return coloured(file, table).rstrip("\n")


class Teller:
    """Reports events, a line each: words on a terminal, JSON elsewhere or if asked for."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._as_json = False

    def write_json(self) -> None:
        """From now on, JSON on a terminal, too."""
        self._as_json = True

    @property
    def in_words(self) -> bool:
        """Whether people read it."""
        return not self._as_json and (self._file or sys.stdout).isatty()

    def __call__(self, event: str, **of: object) -> None:
        """Report an event, with these particulars."""
        if self.in_words:
            from culm_io.programs.drawing import words_of_event

            self._write(words_of_event(event, _words_of(of)))
        else:
            self.result({"event": event, **of})

    def result(self, of: Mapping[str, object]) -> None:
        """Report a result; in words, in some lines, without counts of zero."""
        out = self._file or sys.stdout
        if self.in_words:
            from culm_io.programs.drawing import words_of_result

            self._write(words_of_result(out, _words_of(of)))
        else:
            print(json.dumps(of), file=out, flush=True)

    def _write(self, words: Text) -> None:
        from culm_io.programs.drawing import coloured

        out = self._file or sys.stdout
        out.write(coloured(out, words, soft_wrap=True))
        out.flush()


def _words_of(of: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Names and values of particulars, without those that say nothing."""
    for name, value in of.items():
        if value is not None and value != []:
            said = value if isinstance(value, str) else json.dumps(value)
            yield name.replace("_", " "), clean(said)


class Screen:
    """A picture that is drawn anew whenever it changes, on a terminal; nothing elsewhere."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.drawn = (file or sys.stdout).isatty()
        self._live: Live | None = None
        if self.drawn:
            from culm_io.programs.drawing import live

            self._live = live(file)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def draw(self, *parts: Table | str) -> None:
        """Show these, one below the other, in place of the last ones."""
        if self._live is not None:
            from culm_io.programs.drawing import below_each_other

            self._live.update(below_each_other(*parts), refresh=True)


class Column(Enum):
    """Columns beside a bar; a string is a text that rich fills in."""

    SPINNER = "spinner"
    BAR = "bar"
    COUNT = "done of total"
    TIME_LEFT = "time left"


class Bars:
    """Bars for the progress of work, on stderr; drawn on a terminal only."""

    def __init__(self, *columns: Column | str, quiet: bool = False) -> None:
        self.drawn = sys.stderr.isatty() and not quiet
        self._progress: Progress | None = None
        if self.drawn:
            from culm_io.programs.drawing import progress

            self._progress = progress(columns)

    def add(self, work: str, **fields: Any) -> TaskID:
        """The number of a bar for more work, of a size not known yet."""
        if self._progress is None:
            return cast("TaskID", 0)
        return self._progress.add_task(work, total=None, **fields)

    def show(self, task: TaskID, done: int, total: int | None, **fields: Any) -> None:
        """Show that `done` of `total` units of the work are done."""
        if self._progress is not None:
            self._progress.update(task, completed=done, total=total, **fields)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
