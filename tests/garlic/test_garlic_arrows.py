"""The Raft core knows no bytes: it imports nothing of its wire."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import culm.garlic.raft

FOLDER = Path(culm.garlic.raft.__file__).parent
CONTRACT = ("culm.arguments", "culm.buffer", "culm.effects", "culm.machine")
FOREIGN = {"struct", "zlib", "json", "h11", "hashlib"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_the_core_imports_only_itself_and_the_contract(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names.append(node.module)
        for name in names:
            assert name.split(".")[0] not in FOREIGN
            if name.startswith("culm"):
                assert name.startswith(("culm.garlic.raft", *CONTRACT))
