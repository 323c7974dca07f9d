"""The meanings of an enumeration's members, as the words below each in the source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from enum import Enum
from functools import cache
from itertools import pairwise


@cache
def meanings(codes: type[Enum]) -> dict[str, str]:
    """The sentence below each member, by its name; nothing without the source."""
    try:
        [found] = ast.parse(textwrap.dedent(inspect.getsource(codes))).body
    except OSError:
        return {}
    assert isinstance(found, ast.ClassDef)
    told: dict[str, str] = {}
    for member, text in pairwise(found.body):
        match member, text:
            case (
                ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                told[name] = " ".join(words.split())
            case _:
                pass
    return told
