"""The names that a package offers: those its users write, and those in their signatures.

The rule is stated in docs/decisions/contract-exports.md.
"""

from __future__ import annotations

import ast
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import ModuleType, UnionType
from typing import get_args

import pytest

import culm
from culm.machine import Effect, Event
from modules import MODULES, SOURCE, tree

pytestmark = pytest.mark.once  # imports everything

ROOT = SOURCE.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*.ipynb")]
NAMES = {".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in MODULES}
PROGRAMS = [
    path for folder in ("examples", "benchmarks") for path in ROOT.glob(f"{folder}/**/*.py")
]


def packages() -> Iterator[ModuleType]:
    """All packages that offer names."""
    for found in pkgutil.walk_packages(culm.__path__, "culm."):
        if found.ispkg and hasattr(package := import_module(found.name), "__all__"):
            yield package


Use = tuple[str, str]
"""A module, and a name that is taken from it."""


def codes(page: Path) -> Iterator[str]:
    """The code on a page: blocks, programs inside commands, and inline code."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        yield from ("".join(each["source"]) for each in cells if each["cell_type"] == "code")
        return
    yield from re.findall(r"```[^\n]*\n(.*?)```", text, re.S)
    for single, double in re.findall(r"""python3? -c (?:'([^'\n]+)'|"([^"\n]+)")""", text):
        yield single or double
    yield from (each.removeprefix("~") for each in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text))


def syntax(code: str) -> ast.Module | None:
    """The syntax of a piece of code, without prompts; ``None`` if it is not Python."""
    lines = dedent(code).splitlines()
    if any(line.startswith(">>>") for line in lines):
        lines = [line[4:] for line in lines if line.startswith((">>>", "..."))]
    try:
        return ast.parse("\n".join(lines))
    except SyntaxError:
        return None


def uses(code: ast.AST) -> set[Use]:
    """The names that code imports, and the attributes it takes from modules.

    Modules that it does not import go by their names in culm, as in prose: ``bymux.Stream``.
    """
    found: set[Use] = set()
    modules: dict[str, str] = {"culm": "culm"}
    for node in ast.walk(code):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found.add((node.module or "", alias.name))
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            modules |= {alias.asname: alias.name for alias in node.names if alias.asname}
    for node in ast.walk(code):
        if isinstance(node, ast.Attribute):
            first, *rest = ast.unparse(node.value).split(".")
            found.add((".".join([modules.get(first, f"culm.{first}"), *rest]), node.attr))
    return found


@cache
def written() -> set[Use]:
    """The names that pages and programs take from each package or its modules."""
    pieces = [
        code
        for page in PAGES
        if page.name not in ("CHANGELOG.md", "glossary.md")
        for code in codes(page)
    ]
    pieces += [program.read_text(encoding="utf-8") for program in PROGRAMS]
    found = {use for code in pieces if (parsed := syntax(code)) for use in uses(parsed)}
    return found | {
        (package.__name__, name)
        for package in packages()
        for module, name in found
        if module.startswith(f"{package.__name__}.") and name in package.__all__
        if module in NAMES and getattr(import_module(module), name, None) is getattr(package, name)
    }


@cache
def taken() -> set[Use]:
    """The names that other rooms of culm take from each package."""
    found = set()
    for path in MODULES:
        room = ".".join(path.relative_to(SOURCE).parts[:-1])
        found |= {use for use in uses(tree(path)) if not f"{room}.".startswith(f"{use[0]}.")}
    return found


def is_all(value: object, *kinds: type) -> bool:
    """Whether it is a class of these kinds, or a union of them."""
    classes = get_args(value) or (value,)
    return all(inspect.isclass(each) and issubclass(each, kinds) for each in classes)


def signatures(value: object) -> Iterator[object]:
    """The types in the annotations of a class, a function, a union or a constant."""
    if isinstance(value, property):
        yield from signatures(value.fget)
    elif inspect.isclass(value):
        for kind in value.__mro__:
            yield kind.__name__
            yield from inspect.get_annotations(kind).values()
            for name, member in vars(kind).items():
                if not name.startswith("_") or name == "__init__":
                    yield from signatures(getattr(member, "__func__", member))
    elif inspect.isroutine(value):
        yield from getattr(value, "__annotations__", {}).values()
    else:
        yield value if isinstance(value, UnionType) else type(value)
        yield get_args(value)


def needed(package: ModuleType) -> set[str]:
    """The names of a package that its users write, or meet in the signatures of those."""
    room, values = package.__name__, {name: getattr(package, name) for name in package.__all__}
    found = {
        name
        for name, value in values.items()
        if (room, name) in written() | taken()
        or is_all(value, Event, Effect, BaseException)
        or name == "ErrorCode"
    }
    fresh = set(found)
    while fresh:
        met = {
            word
            for name in fresh
            for each in signatures(values[name])
            for word in re.findall(r"\w+", str(each))
        }
        fresh = met & values.keys() - found
        found |= fresh
    return found


def test_a_package_offers_what_its_users_write() -> None:
    idle = {
        f"{package.__name__}.{name}"
        for package in packages()
        for name in set(package.__all__) - needed(package)
    }
    assert idle == set()


def test_events_come_first() -> None:
    for package in packages():
        events = [is_all(getattr(package, name), Event) for name in package.__all__]
        assert events == sorted(events, reverse=True), package.__name__


def test_a_name_that_nobody_writes_is_found() -> None:
    package = ModuleType("culm.made_up")
    vars(package).update(__all__=["Unheard", "Limits", "Told"], Unheard=int, Limits=int)
    vars(package)["Told"] = type("Told", (Event,), {})
    assert needed(package) == {"Told"}  # other packages have `Limits` that users write


def test_a_use_is_an_import_or_an_attribute_of_a_module() -> None:
    code = syntax("""
        >>> from culm.ssb import ebt, muxrpc as rpc
        >>> rpc.Limits(calls_max=ebt.TURNS)
        >>> bymux.Stream, Connection
        """)
    assert code is not None
    assert uses(code) == {
        ("culm.ssb", "ebt"),
        ("culm.ssb", "muxrpc"),
        ("culm.ssb.muxrpc", "Limits"),
        ("culm.ssb.ebt", "TURNS"),
        ("culm.bymux", "Stream"),
    }
