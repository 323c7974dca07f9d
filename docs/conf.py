"""Sphinx configuration; `tox run -e docs` builds the site with warnings as errors."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.domains.python import ObjectEntry, PythonDomain

import culm

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "examples")]  # our own extensions, and culm-io

project = "culm"
author = "The culm developers"
copyright = "2026, The culm developers"
version = release = culm.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "navigation",
    "notebooks",
    "offline",
    "playground.site",
    "plots",
    "reference",
]
exclude_patterns = ["_build"]
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
html_math_renderer = "mathml"
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 3

# The reference is made from the docstrings; `reference` says which names there are.
autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_type_aliases = {"Buffer": "culm.buffer.Buffer", "JSON": "culm.machines.plain.JSON"}
python_use_unqualified_type_names = True
# `name` in a docstring is a Python object: a link if it is documented, code otherwise.
default_role = "py:obj"
# One name may live in several packages (Closed, Connection): the nearest one is linked.
suppress_warnings = ["ref.python"]

# Every page holds the tree of all pages; with every object in it, that takes minutes.
toc_object_entries = False
html_theme = "furo"
# What is copied can be pasted: no prompts, and none of what a program answers.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"
html_logo = html_favicon = "static/logo.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(HERE / "static/scorer.js")
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


def say_nothing_of_types(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Leave out what Python says of the type of a constant, as if it were said of this one."""
    of_type = type(obj).__doc__
    if what != "data" or not isinstance(of_type, str):
        return
    if lines[:1] == inspect.cleandoc(of_type).splitlines()[:1]:
        lines.clear()


# What Python writes for an alias of a type, and for a qualified name.
_ALIAS = re.compile(r"TypeAliasForwardRef\('([\w.]+)'\)")
_QUALIFIED = re.compile(r"~(?:\w+\.)*(\w+)")


def name_the_types(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Name aliases by their names, and all types briefly where Sphinx cannot parse a signature."""
    if signature is None:
        return signature, returned
    signature = _ALIAS.sub(r"\1", signature)
    returned = returned and _ALIAS.sub(r"\1", returned)
    try:
        ast.parse(f"def function{signature}: ...")
    except SyntaxError:
        signature = _QUALIFIED.sub(r"\1", signature)
    return signature, returned


class IndexedDomain(PythonDomain):
    """Python's domain, which else goes through all objects for every name that it looks up."""

    _by_last_name: dict[str, dict[str, ObjectEntry]]
    _size = 0  # of what is in the index
    _found: dict[str, ObjectEntry] | None = None

    @property
    def objects(self) -> dict[str, ObjectEntry]:
        """All objects; while one is looked up, those that may be the one."""
        return super().objects if self._found is None else self._found

    def find_obj(self, env: Any, modname: Any, classname: Any, name: str, *rest: Any) -> Any:
        """Look among the objects whose last name is that of `name`."""
        if self._size != len(self.objects):
            self._by_last_name, self._size = {}, len(self.objects)
            for full_name, entry in self.objects.items():
                same = self._by_last_name.setdefault(full_name.rpartition(".")[2], {})
                same[full_name] = entry
        self._found = self._by_last_name.get(name.removesuffix("()").rpartition(".")[2], {})
        try:
            return super().find_obj(env, modname, classname, name, *rest)
        finally:
            self._found = None


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_domain(IndexedDomain, override=True)
    app.connect("autodoc-process-docstring", say_nothing_of_types)
    app.connect("autodoc-process-signature", name_the_types)
    app.connect("autodoc-process-docstring", list_the_names)
