"""Handles of connections: each is handed out many times, and has its link's number beside it."""

from __future__ import annotations

from typing import Any


def note_links(value: Any, links: dict[int, int]) -> None:
    """Remember which handles are the same connection: -1 less the number of the link."""
    if isinstance(value, dict):
        number, link = value.get("number"), value.get("link")
        if value.get("") == "object" and type(number) is int and type(link) is int:
            links[number] = -1 - link
        value = value.get("items")
    if isinstance(value, list):
        for each in value:
            note_links(each, links)


def link_of(handle: int, links: dict[int, int]) -> int | None:
    """The number of the link, for a handle that is one."""
    return -1 - links[handle] if handle in links else None
