"""Tests look at culm from outside, and reach into nothing private.

A reach is a private attribute of anything but ``self`` and ``cls`` that the test file does not
define itself, or a private name that it imports.  Exempt are patches of privates by name, with
which canaries break the code, methods of named tuples, and the attributes of argument parsers.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent

NO_REACHES = {
    *("_replace", "_asdict", "_fields", "_make", "_exit"),
    *("_actions", "_choices_actions", "_SubParsersAction"),  # argparse offers no other way
}


def is_private(name: str) -> bool:
    return re.match(r"_[^_]", name) is not None and name not in NO_REACHES


#: Found in files with a reach, and in few others: files without it need not be parsed.
_SUSPECT = re.compile(r"(?<!\bself)(?<!\bcls)\s*\._[a-zA-Z]|\bimport\b[^)]*\b_[a-zA-Z]")


def reaches(text: str) -> list[str]:
    if not _SUSPECT.search(text):
        return []
    own: set[str] = set()  # the names that the file itself gives, attributes of `self` included
    found: list[ast.Attribute] = []
    imported: list[str] = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                own.add(name)
            case ast.Name(name, ast.Store()):
                own.add(name)
            case ast.Attribute(ast.Name("self" | "cls"), name, ast.Store()):
                own.add(name)
            case ast.ImportFrom(module=str(module)):
                imported += [
                    f"{module}.{each.name}" for each in node.names if is_private(each.name)
                ]
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name) if is_private(name):
                found.append(node)
    return [ast.unparse(each) for each in found if each.attr not in own] + imported


def test_no_test_reaches_into_privates() -> None:
    found = {
        str(path.relative_to(TESTS)): reaches(path.read_text(encoding="utf-8"))
        for path in TESTS.rglob("*.py")
    }
    assert {path: each for path, each in found.items() if each} == {}


def test_a_reach_is_told_from_others() -> None:
    assert reaches("node._core.state") == ["node._core"]
    assert reaches("from culm.wire import _inside") == ["culm.wire._inside"]
    assert reaches("from culm.wire import (\n    _inside,\n)") == ["culm.wire._inside"]
    assert reaches("self._core = 1; other._core") == []
    assert reaches("other._core = 1") == ["other._core"]
    assert reaches("myself._core") == ["myself._core"]
    assert reaches("def _own(): ...\nmodule._own()") == []
    assert reaches("row._replace(x=1); os._exit(0); a.__dict__") == []
