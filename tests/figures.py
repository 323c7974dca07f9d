"""The figures of docs/tested.md, counted: ``python tests/figures.py``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from culm.machines import names
from culm.testing.suite import PROPERTIES

TESTS = Path(__file__).resolve().parent
KERNELS = TESTS.parent / "src/culm/kernels"
PAGE = TESTS.parent / "docs/tested.md"
FIGURES = "| What | How many | Command |\n| --- | ---: | --- |\n"
SIMULATORS = "| Simulator | Seeds at a desk | In a campaign |\n| --- | ---: | ---: |\n"
# ``seeds("RAFT", usual=600, long=100_000)``, with the names of the arguments or without.
CALL = re.compile(r'\bseeds\(\s*"(\w+)",\s*(?:usual=)?([\d_]+),\s*(?:long=)?([\d_]+)')


@cache
def _texts() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")}


def sentences(path: Path) -> int:
    """The number of normative sentences in a room's list."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    return sum(len(part["sentences"]) for part in content["part"])


def figures() -> Iterator[tuple[str, int, str]]:
    """Each figure: its name, the number, and the command that runs or shows it."""
    tests = sum(len(re.findall(r"^ *def test_", text, flags=re.M)) for text in _texts().values())
    counted = (
        ("laws that every machine keeps", len(PROPERTIES), "tests/testing/test_suite.py"),
        ("machines that are checked", len(list(names())), "tests/test_every_machine.py"),
        ("kernels with a pure twin", len(list(KERNELS.glob("_*.pyi"))), "tests/kernels"),
        ("conversations as text", len(list(TESTS.glob("transcripts/*/*.txt"))), "-k transcript"),
        ("test functions, most of which try many cases", tests, "--collect-only -q"),
    )
    for what, count, argument in counted:
        yield what, count, f"`python -m pytest {argument}`"
    for path in sorted(TESTS.glob("*/rules.toml")):
        room = path.parent.name
        programs = (each.name for each in path.parent.glob("*rules.py"))
        [program] = [name for name in programs if not name.startswith("test_")]
        yield f"normative sentences of {room}", sentences(path), f"`python tests/{room}/{program}`"
    yield "simulators with seeds", len(simulators()), "see [campaigns](#campaigns)"


def simulators() -> dict[str, tuple[int, int]]:
    """The seeds of each simulator: at a desk, and in a campaign; read from the calls of `seeds`."""
    calls = [call for text in _texts().values() for call in CALL.findall(text)]
    return {name: (int(usual), int(long)) for name, usual, long in sorted(calls)}


def tables() -> dict[str, list[tuple[object, ...]]]:
    """The rows below each heading of the page."""
    return {
        FIGURES: list(figures()),
        SIMULATORS: [(f"`{name}`", *counts) for name, counts in simulators().items()],
    }


def filled(page: str) -> str:
    """The page with its tables filled in anew."""
    for head, rows in tables().items():
        before, after = page.split(head)
        while after.startswith("|"):  # a former row
            after = after.partition("\n")[2]
        page = before + head + "".join(map(row_of, rows)) + after
    return page


def row_of(cells: Iterable[object]) -> str:
    """A row of a table; numbers with commas."""
    words = [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells]
    return f"| {' | '.join(words)} |\n"


if __name__ == "__main__":
    for rows in tables().values():
        print("".join(map(row_of, rows)))
