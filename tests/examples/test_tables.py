"""Output of programs: colours on a terminal, plain elsewhere."""

from __future__ import annotations

import json
import re
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culm_io.programs.tables import Screen, Table, Teller, clean, show

TABLE = Table(
    "Servers", ("name", "state", "lacks"), [("one", "leader", 0), ("two\x1b[2J", "down", 1204)]
)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_table_in_a_pipe_is_plain_text() -> None:
    pipe = StringIO()
    show(TABLE, file=pipe)
    assert pipe.getvalue() == (
        "Servers\n"
        "name        state   lacks\n"
        "one         leader      0\n"
        "two\\x1b[2J  down     1204\n"
    )


def test_a_table_on_a_terminal_is_in_colour() -> None:
    terminal = Terminal()
    show(TABLE, file=terminal)
    assert "\x1b[32mleader" in terminal.getvalue()
    assert "\x1b[31mdown" in terminal.getvalue()
    assert "\x1b[2J" not in terminal.getvalue()  # another program's output


def on_terminal(table: Table, columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The picture on such a terminal, without colours."""
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = Terminal()
    show(table, file=terminal)
    return re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())


WIDE = Table(
    "Term 3: server 2 leads",
    ("server", "role", "last contact", "unacknowledged", "leader's work", "lacks", "silent (s)"),
    [(1, "pre_candidate", "12 s ago", "1,204", "snapshot 196,608 bytes", "0", "0.1")],
)


@pytest.mark.parametrize("columns", [104, 80, 60, 40])
def test_no_word_of_a_table_is_broken(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_terminal(WIDE, columns, monkeypatch)
    assert max(map(len, shown.splitlines())) <= columns
    for text in (*WIDE.columns, *WIDE.rows[0]):
        assert set(text.split()) <= set(shown.split())


WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789,_'", min_size=1, max_size=20)
CELLS = st.lists(WORDS, max_size=3).map(" ".join)


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=2, max_size=4)
    )
)
def test_no_word_of_any_programs_table_is_broken_in_60_columns(lines: list[list[str]]) -> None:
    """Names of columns, states and numbers fit; ids and paths, which may not, can be broken."""
    columns, *rows = lines
    with pytest.MonkeyPatch.context() as patch:
        shown = on_terminal(Table("", columns, rows), 60, patch)
    assert max(map(len, shown.splitlines()), default=0) <= 60
    for text in (*columns, *(cell for row in rows for cell in row)):
        assert set(text.split()) <= set(shown.split())


def test_what_has_no_place_beside_stands_below_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths = Table(
        "", ("kind", "x" * 19, "path"), [("file", 1, "a/b"), ("link", 2, "c")], key="path"
    )
    wide = on_terminal(paths, 60, monkeypatch).splitlines()
    assert wide[0].split() == ["kind", "x" * 19, "path"]
    narrow = [line.split() for line in on_terminal(paths, 30, monkeypatch).splitlines()]
    assert narrow.count(["path", "kind"]) == narrow.count(["path", "x" * 19]) == 1
    assert ["a/b", "file"] in narrow
    assert ["a/b", "1"] in narrow


def test_a_word_that_is_wider_than_the_terminal_is_broken_and_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table("", ("document", "fields"), [("ab" * 34, "{}")])
    shown = on_terminal(table, 30, monkeypatch)
    assert max(map(len, shown.splitlines())) <= 30
    assert "ab" * 34 in re.sub(r"[^ab]", "", shown)


def test_who_wants_no_colours_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    show(TABLE, file=terminal)
    Teller(terminal)("connected", peer="@a")
    assert "leader" in terminal.getvalue()
    assert re.findall(r"\x1b\[(?:3|4|9)\d", terminal.getvalue()) == []


def test_a_screen_draws_on_a_terminal_only() -> None:
    for file, drawn in ((StringIO(), False), (Terminal(), True)):
        with Screen(file) as screen:
            screen.draw(TABLE, "words")
        assert ("words" in file.getvalue()) is drawn


def test_what_happens_is_told_in_words_or_json() -> None:
    pipe, terminal, machine = StringIO(), Terminal(), Terminal()
    tell = Teller(machine)
    tell.write_json()
    for each in (Teller(pipe), Teller(terminal), tell):
        each("connected", peer="@a\x1b", error=None)
    said = {"event": "connected", "peer": "@a\x1b", "error": None}
    assert json.loads(pipe.getvalue()) == json.loads(machine.getvalue()) == said
    assert "connected" in terminal.getvalue()
    assert "@a\\x1b" in terminal.getvalue()
    assert "error" not in terminal.getvalue()


def test_a_result_has_no_words_for_what_there_is_none_of() -> None:
    pipe, terminal = StringIO(), Terminal()
    found = {"payload_bytes": 0, "error": None, "faults": [], "path": "a\x1b"}
    for each in (Teller(pipe), Teller(terminal)):
        each.result(found)
    assert json.loads(pipe.getvalue()) == found
    words = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())
    assert words == "payload bytes 0  path a\\x1b\n"


def test_a_result_breaks_between_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    Teller(terminal).result({"log": "ab" * 32, "passed": True, "records": [{"kind": "file"}]})
    words = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())
    assert words == f'log {"ab" * 32}\npassed true  records [{{"kind": "file"}}]\n'


def test_words_go_through_who_stands_in_for_a_terminal_that_is_drawn_on() -> None:
    """Otherwise a bar that is being drawn would stand in the middle of them."""
    real, proxy = Terminal(), Terminal()
    proxy.rich_proxied_file = real  # type: ignore[attr-defined]  # by which rich finds it
    Teller(proxy)("connected", peer="@a")
    show(TABLE, file=proxy)
    assert real.getvalue() == ""
    assert "connected" in proxy.getvalue()
    assert "leader" in proxy.getvalue()


def test_what_moves_the_cursor_is_escaped() -> None:
    assert clean("a\x1b\n\udcff\u00e9") == "a\\x1b\\n\\udcff\u00e9"
