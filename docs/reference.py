"""Sphinx extension: the reference, a page for each package, made from what each ``__all__`` names.

A name is described once: in the package that offers it, under the part that it plays (events
first), else in the module that makes it.  Wherever it is passed on, a link leads there.  The pages
are written to ``api`` beside these files before Sphinx reads them.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, ParamSpec, TypeVar, get_args

import culm
import culm_io
from culm.machine import Effect, Event

if TYPE_CHECKING:  # the tests look at the pages without it
    from sphinx.application import Sphinx

Place = tuple[str, str]
"""A module, and a name in it."""

_INNER = "command columns connection endpoint files link mark programs"
INNER = frozenset([*_INNER.split(), "ssb_dialling", "ssb_placed", "wal_tags"])
"""Modules of culm-io that are its own affair, or are run and not imported."""

# The parts of a package's page, in their order, and the files whose names belong there.
MACHINES, OTHERS = "Machines and their verbs", "What else there is"
PARTS = {
    "Events": ("events", "replication_events"),
    MACHINES: ("handles", "link"),
    "Effects": ("effects",),
    "States": ("states",),
    "Limits and settings": ("limits",),
    "Errors": ("errors",),
    "Messages": ("messages", "packets", "frames", "notes"),
    OTHERS: (),
}


def modules() -> Iterator[ModuleType]:
    """All public modules; packages before what is in them."""
    for root in (culm, culm_io):
        yield root
        for found in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            parts = found.name.split(".")
            if not any(part.startswith("_") for part in parts) and not (
                root is culm_io and INNER & {*parts}
            ):
                yield import_module(found.name)


def is_package(module: str) -> bool:
    """Whether there are modules inside."""
    return hasattr(import_module(module), "__path__")


@cache
def offered(module: str) -> list[str]:
    """What a module names in its ``__all__``; without one, all that it makes."""
    found = import_module(module)
    return list(getattr(found, "__all__", None) or makes(module))


def makes(module: str) -> list[str]:
    """The public names that the source of a module makes, but for type variables."""
    found = import_module(module)
    made: list[str] = []
    for node in ast.parse(inspect.getsource(found)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            made.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = (part for target in targets for part in ast.walk(target))
            made += [part.id for part in parts if isinstance(part, ast.Name)]
    return [
        name
        for name in made
        if not name.startswith("_")
        and not isinstance(getattr(found, name, None), TypeVar | ParamSpec)
    ]


@cache
def imported(module: str) -> dict[str, Place]:
    """The names that the source of a module takes from elsewhere in culm, and from where."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("culm")
        for alias in node.names
    }


def made_in(place: Place) -> Place:
    """Where a name comes from, in the end."""
    while place[1] in imported(place[0]):
        place = imported(place[0])[place[1]]
    return place


@cache
def described_in(origin: Place) -> Place:
    """Where a name is described: in the nearest package around it that offers it, else at home."""
    package = origin[0]
    while "." in package:
        package = package.rpartition(".")[0]
        for name in offered(package):
            if made_in((package, name)) == origin:
                return package, name
    return origin


def is_all(value: object, kind: type) -> bool:
    """Whether it is a class of that kind, or a union of such classes."""
    classes = get_args(value) or (value,)
    return all(inspect.isclass(each) and issubclass(each, kind) for each in classes)


def part_of(module: str, name: str, value: object) -> str:
    """The part that a name plays: that of events and effects, then by its file, then by itself."""
    if is_all(value, Event):
        return "Events"
    if is_all(value, Effect):
        return "Effects"
    file = module.rpartition(".")[2]
    for part, files in PARTS.items():
        if file in files and part != "Events":
            return part
    if inspect.isclass(value) and issubclass(value, Exception):
        return "Errors"
    if hasattr(value, "next_event"):
        return MACHINES
    if inspect.isclass(value) and issubclass(value, Enum) and name.endswith("State"):
        return "States"
    return "Limits and settings" if name.endswith(("Limits", "Timing", "Settings")) else OTHERS


def directive(value: object) -> str:
    """By which autodoc describes it."""
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if inspect.isroutine(value) else "autodata"


@dataclass
class Section:
    """What is said of one module: its names by the parts they play, and those passed on."""

    module: str
    parts: dict[str, list[str]] = field(default_factory=dict)
    elsewhere: dict[str, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in offered(self.module):
            origin = made_in((self.module, name))
            place = described_in(origin)
            if place != (self.module, name):
                self.elsewhere[name] = place
                continue
            value = getattr(import_module(self.module), name)
            part = part_of(origin[0], name, value)
            described = f".. {directive(value)}:: {self.module}.{name}\n"
            self.parts.setdefault(part, []).append(described)

    def text(self, *, titles: bool) -> str:
        """As reStructuredText; with a title for each part, or without."""
        said = [f".. automodule:: {self.module}\n   :no-members:\n{self.index_option()}"]
        for part in PARTS:
            if part in self.parts:
                said += [heading(part, "-")] if titles else []
                said += self.parts[part]
        if self.elsewhere:
            places = {name: ".".join(place) for name, place in self.elsewhere.items()}
            links = ", ".join(f":py:obj:`{name} <{place}>`" for name, place in places.items())
            said.append(f"Described elsewhere: {links}.\n")
        return "\n".join(said)

    def index_option(self) -> str:
        """An option for a module whose package offers something else by its name."""
        package, _, name = self.module.rpartition(".")
        return "   :no-index:\n" if package and name in offered(package) else ""


def heading(text: str, line: str) -> str:
    """A heading underlined with a character that says its level."""
    return f"{text}\n{line * len(text)}\n"


def pages() -> dict[str, str]:
    """All pages by their names; a package's page leads to its packages, and has its modules."""
    names = [module.__name__ for module in modules()]
    made = {}
    for package in filter(is_package, names):
        inside = [name for name in names if name.rpartition(".")[0] == package]
        text = [heading(package, "="), Section(package).text(titles=True)]
        below = [f"   {name}\n" for name in inside if is_package(name)]
        if below:
            text.append(".. toctree::\n   :maxdepth: 1\n\n" + "".join(below))
        for module in inside:
            if not is_package(module):
                text += [heading(module, "-"), Section(module).text(titles=False)]
        made[package] = "\n".join(text)
    return made


def write(app: Sphinx) -> None:
    """Write the pages that have changed; others stay, so that Sphinx does not read them again."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    made = {f"{name}.rst": text for name, text in pages().items()}
    for old in {path.name for path in folder.glob("*.rst")} - made.keys():
        (folder / old).unlink()
    for name, text in made.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
