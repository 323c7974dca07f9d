"""Files on any file system that pyarrow knows: this machine's, ``s3://``, ``gs://``, ``hdfs://``."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["list_files", "open_system"]


def open_system(path: str) -> tuple[Any, str]:
    """The file system of a path, and the path there."""
    from pyarrow import fs

    if "://" in path:
        system, inside = fs.FileSystem.from_uri(path)
        return system, inside
    return fs.LocalFileSystem(), os.path.abspath(path)


def list_files(path: str) -> list[tuple[str, int]]:
    """The files that a path names, and their sizes: itself, or all below it but hidden ones.

    Raises `FileNotFoundError` if there is nothing.
    """
    from pyarrow import fs

    system, inside = open_system(path)
    info = system.get_file_info(inside)
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"there is nothing at {path}")
    if info.type == fs.FileType.File:
        return [(path, info.size)]
    found = system.get_file_info(fs.FileSelector(inside, recursive=True))
    prefix = path.rstrip("/")
    return sorted(
        (prefix + each.path.removeprefix(inside.rstrip("/")), each.size)
        for each in found
        if each.type == fs.FileType.File and not _is_hidden(each.path.removeprefix(inside))
    )


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))
