"""The recipes of the documentation for the suite of stores, run exactly as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing-stores.md"


SECTIONS = ("A store of logs", "A store of a Raft node")


def recipes() -> dict[str, Any]:
    """The classes of the sections on stores."""
    text = PAGE.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": __name__}
    for title in SECTIONS:
        section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
        for recipe in re.findall(r"^```python\n(.*?)^```", section, flags=re.M | re.S):
            exec(compile(recipe, str(PAGE), "exec"), names)
    return {name: found for name, found in names.items() if name.startswith("Test")}


# For pytest to collect.
globals().update(recipes())


def test_every_kind_of_store_has_a_recipe() -> None:
    assert set(recipes()) == {"TestMemoryStore", "TestSqliteStore", "TestRaftSqliteStore"}
