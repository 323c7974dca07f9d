"""An HTML page of tables with bars: it loads nothing, is light or dark, and can be filtered.

On a narrow screen each row becomes a card, with the names of columns beside its values.  A bar
stands beside its number and begins at zero, so that the lengths of two bars compare as their
numbers do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Bar", "Cell", "Code", "Query", "Section", "Table", "bars", "html_of"]


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

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --back: #fff; --line: #d0d7de; --soft: #57606a;
        --bar: #2f6f9f; --good: #1a7f37; --bad: #b42318; --odd: #9a6700; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --back: #0d1117; --line: #3d444d; --soft: #9198a1; --bar: #58a6d8;
          --good: #3fb950; --bad: #ff7b72; --odd: #d29922; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem;
       color: var(--text); background: var(--back); }
.lead { font-size: 1.25rem; } .passed { color: var(--good); } .failed { color: var(--bad); }
.odd { color: var(--odd); }
.table { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0 1rem; }
caption { text-align: left; font-weight: 600; white-space: nowrap; }
td, th { border-bottom: 1px solid var(--line); padding: .25rem .75rem .25rem 0; text-align: left;
         vertical-align: top; overflow-wrap: anywhere; }
th, .short, code[title] { white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { width: 12rem; min-width: 6rem; }
.bar i { display: block; height: .8em; margin-top: .35em; background: var(--bar); }
.note, summary, output { color: var(--soft); }
code { font-size: .85em; }
summary { cursor: pointer; } details code { display: block; width: min(28rem, 80vw); }
input { font: inherit; font-weight: 400; margin: 0 1rem; padding: 0 .4rem; }
output { font-weight: 400; }
@media (max-width: 44rem) {
  thead { display: none; }
  table, caption, tbody, td { display: block; white-space: normal; }
  tr:not([hidden]) { display: block; }
  tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  td, .number { border: 0; padding: 0; text-align: left; }
  td:first-child { font-weight: 600; }
  td[data-name]::before { content: attr(data-name) ": "; color: var(--soft); font-weight: 400; }
  .bar { width: auto; } .bar i { margin: 0 0 .3em; } input { display: block; margin: .25rem 0; }
}
"""
_SCRIPT = """
for (const table of document.querySelectorAll("table[data-filter]")) {
  const field = document.createElement("input");
  const count = document.createElement("output");
  field.type = "search";
  field.placeholder = "filter these rows";
  field.setAttribute("aria-label", "filter the rows of: " + table.caption.textContent);
  const rows = [...table.tBodies[0].rows];
  const said = rows.map(row => [...row.cells].filter(cell => !cell.querySelector("details"))
    .map(cell => cell.textContent + " " + (cell.firstElementChild?.title ?? ""))
    .join(" ").toLowerCase());
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(" ");
    rows.forEach((row, at) => row.hidden = !words.every(word => said[at].includes(word)));
    const shown = rows.filter(row => !row.hidden).length;
    count.textContent = field.value && `${shown} of ${rows.length}`;
  });
  table.caption.append(field, count);
}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def html_of(
    title: str, lead: str, mood: str, hints: Sequence[str], sections: Sequence[Section]
) -> str:
    """The page; `mood` is ``passed``, ``failed`` or ``odd``."""
    parts = [
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n",
        f'<p class="lead {mood}">{escape(lead)}</p>\n',
        *(f"<p>{escape(hint)}</p>\n" for hint in hints),
    ]
    for section in sections:
        tables = [table for table in section.tables if table.rows]
        if tables:
            parts += [f"<h2>{escape(section.title)}</h2>\n", *map(_table, tables)]
    return "".join([*parts, f"<script>{_SCRIPT}</script>\n</html>\n"])


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
