"""What a package offers: what its users write, and what stands in the signatures of that.

The rule is said in docs/decisions/contract-exports.md.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType, UnionType
from typing import get_args

import pytest

import culm
from culm.machine import Effect, Event
from modules import MODULES, SOURCE, tree

pytestmark = pytest.mark.once  # imports everything

ROOT = SOURCE.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*.ipynb")]
PROGRAMS = [
    path for folder in ("examples", "benchmarks") for path in ROOT.glob(f"{folder}/**/*.py")
]

#: What nobody outside its room writes, and is still offered; a row goes when it is mended.
STANDING = {
    "culm.capture.BLOCK_SIZE_MAX",
    "culm.capture.machine_of",
    "culm.capture.dissect.UNREAD",
    "culm.spark.OnError",
    "culm.spark.with_presence",
}


def packages() -> Iterator[ModuleType]:
    """All packages that offer names."""
    for found in pkgutil.walk_packages(culm.__path__, "culm."):
        if found.ispkg and hasattr(package := import_module(found.name), "__all__"):
            yield package


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


@cache
def written() -> set[str]:
    """The words of the code in pages, and of all programs."""
    codes = [
        code
        for page in PAGES
        if page.name not in ("CHANGELOG.md", "glossary.md")
        for code in re.findall(r"```.*?```|`[^`\n]+`", page.read_text(encoding="utf-8"), re.S)
    ]
    codes += [program.read_text(encoding="utf-8") for program in PROGRAMS]
    return words("\n".join(codes))


@cache
def taken() -> set[tuple[str, str]]:
    """What each package is asked for by other rooms of culm: the package and the name."""
    found = set()
    for path in MODULES:
        room = ".".join(path.relative_to(SOURCE).parts[:-1])
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and not f"{room}.".startswith(f"{node.module}."):
                found |= {(node.module or "", alias.name) for alias in node.names}
    return found


def is_all(value: object, *kinds: type) -> bool:
    """Whether it is a class of these kinds, or a union of such classes."""
    classes = get_args(value) or (value,)
    return all(inspect.isclass(each) and issubclass(each, kinds) for each in classes)


def signatures(value: object) -> Iterator[object]:
    """What the annotations of a class, a function, a union or a constant speak of."""
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
        if name in written()
        or (room, name) in taken()
        or is_all(value, Event, Effect, BaseException)
    }
    fresh = set(found)
    while fresh:
        met = {
            word for name in fresh for each in signatures(values[name]) for word in words(str(each))
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
    assert idle == STANDING


def test_events_come_first() -> None:
    for package in packages():
        events = [is_all(getattr(package, name), Event) for name in package.__all__]
        assert events == sorted(events, reverse=True), package.__name__


def test_a_name_that_nobody_writes_is_found() -> None:
    package = ModuleType("culm.made_up")
    vars(package).update(__all__=["Unheard", "Limits", "Told"], Unheard=int, Limits=int)
    vars(package)["Told"] = type("Told", (Event,), {})
    assert needed(package) == {"Limits", "Told"}
