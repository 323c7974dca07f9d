"""A name means one thing: classes of one name stand in two rooms at most.

A pair may be two sides of one thing (a format and its pipeline, a kernel and its caller); in a
third room the reader has to ask which is meant.
"""

from __future__ import annotations

import ast
from pathlib import Path

from modules import SOURCE, tree

ROOMS_MAX = 2

#: The house's own words, which mean the same in every room.
HOUSE_NAMES = {
    *("Limits", "Timing", "State", "ErrorCode"),
    *("Connection", "Replicator", "Node", "MemoryStore"),
}

#: Names that still have several meanings, and the rooms that use them.
STANDING: dict[str, set[str]] = {}


def rooms_of_names(root: Path) -> dict[str, set[str]]:
    """The top-level rooms of each name of a class, without leading underscores."""
    rooms: dict[str, set[str]] = {}
    for path in root.rglob("*.py"):
        room = path.relative_to(root).with_suffix("").parts[0]
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                rooms.setdefault(node.name.lstrip("_"), set()).add(room)
    return rooms


def test_a_name_stands_in_two_rooms_at_most() -> None:
    found = {
        name: rooms
        for name, rooms in rooms_of_names(SOURCE / "culm").items()
        if len(rooms) > ROOMS_MAX and name not in HOUSE_NAMES
    }
    assert found == STANDING


def test_house_names_are_in_use() -> None:
    assert rooms_of_names(SOURCE / "culm").keys() >= HOUSE_NAMES


def test_private_and_nested_classes_count(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "inner.py").write_text("class _Word:\n    class Other: ...\n")
    (tmp_path / "two.py").write_text("def f():\n    class Word: ...\n")
    assert rooms_of_names(tmp_path) == {"Word": {"one", "two"}, "Other": {"one"}}
