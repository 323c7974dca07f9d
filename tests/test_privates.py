"""Tests look at culm from outside: reaches into privates are counted, and only become fewer.

A reach is a private attribute of anything but ``self`` and ``cls`` that the test file does not
define itself, or a private name that it imports.  Patches of privates by name, with which canaries
break the code, and methods of named tuples are none.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from modules import tree

TESTS = Path(__file__).resolve().parent

NO_REACHES = {"_replace", "_asdict", "_fields", "_make", "_exit"}

#: The reaches that still stand, by room; a number goes down when some are mended.
STANDING: dict[str, int] = {
    "bamboo": 2,
    "contract": 14,
    "examples": 30,
    "garlic": 40,
    "kernels": 1,
    "machines": 3,
    "oxen": 19,
    "point2point": 6,
    "pump": 1,
    "spark": 5,
    "ssb": 12,
    "testing": 9,
}


def is_private(name: str) -> bool:
    return re.match(r"_[^_]", name) is not None and name not in NO_REACHES


def defined(tree: ast.Module) -> Iterator[str]:
    """The names that a file gives to something, attributes included."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def reaches(tree: ast.Module) -> Iterator[str]:
    own = set(defined(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name) if is_private(name) and name not in own:
                yield ast.unparse(node)
            case ast.ImportFrom(module=str(module)):
                yield from (f"{module}.{each.name}" for each in node.names if is_private(each.name))


def test_reaches_into_privates_become_fewer() -> None:
    found = Counter(
        path.relative_to(TESTS).parts[0]
        for path in TESTS.rglob("*.py")
        for _ in reaches(tree(path))
    )
    assert found == STANDING


def test_a_reach_is_told_from_others() -> None:
    def found(source: str) -> list[str]:
        return list(reaches(ast.parse(source)))

    assert found("node._core.state") == ["node._core"]
    assert found("from culm.wire import _inside") == ["culm.wire._inside"]
    assert found("self._core = 1; other._core") == []
    assert found("def _own(): ...\nmodule._own()") == []
    assert found("row._replace(x=1); os._exit(0); a.__dict__") == []
