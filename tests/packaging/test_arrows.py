"""Imports run one way, and the machines import nothing that touches the outside world."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging_project import ROOT

from modules import MODULES, SOURCE, of_each, tree

CONTRACT = {
    *("arguments", "buffer", "effects", "intervals", "machine", "stack", "timers"),
}

# room -> the rooms that it may import from, besides itself. A new protocol gets a line; a package
# inside it with its own line is a separate room.
ARROWS = {
    "buffer": set[str](),
    "arguments": {"buffer"},
    "machine": {"buffer"},
    "measures": {"machine"},
    "effects": {"buffer", "machine"},
    "intervals": set[str](),
    "signatures": CONTRACT | {"kernels"},
    "pump": {"arguments", "buffer", "effects", "machine", "signatures", "timers"},
    "stack": {"buffer", "effects", "machine", "timers"},
    "timers": set[str](),
    "exits": set[str](),
    "lazy": set[str](),
    "kernels": set[str](),
    "wire": {"arguments", "buffer", "kernels"},
    "bamboo": CONTRACT | {"kernels", "signatures", "wire"},
    "reconcile": CONTRACT | {"kernels", "wire"},
    "bymux": CONTRACT | {"wire"},
    "oxen": CONTRACT | {"wire"},
    "replication": CONTRACT,
    "point2point": CONTRACT | {"kernels", "wire", "bamboo", "bymux", "replication", "signatures"},
    "point2point.replication": CONTRACT
    | {"wire", "bamboo", "bymux", "point2point", "replication", "signatures"},
    "garlic": CONTRACT | {"wire", "garlic.raft"},
    "garlic.raft": CONTRACT,
    "p2panda": CONTRACT | {"kernels", "wire", "bamboo", "reconcile", "replication", "signatures"},
    "ssb": CONTRACT | {"kernels", "lazy", "replication", "signatures"},
}
# The registry knows every machine, but nothing that drives or tests them.
ARROWS["machines"] = set(ARROWS)
# Dissection reads the tables of every codec.
ARROWS["capture"] = set(ARROWS)
ARROWS["__main__"] = {"exits", "kernels", "machines"}
# These may touch the outside world, and import every room but each other; no room imports them.
OPEN_ROOMS = {"testing", "spark"}

WORLD = {
    *("socket", "ssl", "asyncio", "selectors", "multiprocessing", "threading", "concurrent"),
    *("subprocess", "signal", "time", "datetime", "os", "io", "pathlib", "tempfile", "shutil"),
    *("secrets", "uuid", "logging", "sqlite3"),
}


def room(parts: Sequence[str]) -> str:
    """The room of a dotted name below culm: the innermost one with a line."""
    inner = ".".join(parts[:2])
    return inner if inner in ARROWS else parts[0]


def room_of(path: Path) -> str:
    """The room of a module."""
    return room(path.relative_to(SOURCE / "culm").with_suffix("").parts)


def imports(path: Path) -> Iterator[str]:
    """The dotted names that a module imports, anywhere in it, including those after ``from``."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_imported(path: Path) -> set[str]:
    """The rooms of culm from which a module imports."""
    parts = (name.split(".") for name in imports(path))
    return {room(name[1:]) for name in parts if name[0] == "culm" and len(name) > 1}


CLOSED = [path for path in MODULES if room_of(path) not in OPEN_ROOMS | {"__init__"}]


def identify(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@of_each(CLOSED)
def test_a_room_imports_only_from_the_rooms_below_it(path: Path):
    assert rooms_imported(path) - {room_of(path)} <= ARROWS[room_of(path)]


@of_each(MODULES)
def test_nothing_imports_what_tests_or_what_spark_runs(path: Path):
    assert rooms_imported(path) & OPEN_ROOMS <= {room_of(path)}


@of_each(CLOSED)
def test_no_machine_reaches_for_the_world(path: Path):
    assert {name.split(".")[0] for name in imports(path)} & WORLD == set()


@of_each(CLOSED)
def test_chance_comes_in_as_an_argument(path: Path):
    """``random.Random`` may be named, as a type; the module's own generator may not."""
    assert [name for name in imports(path) if name.startswith("random.")] in ([], ["random.Random"])
    used = {
        node.attr
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "random"
    }
    assert used <= {"Random"}


def test_kernels_import_nothing_of_culm():
    for path in (ROOT / "cext").glob("*.pyx"):
        words = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
        sources = {
            line[1] for line in words if len(line) > 1 and line[0] in {"import", "cimport", "from"}
        }
        assert not [name for name in sources if name.split(".")[0] == "culm"], path
