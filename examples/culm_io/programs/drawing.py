"""Everything that rich draws on a terminal; loaded only where there is one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable
from rich.text import Text

from culm_io.programs.tables import GAP, Column, Table, clean, style_of

__all__ = [
    "below_each_other",
    "coloured",
    "live",
    "progress",
    "words_of_event",
    "words_of_result",
]

_COLUMNS: dict[Column, type[ProgressColumn]] = {
    Column.SPINNER: SpinnerColumn,
    Column.BAR: BarColumn,
    Column.COUNT: MofNCompleteColumn,
    Column.TIME_LEFT: TimeRemainingColumn,
}


class _Drawn:
    """A table as wide as there is room; columns without a place beside the rest stand below it."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._table.title:
            yield Text(self._table.title, style="bold")
        for number, part in enumerate(self._table.parts(options.max_width)):
            if number:
                yield Text()
            yield self._part(part, options.max_width)

    def _part(self, part: Sequence[int], width: int) -> RichTable:
        table = self._table
        made = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for number, its_width in table.widths(part, width).items():
            made.add_column(
                table.columns[number],
                justify="right" if table.is_right(number) else "left",
                overflow="fold",
                width=its_width,
            )
        for row in table.rows:
            made.add_row(*(Text(row[number], style=style_of(row[number])) for number in part))
        return made


def coloured(file: TextIO, *parts: Table | Text, soft_wrap: bool = False) -> str:
    """The text to write to a terminal.

    A console of rich's own writing would go past the stand-in for the terminal while something
    is drawn there, and into the drawing.
    """
    console = Console(file=file)
    with console.capture() as capture:
        console.print(*map(_shown, parts), soft_wrap=soft_wrap)
    return capture.get()


def _shown(part: Table | Text | str) -> RenderableType:
    if isinstance(part, Table):
        return _Drawn(part)
    return Text(part) if isinstance(part, str) else part


def words_of_event(event: str, words: Iterable[tuple[str, str]]) -> Text:
    """An event and its particulars, on a line."""
    line = Text(clean(event), style=style_of(event) or "bold")
    for each in words:
        line.append(GAP).append(_pair(*each))
    return line


def words_of_result(file: TextIO, words: Iterable[tuple[str, str]]) -> Text:
    """Particulars in lines as wide as the terminal; each stays whole."""
    width, lines = Console(file=file).width, list[Text]()
    for each in (_pair(*pair) for pair in words):
        if lines and lines[-1].cell_len + len(GAP) + each.cell_len <= width:
            lines[-1].append(GAP).append(each)
        else:
            lines.append(each)
    return Text("\n").join(lines)


def _pair(name: str, value: str) -> Text:
    return Text.assemble((f"{name} ", "dim"), value)


def live(file: TextIO | None) -> Live:
    """A picture on that terminal, by default stdout, which is cut where it is too high."""
    return Live(console=Console(file=file), auto_refresh=False, vertical_overflow="crop")


def below_each_other(*parts: Table | str) -> Group:
    """These parts as one picture."""
    return Group(*map(_shown, parts))


def progress(columns: Iterable[Column | str]) -> Progress:
    """Bars with these columns, on stderr."""
    made = (TextColumn(each) if isinstance(each, str) else _COLUMNS[each]() for each in columns)
    # Where stdout is no terminal, redirecting it would bring it to stderr.
    redirected = sys.stdout.isatty()
    return Progress(*made, console=Console(stderr=True), redirect_stdout=redirected)
