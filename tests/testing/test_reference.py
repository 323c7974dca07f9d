"""The reference describes every public name, once; a package's page begins with its events."""

from __future__ import annotations

import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import culm
from culm.machine import Event

sys.path.append(str(Path(__file__).resolve().parents[2] / "docs"))

import reference

pytestmark = pytest.mark.once  # imports everything

DESCRIBED = re.compile(r"^\.\. auto\w+:: (\S+)$", re.M)  # modules, too
MODULES = re.compile(r"^\.\. automodule:: (\S+)$", re.M)
LINKED = re.compile(r":py:obj:`(\S+) <(\S+)>`")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference.pages()


def public() -> Iterator[tuple[str, str]]:
    """Every name of every public ``__all__``, with its module."""
    for found in pkgutil.walk_packages(culm.__path__, "culm."):
        if not re.search(r"\._", found.name):
            for name in getattr(import_module(found.name), "__all__", ()):
                yield found.name, name


def from_culm_io(page: Path) -> Iterator[tuple[str, str]]:
    """The imports from culm-io in the examples of a page, or in programs on it."""
    for module, names in re.findall(
        r"^(?:>>> )?from (culm_io\S*) import (.+)$", page.read_text(encoding="utf-8"), flags=re.M
    ):
        yield from ((module, name) for name in names.split(", "))


def test_every_public_name_is_described_or_leads_to_where_it_is(pages: dict[str, str]) -> None:
    described = set(DESCRIBED.findall("\n".join(pages.values())))
    missing = []
    for module, name in public():
        home = module if module in pages else module.rpartition(".")[0]
        own = f"{module}.{name}" in described
        links = {place for linked, place in LINKED.findall(pages[home]) if linked == name}
        if not own and not links & described:
            missing.append(f"{module}.{name}")
    assert missing == []


def test_what_a_page_imports_of_culm_io_is_described(pages: dict[str, str]) -> None:
    described = set(DESCRIBED.findall("\n".join(pages.values())))
    docs = Path(reference.__file__).parent
    used = {each for page in docs.glob("*.md") for each in from_culm_io(page)}
    assert len(used) > 5
    assert [
        use for use in sorted(used) if ".".join(reference.described_in(use)) not in described
    ] == []


def test_no_name_is_described_twice(pages: dict[str, str]) -> None:
    text = "\n".join(pages.values())
    described = DESCRIBED.findall(text)
    modules = MODULES.findall(text)
    assert [name for name, times in Counter(modules).items() if times > 1] == []
    names = Counter(described) - Counter(modules)  # a function may have the name of its module
    assert [name for name, times in names.items() if times > 1] == []
    things: Counter[object] = Counter()
    for full_name in names:
        module, _, name = full_name.rpartition(".")
        value = getattr(import_module(module), name)
        if getattr(value, "__qualname__", None) == name:  # a class or function, by its own name
            things[value] += 1
    assert [value for value, times in things.items() if times > 1] == []


def test_a_page_has_its_parts_in_order_and_events_first(pages: dict[str, str]) -> None:
    parts = list(reference.PARTS)
    assert parts[0] == "Events"
    for name, text in pages.items():
        found = [part for part in re.findall(r"^(.+)\n-+$", text, flags=re.M) if part in parts]
        assert found == sorted(found, key=parts.index), name
        told = re.split(r"^.+\n-+$", text.partition("\nEvents\n------\n")[2], flags=re.M)[0]
        for module, _, event in (each.rpartition(".") for each in DESCRIBED.findall(told)):
            assert reference.is_all(getattr(import_module(module), event), Event), event
    beginning = pages["culm.oxen"].partition(".. autoclass:: culm.oxen.Node\n")[0]
    assert ".. autoclass:: culm.oxen.MessageReceived\n" in beginning
    assert ".. autoclass:: culm.oxen.Limits\n" not in beginning


def test_a_module_names_only_what_is_not_all_that_it_makes() -> None:
    """An ``__all__`` is for modules that leave something out, or pass something on."""
    idle = {
        found.name
        for found in pkgutil.walk_packages(culm.__path__, "culm.")
        if not found.ispkg and not re.search(r"\._", found.name) and not is_another_room(found.name)
        for named in [getattr(import_module(found.name), "__all__", None)]
        if named is not None and sorted(named) == sorted(set(reference.makes(found.name)))
    }
    assert idle == set()


def is_another_room(module: str) -> bool:
    """Whether it is one of the kernels, whose twins name what both have."""
    return module.startswith("culm.kernels.")
