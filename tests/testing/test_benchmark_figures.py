"""The figures on the page of benchmarks have date and command, and agree with other pages."""

from __future__ import annotations

import json
import re
import shlex
from datetime import date
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLOTS: dict[str, Any] = {
    plot["name"]: plot
    for plot in json.loads((ROOT / "benchmarks/recorded.json").read_text(encoding="utf-8"))
}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_every_plot_is_on_the_page_once() -> None:
    shown = re.findall(r"^```\{plot\} (.+)$", page("benchmarks.md"), flags=re.M)
    assert sorted(shown) == sorted(PLOTS)


@pytest.mark.parametrize("name", PLOTS)
def test_every_plot_has_its_figures_date_machine_and_command(name: str) -> None:
    plot = PLOTS[name]
    for figures in plot["series"].values():
        assert len(figures) == len(plot["groups"])
    assert plot["measured"]
    for what, day, machine, command in plot["measured"]:
        assert what
        assert machine
        assert date.fromisoformat(day)
        [program] = [word for word in shlex.split(command) if word.endswith(".py")]
        assert (ROOT / program).is_file()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("raft", "comparison.md"),
        ("imports", "install.md"),
        ("directory", "replicate-directory.md"),
        ("reconcile-time", "reconcile.md"),
    ],
)
def test_figures_are_the_same_where_a_table_has_them(name: str, other: str) -> None:
    cells = re.findall(r"(?<=[|,] )([\d,.]+)(?: m?s)?(?= \|)", page(other))
    figures = [number for series in PLOTS[name]["series"].values() for number in series]
    assert [number for number in figures if f"{number:,}" not in cells] == []


def test_every_claim_of_the_table_has_its_figures_date_and_verdict() -> None:
    claims = json.loads((ROOT / "benchmarks/results/compare.json").read_text(encoding="utf-8"))
    assert len(claims["claims"]) >= 24
    for found in claims["claims"]:
        assert date.fromisoformat(found["date"])
        assert min(found["rounds"]) <= found["ratio"] <= max(found["rounds"])
        below, above = found["ratio"] <= found["target"], found["ratio"] >= found["target"]
        assert found["met"] is (below if found["at_most"] else above), found["claim"]


@pytest.mark.slow
def test_oxen_is_as_fast_under_loss_as_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is virtual there, so a difference means that the machine has changed."""
    monkeypatch.syspath_prepend(str(ROOT / "tests/oxen"))
    from oxen_throughput import rates_by_loss

    written = PLOTS["oxen-loss"]["series"]["messages a second"]
    assert list(rates_by_loss().values()) == pytest.approx(written, rel=0.1)


@pytest.mark.parametrize(
    "name",
    [
        "tags",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("crashes", "pieces", "joins")),
    ],
)
def test_oxen_costs_what_its_tables_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from oxen_tables import TABLES

    rows = "\n".join(f"| {' | '.join(map(str, row))} |" for row in TABLES[name]())
    assert f"\n{rows}\n\n" in page("oxen.md")
