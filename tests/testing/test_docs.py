"""The examples of the pages run as they stand."""

from __future__ import annotations

import codeop
import doctest
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import figures
from culm.machines import Advance, MachineType, Receive, call, lookup, names
from culm.machines.plain import to_plain
from culm.testing.spec import (
    Bounds,
    Conversation,
    MachineSpec,
    Scenario,
    Usage,
)
from culm.testing.suite import PROPERTIES, check_machine

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def run(*pages: str) -> dict[str, Any]:
    """Run the examples of consecutive pages; the names that they define."""
    name = pages[0]
    text = "\n".join((DOCS / page).read_text(encoding="utf-8") for page in pages)
    names: dict[str, Any] = {"__name__": name}
    attempted = 0
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
    for number, block in enumerate(blocks, 1):
        if ">>>" not in block:  # a module rather than a dialogue
            exec(compile(block, name, "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(block, names, f"{name}, block {number}", None, 0)
        result = doctest.DocTestRunner().run(test, clear_globs=False)
        assert result.failed == 0
        attempted += result.attempted
        names = test.globs
    assert attempted > 10
    return names


@pytest.mark.parametrize(
    "pages",
    [
        ("driving.md",),
        ("production.md",),
        ("reconcile.md",),
        ("testing.md", "line-driver.md"),
        ("index.md", "tutorial.md"),
    ],
    ids=lambda pages: pages[-1],
)
def test_examples_run(pages: tuple[str, ...]) -> None:
    run(*pages)


@pytest.mark.filterwarnings("ignore::culm.testing.suite.LeftOutWarning")
def test_the_machines_of_the_page_keep_every_law() -> None:
    """An example in the docs should be a good one."""
    page = run("driving.md")
    lines = ("left", call("say", text=b"hello")), ("right", call("say", text=b"you"))
    scripts = {
        "Lines": [*lines, ("left", call("close"))],
        "Impatient": [*lines, ("left", Advance(31.0))],
        "Masked": [("left", call("send_data", data=b"x" * 300)), ("right", call("close"))],
    }
    specs = [
        MachineSpec(
            machine=MachineType(name=kind, build=lambda config, kind=kind: page[kind]()),
            bounds=Bounds(retained_max=4096),
            usage=Usage(scenarios=[Scenario(name="talk", script=script)]),
        )
        for kind, script in scripts.items()
    ]
    received = Conversation(name="two lines", operations=[Receive(b"a\nb\n"), Receive(b"bye\n")])
    keeper = MachineSpec(
        machine=MachineType(
            name="Keeper",
            build=lambda config: page["Keeper"](),
            respond=lambda config: lambda effect: None,
        ),
        bounds=Bounds(retained_max=32768),  # a buffer full of empty lines, each with its answer
        usage=Usage(conversations=lambda spec: [received]),
    )
    for spec in [*specs, keeper]:
        check_machine(spec)


def test_every_law_is_in_the_table() -> None:
    text = (DOCS / "testing.md").read_text(encoding="utf-8").split("| Law |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", text, flags=re.M) == [law.name for law in PROPERTIES]


@pytest.mark.filterwarnings("ignore::culm.testing.suite.LeftOutWarning")
def test_the_spec_of_the_page_is_sound_and_its_machine_keeps_every_law() -> None:
    check_machine(run("testing.md")["spec"])


TABLE = "| Machine | Key | Type | Default | Meaning |\n"


def config_table() -> str:
    """The keys of all registered machines; those shared by several appear once."""
    machines: dict[tuple[str, ...], list[str]] = {}
    for machine in map(lookup, names()):
        for key in machine.keys:
            meaning = re.split(r"(?<=\.)\s", key.meaning)[0].replace("``", "`")
            default = json.dumps(to_plain(key.default))
            words = key.type_words.replace(" | ", ", ")
            machines.setdefault((key.name, words, default, meaning), []).append(machine.name)
    rows = [
        f"| {', '.join(owners)} | `{name}` | {words} | `{default}` | {meaning} |\n"
        for (name, words, default, meaning), owners in machines.items()
    ]
    return "".join([TABLE, "| --- | --- | --- | --- | --- |\n", *rows])


def test_every_key_of_a_config_is_in_the_table(request: pytest.FixtureRequest) -> None:
    page = DOCS / "line-driver-configs.md"
    expected = page.read_text(encoding="utf-8").split(TABLE)[0] + config_table()
    if request.config.getoption("--rewrite-transcripts"):
        page.write_text(expected, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == expected, "pytest --rewrite-transcripts does it"


def test_every_key_says_what_it_means() -> None:
    unexplained = [
        (name, key.name) for name in names() for key in lookup(name).keys if not key.meaning
    ]
    assert unexplained == []


def test_the_figures_of_the_page_are_counted(request: pytest.FixtureRequest) -> None:
    """Seeds are exact; figures that grow all the time may be a fifth above those on the page."""
    if request.config.getoption("--rewrite-transcripts"):
        figures.PAGE.write_text(figures.filled(figures.PAGE.read_text("utf-8")), "utf-8")
    page = figures.PAGE.read_text("utf-8")
    counted = {what: count for what, count, _ in figures.figures()}
    rows = re.findall(r"^\| (.+?) \| ([\d,]+) \| [`s]", page, flags=re.M)
    written = {what: int(count.replace(",", "")) for what, count in rows}
    assert written.keys() == counted.keys()
    stale = {what for what, count in counted.items() if not count / 1.2 <= written[what] <= count}
    assert stale == set(), "pytest --rewrite-transcripts does it"
    for name, seeds in figures.simulators().items():
        assert figures.row_of([f"`{name}`", *seeds]) in page, "pytest --rewrite-transcripts does it"


def test_the_tutorial_can_be_typed_at_a_prompt() -> None:
    """An empty line ends a block there, so a block may not contain one."""
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    dialogue = re.findall(r"^(>>>|\.\.\.) ?(.*)$", text, flags=re.M)
    typed: list[str] = []
    for (prompt, line), (following, _) in pairwise([*dialogue, (">>>", "")]):
        assert prompt == ("..." if typed else ">>>"), line
        typed.append(line)
        if following == ">>>" and prompt == "...":
            typed.append("")
        complete = codeop.compile_command("\n".join(typed), "tutorial.md") is not None
        assert complete == (following == ">>>"), line
        if complete:
            typed.clear()
    assert dialogue
