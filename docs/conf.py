"""Sphinx configuration; `tox run -e docs` builds the site with warnings as errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.domains.python import ObjectEntry, PythonDomain

import culm

sys.path.insert(0, str(Path(__file__).parent))  # for our own extensions

project = "culm"
author = "The culm developers"
copyright = "2026, The culm developers"
version = release = culm.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "offline",
    "plots",
]
exclude_patterns = ["_build"]
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
html_math_renderer = "mathml"
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
html_static_path = ["static"]
html_css_files = ["narrow.css"]
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


def skip_what_is_passed_on(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Document a name where it is made, and in the package that offers it; not on the way."""
    here = sys.modules.get(app.env.current_document.autodoc_module)
    made_in = sys.modules.get(getattr(obj, "__module__", None) or "")
    if what != "module" or here is None or made_in in (None, here) or hasattr(here, "__path__"):
        return None
    return True if name in getattr(made_in, "__all__", ()) else None


class IndexedDomain(PythonDomain):
    """Python's domain, which else goes through all objects for every name that it looks up."""

    _by_last_name: dict[str, dict[str, ObjectEntry]]
    _size = 0  # of what is in the index
    _found: dict[str, ObjectEntry] | None = None

    @property
    def objects(self) -> dict[str, ObjectEntry]:
        """All objects; while one is looked up, those that may be the one."""
        return super().objects if self._found is None else self._found

    def note_object(self, name: str, *rest: Any, aliased: bool = False, **more: Any) -> None:
        """Note where an object is described; of two packages that pass it on, the first counts."""
        other = self.objects.get(name)
        if not (aliased and other is not None and other.aliased):
            super().note_object(name, *rest, aliased=aliased, **more)

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
    app.connect("autodoc-process-docstring", list_the_names)
    app.connect("autodoc-skip-member", skip_what_is_passed_on)
