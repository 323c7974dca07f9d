"""The page on the log format agrees with the code."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from culm.bamboo.errors import AUTHOR_FAULTS, Reason
from culm.bamboo.links import has_lipmaalink, lipmaa
from culm.wire.multihash import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "bamboo.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def rows(page: str, start: str) -> list[list[str]]:
    """The cells of the table whose first line begins with `start`."""
    lines = page[page.index(start) :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_examples_run(page: str) -> None:
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S))
    test = doctest.DocTestParser().get_doctest(examples, {}, "bamboo.md", str(PAGE), 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 30
    assert result.failed == 0


def test_the_table_of_links_is_that_of_the_code(page: str) -> None:
    entries, _, backlinks, lipmaalinks = rows(page, "| entry | 1 |")
    for cell, backlink, lipmaalink in zip(entries, backlinks, lipmaalinks, strict=True):
        if not cell.isdigit():
            continue
        seqnum = int(cell)
        target = str(lipmaa(seqnum) or "")
        assert backlink == str(seqnum - 1 or "")
        assert lipmaalink == (target if has_lipmaalink(seqnum) or not target else f"({target})")


def test_every_reason_is_in_the_table_with_the_right_one_to_blame(page: str) -> None:
    blamed = {
        name: who
        for names, who, _ in rows(page, "| Reason |")[2:]
        for name in re.findall(r"`([A-Z_]+)`", names)
    }
    assert set(blamed) == {reason.name for reason in Reason}
    for reason in Reason:
        if reason is not Reason.INVALID_LOG:
            assert (blamed[reason.name] == "the author") == (reason in AUTHOR_FAULTS)


def test_the_sizes_of_hashes_are_those_of_the_code(page: str) -> None:
    for name, family in FAMILIES.items():
        described = re.search(rf"{name} \([\w]+, (\d+) bytes with its\s+prefix\s+`(.*?)`\)", page)
        assert described is not None
        assert int(described[1]) == family.encoded_size
        assert bytes.fromhex(described[2]) == family.prefix
