"""Trees of files for tests: made from a description, and described."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

MTIME = 1_600_000_000_123_456_789

# Content; for links "-> target"; ``None``: a directory.
Tree = Mapping[str, bytes | str | None]


def make_tree(root: Path, tree: Tree) -> None:
    """Make everything in the description, and leave other files alone."""
    for name, content in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir(exist_ok=True)
        elif isinstance(content, str):
            path.symlink_to(content.removeprefix("-> "))
        else:
            path.write_bytes(content)
            os.utime(path, ns=(MTIME, MTIME))


def contents(root: Path) -> dict[str, bytes | str | None]:
    """The description of a tree."""
    found: dict[str, bytes | str | None] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            found[str(path.relative_to(root))] = f"-> {os.readlink(path)}"
        elif stat.S_ISDIR(status.st_mode):
            found[str(path.relative_to(root))] = None
        else:
            found[str(path.relative_to(root))] = path.read_bytes()
    return found


def details(root: Path) -> dict[str, tuple[int, int | None]]:
    """Modes of everything, and times of files, in nanoseconds."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns if path.is_file() and not path.is_symlink() else None,
        )
        for path in root.rglob("*")
    }
