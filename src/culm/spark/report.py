"""What a job found, for people: text, and one HTML page with its plots inside."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from culm.spark.reasons import names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from culm.spark.jobs import Store

__all__ = ["Picture", "html_page", "pictures_of", "text_of"]

_ROWS_MAX = 20
#: Plots of counts that a summary has: titles, and what is counted.
_COUNTED = {
    "quarantined": ("Set aside, by reason", "rows"),
    "reasons": ("Held against records", "records"),
    "actions": ("Operations, by what they do", "operations"),
    "events": ("What machines said", "events"),
    "violations": ("Rules that were broken", "times"),
    "verdicts": ("Runs, by what became of them", "runs"),
}
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
       color: #1b1f24; background: #fff; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { border-bottom: 1px solid #d0d7de; padding: .25rem .75rem; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1.5rem 0; } figcaption { color: #57606a; }
svg { max-width: 100%; height: auto; }
code { overflow-wrap: anywhere; }
"""


class Picture(NamedTuple):
    """A bar chart: a title, the labels, and the number of each."""

    title: str
    axis: str
    bars: Sequence[tuple[str, int]]
    logarithmic: bool = False


def text_of(summary: Mapping[str, Any]) -> str:
    """A summary as lines of text, nested ones indented."""
    return "".join(f"{line}\n" for line in _lines(summary))


def _lines(summary: Mapping[str, Any]) -> Iterator[str]:
    for name, value in summary.items():
        label = f"{_spelled(name)}:"
        if not isinstance(value, (Mapping, list)):
            yield f"{label} {value}"
            continue
        yield label if value else f"{label} none"
        if isinstance(value, Mapping):
            yield from (f"  {key}: {part}" for key, part in value.items())
        else:
            yield from (f"  {row}" for row in value if not isinstance(row, Mapping))
            for row in (each for each in value if isinstance(each, Mapping)):
                yield "  " + ", ".join(f"{_spelled(key)} {part}" for key, part in row.items())


def _spelled(name: str) -> str:
    """The name of a number, spelled for people."""
    return name.replace("_", " ")


def pictures_of(job: str, summary: Mapping[str, Any], store: Store) -> list[Picture]:
    """The plots of a job, made from its summary and tables."""
    found = [
        Picture(title, axis, list(summary[name].items()))
        for name, (title, axis) in _COUNTED.items()
        if name in summary
    ]
    if job == "audit":
        found += _audit_pictures(store)
    if job == "reconcile":
        found += _reconcile_pictures(store)
    return [picture for picture in found if picture.bars]


def _audit_pictures(store: Store) -> Iterator[Picture]:
    from pyspark.sql import functions as f

    logs = store.read("logs")
    power = f.floor(f.log10(f.greatest(f.col("entries"), f.lit(1)))).cast("int")
    sizes = logs.groupBy(power.alias("power")).count().orderBy("power").collect()
    bars = [(f"{10 ** row['power']:,} and more", row["count"]) for row in sizes]
    yield Picture("Logs, by their entries", "logs", bars, logarithmic=True)
    faulty = logs.filter("first_fault is not null")
    reasons = faulty.select(f.explode(names("first_fault_reasons")).alias("reason"))
    yield Picture("Where logs stop being verified, by reason", "logs", _counted(reasons, "reason"))
    forks = store.read("forks").select(f.col("variants").cast("string").alias("variants"))
    yield Picture("Forks, by how many variants there are", "forks", _counted(forks, "variants"))
    yield Picture(
        "The largest logs",
        "entries",
        [
            (_short(row["log"]), row["entries"])
            for row in logs.orderBy(f.desc("entries"), "log").limit(_ROWS_MAX).collect()
        ],
        logarithmic=True,
    )


def _reconcile_pictures(store: Store) -> Iterator[Picture]:
    from pyspark.sql import functions as f

    holders = store.read("holders")
    copies = holders.select(f.col("copies").cast("string").alias("copies"))
    yield Picture("Replication factor, in ranges that differ", "items", _counted(copies, "copies"))
    lacking = holders.select(f.explode("lacking").alias("replica"))
    yield Picture("Items that replicas lack", "items", _counted(lacking, "replica"))
    ranges = store.read("ranges").select(f.concat(f.lit("level "), "level").alias("level"))
    yield Picture("Ranges that differ", "ranges", _counted(ranges, "level"), logarithmic=True)


def _counted(rows: DataFrame, column: str) -> list[tuple[str, int]]:
    counted = rows.groupBy(column).count().orderBy(column).limit(_ROWS_MAX).collect()
    return [(row[column], row["count"]) for row in counted]


def _short(log: bytes) -> str:
    """A log in short: the beginning of its author's key, and its number."""
    return f"{bytes(log[:4]).hex()}…/{int.from_bytes(log[32:40], 'big')}"


def html_page(title: str, summary: Mapping[str, Any], pictures: Sequence[Picture]) -> str:
    """The page; it loads nothing from elsewhere."""
    figures = "".join(
        f"<figure>{_drawn(each)}<figcaption>{escape(each.title)}</figcaption></figure>\n"
        for each in pictures
    )
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n"
        f"{_table(summary)}{figures}</html>\n"
    )


def _table(summary: Mapping[str, Any]) -> str:
    return _rows({_spelled(name): _cell(value) for name, value in summary.items()})


def _rows(cells: Mapping[str, str]) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th>{cell}</tr>\n" for name, cell in cells.items())
    return f"<table>\n{rows}</table>\n"


def _cell(value: object) -> str:
    if isinstance(value, Mapping) and value:
        return f"<td>{_rows({name: _cell(part) for name, part in value.items()})}</td>"
    if isinstance(value, list) and value:
        return f"<td>{''.join(map(_said, value))}</td>"
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{escape(str(value)) if value not in ({}, []) else 'none'}</td>"


def _said(part: object) -> str:
    return _table(part) if isinstance(part, Mapping) else f"{escape(str(part))}<br>"


def _drawn(picture: Picture) -> str:
    """The plot as SVG, the same in each run."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "culm", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 1 + 0.35 * len(picture.bars)), layout="constrained")
        axes = figure.subplots()
        labels, values = zip(*picture.bars, strict=True)
        bars = axes.barh(range(len(labels)), values, color="#2f6f9f")
        axes.set_yticks(range(len(labels)), labels, parse_math=False)
        axes.bar_label(bars, labels=[f" {value:,}" for value in values])
        axes.invert_yaxis()
        axes.set_xlabel(picture.axis)
        if picture.logarithmic:
            axes.set_xscale("log")
        else:
            axes.locator_params(axis="x", integer=True)
        axes.margins(x=0.15)
        axes.spines[["top", "right"]].set_visible(False)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    drawn = file.getvalue()
    return drawn[drawn.index("<svg") :]
