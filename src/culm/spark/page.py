"""An HTML page of tables with bars: it loads nothing, is light or dark, and can be filtered.

On a narrow screen each row becomes a card, with the names of columns beside its values.  A bar
stands beside its number and begins at zero, so that the lengths of two bars compare as their
numbers do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple


class Bar(NamedTuple):
    """A number, drawn as a part of the largest one beside it."""

    value: int
    largest: int


class Code(NamedTuple):
    """Text to be copied; `whole` is shown under the pointer."""

    text: str
    whole: str = ""


class Query(NamedTuple):
    """A query for rows, to be copied, and folded so that its row stays low."""

    text: str


Cell = str | int | float | Bar | Code | Query | None


class Table(NamedTuple):
    """Rows under the names of columns; a `note` tells of rows that are left out."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


class Section(NamedTuple):
    """A part of the page."""

    title: str
    tables: Sequence[Table]


# Tables with named columns and at least this number of rows have a field to filter them.
_FILTERED = 30
# Text that is no longer than this stays on one line.
_SHORT = 24

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def html_of(
    title: str, lead: str, mood: str, hints: Sequence[str], sections: Sequence[Section]
) -> str:
    """The page; `mood` is ``passed``, ``failed`` or ``odd``."""
    folder = files("culm.spark").joinpath("report_page")
    style, script = (folder.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    parts = [
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n<h1>{escape(title)}</h1>\n",
        f'<p class="lead {mood}">{escape(lead)}</p>\n',
        *(f"<p>{escape(hint)}</p>\n" for hint in hints),
    ]
    for section in sections:
        tables = [table for table in section.tables if table.rows]
        if tables:
            parts += [f"<h2>{escape(section.title)}</h2>\n", *map(_table, tables)]
    return "".join([*parts, f"<script>\n{script}</script>\n</html>\n"])


def _table(table: Table) -> str:
    numeric = [_is_numeric(table, column) for column in range(len(table.columns))]
    filtered = " data-filter" if len(table.rows) >= _FILTERED and any(table.columns) else ""
    heads = "".join(
        _head(*each) for each in zip(table.columns, numeric, table.rows[0], strict=True)
    )
    rows = "".join(
        f"<tr>{''.join(map(_cell, row, table.columns, numeric))}</tr>\n" for row in table.rows
    )
    note = f'<p class="note">{escape(table.note)}</p>\n' if table.note else ""
    return (
        f'<div class="table"><table{filtered}><caption>{escape(table.title)}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n{note}"
    )


def _is_numeric(table: Table, column: int) -> bool:
    """Whether a column has only numbers, or ``None`` for absent ones."""
    values = [row[column] for row in table.rows if row[column] is not None]
    return bool(values) and all(isinstance(each, (int, float, Bar)) for each in values)


def _head(name: str, is_numeric: bool, first: Cell) -> str:
    kind = ' class="number"' if is_numeric else ""
    span = ' colspan="2"' if isinstance(first, Bar) else ""
    return f'<th scope="col"{kind}{span}>{escape(name)}</th>'


def _cell(value: Cell, column: str, is_numeric: bool) -> str:
    name = f' data-name="{escape(column)}"' if column else ""
    kind = ' class="number"' if is_numeric else ""
    match value:
        case Bar(number, largest):
            width = 100 * number / max(largest, 1)
            bar = f'<td class="bar"><i style="width:{width:.4g}%"></i></td>'
            return f"<td{kind}{name}>{number:,}</td>{bar}"
        case Code(text, whole):
            title = f' title="{escape(whole)}"' if whole else ""
            return f"<td{name}><code{title}>{escape(text)}</code></td>"
        case Query(text):
            told = f"<details><summary>query</summary><code>{escape(text)}</code></details>"
            return f"<td>{told}</td>"
        case bool() | str():
            short = ' class="short"' if len(str(value)) <= _SHORT else ""
            return f"<td{short}{name}>{escape(str(value))}</td>"
        case None:
            return f"<td{kind}{name}>{'–' if is_numeric else ''}</td>"
        case _:
            return f"<td{kind}{name}>{value:,}</td>"


def bars(values: Sequence[int]) -> Iterator[Bar]:
    """Numbers as bars beside each other."""
    largest = max(values, default=0)
    return (Bar(value, largest) for value in values)
