"""Tables and bars for people: in colour and live on a terminal, plain text in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from culm_io.programs.ending import end_without

try:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
    from rich.live import Live
    from rich.progress import Progress, ProgressColumn, TaskID
    from rich.table import Table as RichTable
    from rich.text import Text
except ModuleNotFoundError as error:
    end_without(error)

__all__ = ["Bars", "Screen", "Table", "Teller", "clean", "render", "show", "size_of"]

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
_GAP = "  "
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
            _GAP.join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, self._right, strict=True)
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, *text] if self.title else text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As wide as there is room; columns without a place beside the rest stand below it."""
        if self.title:
            yield Text(self.title, style="bold")
        for number, part in enumerate(self._parts(options.max_width)):
            if number:
                yield Text()
            yield self._part(part, options.max_width)

    def _parts(self, width: int) -> Iterator[list[int]]:
        """The columns that fit side by side; where not all do, each row's name is repeated."""
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

    def _part(self, part: Sequence[int], width: int) -> RichTable:
        widths = {number: max(map(len, self._cells(number))) for number in part}
        while self._width(widths.values()) > width:
            most = max(part, key=lambda n: (widths[n] > self._least(n), widths[n]))
            if widths[most] == 1:
                break
            widths[most] -= 1
        made = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for number in part:
            made.add_column(
                self.columns[number],
                justify="right" if self._right[number] else "left",
                overflow="fold",
                width=widths[number],
            )
        for row in self.rows:
            made.add_row(*(Text(row[number], style=_style_of(row[number])) for number in part))
        return made

    def _cells(self, number: int) -> list[str]:
        return [self.columns[number], *(row[number] for row in self.rows)]

    def _least(self, number: int) -> int:
        """The least width of a column at which no word of its cells is broken."""
        words = (word for cell in self._cells(number) for word in cell.split())
        return min(max(map(len, words), default=1), _WORD_SIZE_MAX)

    @staticmethod
    def _width(widths: Iterable[int]) -> int:
        return sum(width + _BETWEEN for width in widths) - _BETWEEN


def _style_of(cell: str) -> str:
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
        out.write(_coloured(out, *tables))
    else:
        out.write("\n\n".join(table.plain() for table in tables) + "\n")
    out.flush()


def render(table: Table, file: TextIO) -> str:
    """The table as `file` takes it: with the codes of colours where that is a terminal."""
    if not file.isatty():
        return table.plain()
    return _coloured(file, table).rstrip("\n")


def _coloured(file: TextIO, *parts: RenderableType, soft_wrap: bool = False) -> str:
    """The text to write to a terminal.

    A console of rich's own writing would go past the stand-in for the terminal while something
    is drawn there, and into the drawing.
    """
    console = Console(file=file)
    with console.capture() as capture:
        console.print(*parts, soft_wrap=soft_wrap)
    return capture.get()


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
            words = Text(clean(event), style=_style_of(event) or "bold")
            for each in _words_of(of):
                words.append("  ").append(each)
            self._write(words)
        else:
            self.result({"event": event, **of})

    def result(self, of: Mapping[str, object]) -> None:
        """Report a result; in words, in some lines, without counts of zero."""
        out = self._file or sys.stdout
        if self.in_words:
            width, lines = Console(file=out).width, list[Text]()
            for each in _words_of(of):
                if lines and lines[-1].cell_len + len(_GAP) + each.cell_len <= width:
                    lines[-1].append(_GAP).append(each)
                else:
                    lines.append(each)
            self._write(Text("\n").join(lines))
        else:
            print(json.dumps(of), file=out, flush=True)

    def _write(self, words: Text) -> None:
        out = self._file or sys.stdout
        out.write(_coloured(out, words, soft_wrap=True))
        out.flush()


def _words_of(of: Mapping[str, object]) -> Iterator[Text]:
    for name, value in of.items():
        if value is not None and value != []:
            said = value if isinstance(value, str) else json.dumps(value)
            yield Text.assemble((f"{name.replace('_', ' ')} ", "dim"), clean(said))


class Screen:
    """A picture that is drawn anew whenever it changes, on a terminal; nothing elsewhere."""

    def __init__(self, file: TextIO | None = None) -> None:
        console = Console(file=file)
        self.drawn = console.is_terminal
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        if self.drawn:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.drawn:
            self._live.stop()

    def draw(self, *parts: Table | str) -> None:
        """Show these, one below the other, in place of the last ones."""
        if self.drawn:
            shown = [Text(part) if isinstance(part, str) else part for part in parts]
            self._live.update(Group(*shown), refresh=True)


class Bars:
    """Bars for the progress of work, on stderr; drawn on a terminal only."""

    def __init__(self, *columns: ProgressColumn, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self.drawn = console.is_terminal and not quiet
        self._progress = Progress(
            *columns,
            console=console,
            disable=not self.drawn,
            redirect_stdout=sys.stdout.isatty(),  # else it would end up on stderr
        )

    def add(self, work: str, **fields: Any) -> TaskID:
        """A bar for more work, of a size not known yet."""
        return self._progress.add_task(work, total=None, **fields)

    def show(self, task: TaskID, done: int, total: int | None, **fields: Any) -> None:
        """Show that `done` of `total` units of the work are done."""
        self._progress.update(task, completed=done, total=total, **fields)

    def __enter__(self) -> Self:
        if self.drawn:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.drawn:
            self._progress.stop()
