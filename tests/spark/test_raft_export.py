"""A server's log, exported as on the page, is read by the job."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
from culm.garlic import Limits, decode_configuration, encode_configuration  # noqa: E402
from culm.garlic.raft import Configuration, Entry, Persist, Server, Stored  # noqa: E402
from culm.spark.protocol_jobs import parsed_lines, raft_entry  # noqa: E402
from culm.testing.raft_store_model import Values  # noqa: E402
from culm_io.stores.raft import RaftSqliteStore  # noqa: E402


def test_a_log_is_exported_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    servers = Configuration(servers=(Server(1, "one:1"), Server(2, "two:2")))
    chance = Random(1)
    entries = [Entry(1, servers), *(Entry(2, chance.randbytes(at)) for at in range(5))]
    store = RaftSqliteStore(Path("one.sqlite"), Values(), Stored.founding(servers.servers))
    persist = Persist(ticket=1, term=2, voted_for=1, commit_index=0, first_index=1, entries=entries)
    store.perform(persist)
    store.close()
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    [program] = re.findall(r'^```python\n(columns = \("at".*?)^```', page, flags=re.M | re.S)
    exec(program, {"json": json, "sqlite3": sqlite3})
    given = [{"entry": line} for line in Path("one.jsonl").read_bytes().splitlines()]
    rows = list(parsed_lines(given, form=raft_entry))
    assert [row["at"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["term"] for row in rows] == [1, 2, 2, 2, 2, 2]
    assert [row["value"] for row in rows[1:]] == [entry.data for entry in entries[1:]]
    assert [row["is_configuration"] for row in rows] == [True, *[False] * 5]
    assert rows[0]["value"] == encode_configuration(servers)
    assert decode_configuration(rows[0]["value"], Limits()) == servers
