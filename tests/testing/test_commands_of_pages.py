"""Every command on a page exists: program, options, files, environment."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import pytest

from culm_io.command import PROGRAMS, parser_of

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        ROOT / "examples/README.md",
    ]
)
BLOCK = re.compile(r"^ *```(console|sh)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`((?:culm|python|tox) [^`]+)`")
OURS = {"culm": "src", "culm_io": "examples", "foreign": "examples"}
ENVIRONMENTS = {
    f"{before}{each}"
    for before, several in re.findall(
        r"^\[testenv:([\w-]*)(?:\{([\w,]+)\})?\]", (ROOT / "tox.ini").read_text(), re.MULTILINE
    )
    for each in several.split(",")
} | {f"py3{minor}" for minor in range(11, 15)}


def lines_of(page: str) -> Iterator[str]:
    """What a reader would type, without prompts and answers."""
    for kind, block in BLOCK.findall(page):
        for line in block.replace("\\\n", " ").splitlines():
            if kind == "sh":
                yield line
            elif line.startswith("$ "):
                yield line[2:]
    yield from SPAN.findall(BLOCK.sub("", page))


def commands_of(line: str) -> Iterator[list[str]]:
    """Its simple commands, as words, without their variables and redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not set(word) <= set("();<>|&"):
            words.append(word)
        elif words:
            while words and re.match(r"[A-Z_]+=", words[0]):
                del words[0]
            yield words
            words = []


def wrong_with(words: Sequence[str]) -> str | None:
    """The part of a command that does not exist; programs of others are not checked."""
    match words:
        case ["culm", name, *rest]:
            return in_parser(rest, parser_of(name)) if name in PROGRAMS else name
        case [("python" | "python3" | ".venv/bin/python"), *rest]:
            return of_python(rest)
        case ["tox", "run", "-e", names, *_]:
            return ", ".join(set(names.split(",")) - ENVIRONMENTS) or None
    return None


def of_python(words: Sequence[str]) -> str | None:
    match words:
        case ["-m", "tox", *rest]:
            return wrong_with(["tox", *rest])
        case ["-m", "pytest", *rest]:
            paths = [
                each.partition("::")[0] for each in rest if each.startswith(("tests", "benchm"))
            ]
            return next((each for each in paths if not (ROOT / each).exists()), None)
        case ["-m", ("culm.spark" | "culm.capture" | "culm.testing.drive") as module, *rest]:
            return in_parser(rest, parser_of(module.rpartition(".")[2]))
        case ["-m", module, *rest] if module.partition(".")[0] in OURS:
            path = next((each for each in sources_of(module) if each.exists()), None)
            return module if path is None else in_source(rest, path)
        case [path, *rest] if path.endswith(".py") and "_service" not in path:
            return in_source(rest, ROOT / path) if (ROOT / path).exists() else path
    return None


def sources_of(module: str) -> list[Path]:
    """The files that ``-m`` may run."""
    top, _, rest = module.partition(".")
    place = (ROOT / OURS[top] / top).joinpath(*filter(None, rest.split(".")))
    return [place.with_suffix(".py"), place / "__main__.py"]


def in_parser(words: Sequence[str], parser: argparse.ArgumentParser) -> str | None:
    """The first word that is neither a command nor an option of the command before it."""
    for word in words:
        inner = next(
            (a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None
        )
        if word.startswith("-") and word != "-":
            if not any(word.partition("=")[0] in a.option_strings for a in parser._actions):
                return word
        elif inner is not None and not word.isupper() and word != "...":
            if word not in inner.choices:
                return word
            parser = inner.choices[word]
    return None


def in_source(words: Sequence[str], path: Path) -> str | None:
    """The first option that is missing from a program's source."""
    source = path.read_text(encoding="utf-8")
    options = [word for word in takewhile(lambda word: word != "--", words) if word[:2] == "--"]
    return next((each for each in options if f'"{each}"' not in source), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_command_of_a_page_is_there(page: Path) -> None:
    found = [
        (line, wrong)
        for line in lines_of(page.read_text(encoding="utf-8"))
        for words in commands_of(line)
        if (wrong := wrong_with(words)) is not None
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("culm raft put --dir DIR colour green  # a comment", None),
        ("culm raft putt", "putt"),
        ("culm rafts", "rafts"),
        ("cat x | culm raft put --json --nodes 3 &", "--nodes"),
        ("CULM_X=1 python -m pytest tests/nowhere.py -s", "tests/nowhere.py"),
        ("python -m tox run -e nothing", "nothing"),
        ("python benchmarks/gone.py", "benchmarks/gone.py"),
        ("python tests/mutants.py oxen --seeds 3", "--seeds"),
        ("python -m culm.gone", "culm.gone"),
        ("python -m culm.spark audit --nowhere x > y", "--nowhere"),
    ],
)
def test_what_is_not_there_is_found(line: str, wrong: str | None) -> None:
    assert next(filter(None, map(wrong_with, commands_of(line))), None) == wrong
