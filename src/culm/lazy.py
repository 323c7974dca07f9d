"""Names of a package that are imported when they are first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def names(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """The ``__getattr__`` of a package, for names that its modules define.

    modules: the names, by the module within the package.
    """
    module_of = {name: module for module, found in modules.items() for name in found}

    def find(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
