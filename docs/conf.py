"""Sphinx configuration; `tox run -e docs` builds the site with warnings as errors."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

import culm

project = "culm"
author = "The culm developers"
copyright = "2026, The culm developers"
version = release = culm.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinxcontrib.mermaid",
]
exclude_patterns = ["_build"]
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 3

# The reference is made from the docstrings: one page per package, private modules left out.
apidoc_modules = [
    {
        "path": "../src/culm",
        "destination": "api",
        "separate_modules": False,
        "module_first": True,
        "include_private": False,
    }
]
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_type_aliases = {"Buffer": "culm.buffer.Buffer", "JSON": "culm.testing.plain.JSON"}
python_use_unqualified_type_names = True
# `name` in a docstring is a Python object: a link if it is documented, code otherwise.
default_role = "py:obj"
# One name may live in several packages (Closed, Connection): the nearest one is linked.
suppress_warnings = ["ref.python"]

# Every page holds the tree of all pages; with every object in it, that takes minutes.
toc_object_entries = False
html_theme = "furo"
html_title = f"culm {release}"
html_show_sphinx = False

# The house writes what parameters and fields mean as ``name: text``, further lines indented.
_ITEM = re.compile(r"([a-z_]+(?:, [a-z_]+)*): ")


def list_the_names(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Turn paragraphs of ``name: text`` lines in a docstring into lists."""
    in_list, previous = False, ""
    for number, line in enumerate(lines):
        item = _ITEM.match(line)
        if item and (in_list or not previous):
            in_list = True
            names = ", ".join(f"**{word}**" for word in item[1].split(", "))
            lines[number] = f"- {names}: {line[item.end() :]}"
        elif in_list and line.startswith(" "):
            lines[number] = f"  {line.lstrip()}"
        else:
            in_list = False
        previous = line


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", list_the_names)
