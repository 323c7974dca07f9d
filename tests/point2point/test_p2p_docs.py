"""The page on Point-2-Point agrees with the code."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
from p2p_page import CONVERSATION, GREEDY, PAGE, conversation, crossing, filled, limits, parts
from p2p_rules import BOOK, HERE

from culm import point2point
from culm.testing.transcript import of_link


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_examples_run(page: str) -> None:
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S))
    test = doctest.DocTestParser().get_doctest(examples, {}, PAGE.name, str(PAGE), 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 20
    assert result.failed == 0


def test_diagrams_and_tables_are_those_of_the_code(page: str) -> None:
    """``python tests/point2point/p2p_page.py`` writes them anew."""
    assert filled(page, parts()) == page


def test_the_diagrams_show_conversations_without_a_refusal() -> None:
    for link in (conversation(CONVERSATION), conversation(GREEDY), crossing()):
        assert "LocalProtocolError" not in of_link(link)
        assert "error=RemoteProtocolError" not in of_link(link)


def test_every_test_in_the_table_exists(page: str) -> None:
    named = set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", page))
    assert len(named) >= 25
    for file, name in named:
        assert f"def {name}(" in (HERE / file).read_text(encoding="utf-8")
    assert all(BOOK.proofs().values())


def test_every_limit_is_listed_with_its_default(page: str) -> None:
    units = {"": 1, "s": 1, "KiB": 1024, "MiB": 1 << 20}
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", page, flags=re.M))
    for name, default in limits().items():
        number, _, unit = rows[name].partition(" ")
        assert int(number) * units[unit] == default


def test_every_file_has_its_place(page: str) -> None:
    """And uses only those listed below it, or beside it."""
    table = page[page.index("<!-- files -->") :]
    table = table[: table.index("<!-- end -->")]
    columns = [line.split("|")[1] for line in table.splitlines() if "`" in line]
    rows = [re.findall(r"`(\w+)\.py`", files) for files in columns]
    place = {name: number for number, row in enumerate(rows) for name in row}
    folder = Path(point2point.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} == {*place, "__init__"}
    for name, number in place.items():
        source = (folder / f"{name}.py").read_text(encoding="utf-8")
        known = re.findall(r"^from culm\.point2point\.(\w+) import", source, flags=re.M)
        assert [each for each in known if place[each] < number] == [], name
