"""Tests of the source itself: one test looks at all modules, and names those at fault."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

__all__ = ["MODULES", "SOURCE", "definitions", "of_each", "tree"]

SOURCE = Path(__file__).resolve().parents[1] / "src"
MODULES = sorted((SOURCE / "culm").rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    """The syntax of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def definitions(
    node: ast.AST, inside: str = ""
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every class and function below `node` with its dotted name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{inside}{child.name}", child
            yield from definitions(child, f"{inside}{child.name}.")
        else:
            yield from definitions(child, inside)


def of_each(paths: Iterable[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Make one test out of a test of a single module."""

    def decorate(test: Callable[[Path], None]) -> Callable[[], None]:
        def test_all() -> None:
            for path in paths:
                try:
                    test(path)
                except BaseException as error:
                    error.add_note(f"module: {path}")
                    raise

        test_all.__name__, test_all.__doc__ = test.__name__, test.__doc__
        return test_all

    return decorate
