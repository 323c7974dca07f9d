"""What programs say: colours on a terminal, plain elsewhere."""

from __future__ import annotations

import json
import re
from io import StringIO

import pytest

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
    assert "\x1b[2J" not in terminal.getvalue()  # what somebody else has written


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


def test_words_go_through_who_stands_in_for_a_terminal_that_is_drawn_on() -> None:
    """Else a bar that is being drawn would stand in the middle of them."""
    real, proxy = Terminal(), Terminal()
    proxy.rich_proxied_file = real  # type: ignore[attr-defined]  # by which rich finds it
    Teller(proxy)("connected", peer="@a")
    show(TABLE, file=proxy)
    assert real.getvalue() == ""
    assert "connected" in proxy.getvalue()
    assert "leader" in proxy.getvalue()


def test_what_moves_the_cursor_is_escaped() -> None:
    assert clean("a\x1b\n\udcff\u00e9") == "a\\x1b\\n\\udcff\u00e9"
