"""Sphinx extension: a notebook is a page of its cells, and of what they have printed.

It is not run while the site is built: what it prints stands in it, and a test compares that with
what it prints today (``tests/spark/test_spark_notebook.py``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx

# Longer than any fence within a cell.
FENCE = "`" * 8


def blocks_of(cell: Mapping[str, Any]) -> Iterator[str]:
    """A cell, and all that it has printed, as Markdown."""
    source = "".join(cell["source"])  # a text, or a list of its lines
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"{FENCE}python\n{source}\n{FENCE}"
    for output in cell["outputs"]:
        text = "".join(output.get("text") or output["data"]["text/plain"])
        yield f"{FENCE}text\n{text.rstrip()}\n{FENCE}"


def markdown_of(notebook: Mapping[str, Any], name: str) -> str:
    """The page of a notebook whose file has this name; that can be had at its end."""
    blocks = [block for cell in notebook["cells"] for block in blocks_of(cell)]
    return "\n\n".join([*blocks, f"{{download}}`The notebook <{name}>`\n"])


class NotebookParser(MystParser):
    """Reads a notebook as the Markdown that it comes to."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Called by Sphinx."""
        name = Path(document["source"]).name
        super().parse(markdown_of(json.loads(inputstring), name), document)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True}
