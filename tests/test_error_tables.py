"""The tables of error codes in the documentation have every code, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import pytest

import culm.bamboo.errors
import culm.bamboo.records
import culm.bymux
import culm.capture
import culm.garlic
import culm.garlic.raft
import culm.machine
import culm.oxen
import culm.oxen.errors
import culm.p2panda
import culm.point2point
import culm.reconcile
import culm.ssb
import culm.ssb.ebt
import culm.ssb.messages
import culm.ssb.muxrpc
import culm.ssb.peer
from test_architecture import MODULES

DOCS = Path(__file__).resolve().parents[1] / "docs"


class Table(NamedTuple):
    """Where an enum is explained: in all tables of a page between two headings or passages."""

    codes: type[IntEnum]
    page: str
    after: str = ""
    before: str | None = None


TABLES = [
    Table(culm.machine.ContractErrorCode, "driving.md"),
    Table(culm.bamboo.errors.Reason, "bamboo.md", before="## Stores"),
    Table(culm.bamboo.records.StoreErrorCode, "bamboo.md", "## Stores"),
    Table(culm.bymux.ErrorCode, "bymux.md"),
    Table(culm.point2point.ErrorCode, "point2point.md"),
    Table(culm.oxen.errors.DropReason, "oxen.md", before="## Errors"),
    Table(culm.oxen.ErrorCode, "oxen.md", "## Errors"),
    Table(culm.garlic.ErrorCode, "garlic.md", before="And of the core"),
    Table(culm.garlic.raft.ErrorCode, "garlic.md", "And of the core"),
    Table(culm.p2panda.ErrorCode, "p2panda.md", before="## What is wrong with data"),
    Table(culm.p2panda.Reason, "p2panda.md", "## What is wrong with data"),
    Table(culm.ssb.ErrorCode, "ssb.md"),
    Table(culm.ssb.ebt.ErrorCode, "ssb-ebt.md", before="Of a `Peer` and its links"),
    Table(culm.ssb.peer.ErrorCode, "ssb-ebt.md", "Of a `Peer` and its links"),
    Table(culm.ssb.muxrpc.ErrorCode, "ssb-muxrpc.md"),
    Table(culm.ssb.messages.MessageErrorCode, "ssb-messages.md"),
    Table(culm.reconcile.ErrorCode, "reconcile.md"),
    Table(culm.capture.ErrorCode, "captures.md"),
]

# The codecs have no page; the codes of a spec's verbs are in its docstring.
WITHOUT_A_TABLE = {"WireErrorCode", "VerbErrorCode", "ProtocolErrorCode"}  # the last is a base


def named_codes(table: Table) -> Iterator[tuple[str, str]]:
    """Each name in the column of codes, and the heading of the column that explains it."""
    text = (DOCS / table.page).read_text(encoding="utf-8")
    text = text.split(table.after, 1)[1] if table.after else text
    text = text if table.before is None else text.split(table.before, 1)[0]
    for head, rows in re.findall(r"^(\|.*\|)\n\| ---.*\n((?:\|.*\n)+)", text, flags=re.M):
        columns = [cell.strip() for cell in head.strip("|").split("|")]
        for column in {"Code", "Reason"} & set(columns):
            place = columns.index(column)
            for row in rows.splitlines():
                cell = row.strip("|").split("|")[place]
                for name in re.findall(r"`(\w+)`", cell):
                    yield name, columns[place - 1 if place == len(columns) - 1 else place + 1]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.codes.__qualname__)
def test_a_table_has_every_code_and_no_other(table: Table) -> None:
    names = [name for name, _ in named_codes(table)]
    assert set(names) == {code.name for code in table.codes}


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_a_code_is_explained_by_what_happened(page: str) -> None:
    """Not by the broken rule: readers who look up a code have just seen what happened."""
    tables = [table for table in TABLES if table.page == page]
    headings = {heading for table in tables for _, heading in named_codes(table)}
    assert not [heading for heading in headings if "rule" in heading.lower()]


def test_every_enum_of_codes_has_a_table() -> None:
    found = {
        (name, path.parent.name)
        for path in MODULES
        for name in re.findall(
            r"^class (\w*(?:ErrorCode|DropReason)|Reason)\((?:IntEnum|ProtocolErrorCode)\)",
            path.read_text(),
            flags=re.M,
        )
        if name not in WITHOUT_A_TABLE
    }
    assert {name for name, _ in found} == {table.codes.__name__ for table in TABLES}
    assert len(found) == len(TABLES)
