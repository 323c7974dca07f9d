"""How the work of each machine grows with the number of things it holds: ``python
tests/doubling.py``.

For each thing of `Usage.growth` steps are counted (`culm.testing.suite.meter`) with 32, 64 and 128
of them.  The steps that the last 64 add, divided by twice those that the 32 before them add, are 1
where twice as many cost twice the work; the exponent is that of the power of the number that grows
in this way.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from math import log2
from pathlib import Path
from typing import NamedTuple

from culm.testing.suite.work import things_of
from specs import SPECS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
COUNTS = (32, 64, 128)
HEAD = "| Machine | Of which there may be many | Steps of one, 32 to 64 | 64 to 128 | Exponent |\n"
RULE = "| --- | --- | ---: | ---: | ---: |\n"


class Grown(NamedTuple):
    """Steps at each of `COUNTS`."""

    machine: str
    thing: str
    steps: tuple[int, int, int]

    @property
    def each(self) -> tuple[float, float]:
        """Steps for one more: between the first two counts, and between the last two."""
        first, second, third = self.steps
        return (second - first) / 32, (third - second) / 64

    @property
    def exponent(self) -> float:
        """Exponent 1: twice as many cost twice the work."""
        before, after = self.each
        return 1 + log2(after / before) if before > 0 < after else 0.0

    @property
    def row(self) -> str:
        before, after = self.each
        return (
            f"| `{self.machine}` | {self.thing} | {before:,.0f} | {after:,.0f} |"
            f" {self.exponent:.2f} |\n"
        )


def grown(only: str = "") -> Iterator[Grown]:
    """Every kind of growth, counted."""
    for spec in sorted(SPECS, key=lambda each: each.name):
        for thing, steps_of in things_of(spec):
            if only in f"{spec.name} {thing}":
                first, second, third = map(steps_of, COUNTS)
                yield Grown(spec.name, thing, (first, second, third))


def things() -> list[tuple[str, str]]:
    """Machines, and the things they may hold many of, without counting."""
    specs = sorted(SPECS, key=lambda each: each.name)
    return [(spec.name, thing) for spec in specs for thing, _ in things_of(spec)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Count how work grows.")
    parser.add_argument("--only", default="", help="a part of a machine's name and a thing")
    for each in grown(parser.parse_args().only):
        print(each.row, end="", flush=True)


if __name__ == "__main__":
    main()
