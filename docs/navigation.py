"""Sphinx extension: the tree of all pages is made once; each page has it with its own place marked.

Sphinx itself makes it anew for every page, from the tables of contents of all of them.  In tables
and titles a name may break between its parts, where a telephone has no room for it.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the tests look at trees without it
    from sphinx.application import Sphinx

_TAG = re.compile(r"<(/?)(ul|li|a)\b[^>]*>")
_HREF = re.compile(r'(?<= href=")[^"]*')
_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_TITLE = re.compile(r"(?<=<h1>)[^<]+")
_CODE = re.compile(r'(?<=<span class="pre">)[^<]+')
_BETWEEN_PARTS = re.compile(r"(?<=\w[._(=])(?=\w)")
_CLASSES = re.compile(r'(?<= class=")[^"]*')


class Tree:
    """The tree as a page has it that is not in it and lies at the root, written as HTML."""

    def __init__(self, html: str) -> None:
        self._html = html
        # By address: where the tags of that link begin, and those of the lists and items around it.
        self._around: dict[str, set[int]] = defaultdict(set)
        around: list[int] = []
        for tag in _TAG.finditer(html):
            if tag[2] == "a":
                if not tag[1] and (href := _HREF.search(tag[0])):
                    self._around[href[0]] |= {*around, tag.start()}
            elif tag[1]:
                around.pop()
            else:
                around.append(tag.start())

    def seen_from(self, page: str) -> str:
        """The tree as the page of that address has it."""
        current = self._around.get(page, set())
        folder = posixpath.dirname(page) or "."

        def address(href: re.Match[str]) -> str:
            return "#" if href[0] == page else posixpath.relpath(href[0], folder)

        def seen(tag: re.Match[str]) -> str:
            text = tag[0]
            if tag[2] == "a" and "reference internal" in text:
                text = _HREF.sub(address, text)
            if tag.start() not in current:
                return text
            if tag[2] == "ul":
                return text.replace("<ul", '<ul class="current"')
            order = "current {}" if tag[2] == "a" else "{} current"
            return _CLASSES.sub(lambda classes: order.format(classes[0]), text)

        return _TAG.sub(seen, self._html)


@cache
def _tree(builder: Any, options: frozenset[tuple[str, Any]]) -> Tree:
    return Tree(builder._get_local_toctree(builder.config.root_doc, **dict(options)))


def _seen_from(builder: Any, page: str, **options: Any) -> str:
    return _tree(builder, frozenset(options.items())).seen_from(builder.get_target_uri(page))


def share(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """Give the theme a shared tree in place of Sphinx's own."""
    if "toctree" in context:
        context["toctree"] = partial(_seen_from, app.builder, page)


def breakable(html: str) -> str:
    """A page on which titles, and code in tables, may break between the parts of a name."""

    def between_parts(text: re.Match[str]) -> str:
        return _BETWEEN_PARTS.sub("<wbr>", text[0])

    def in_cell(cell: re.Match[str]) -> str:
        return _CODE.sub(between_parts, cell[0])

    return _TITLE.sub(between_parts, _CELL.sub(in_cell, html))


def finish(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """Called with each page."""
    if "body" in context:
        context["body"] = breakable(context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("html-page-context", share, priority=100)  # before the theme asks for the tree
    app.connect("html-page-context", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
