"""Every machine is made in one shape, and has one way to its sizes and its store."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import culm
from modules import MODULES, SOURCE, definitions, tree

#: Rooms of the parts that machines are made of: these take a single time from their machine.
PARTS = ("culm.replication",)

#: Still in another shape; a row goes when it is mended.
STANDING: set[str] = set()


def exported() -> Iterator[type[Any]]:
    """The public classes that culm's packages offer."""
    for found in pkgutil.walk_packages(culm.__path__, "culm."):
        if found.ispkg:
            package = import_module(found.name)
            values = (getattr(package, name) for name in getattr(package, "__all__", ()))
            yield from (value for value in values if inspect.isclass(value))


def machine_types() -> set[type[Any]]:
    """The machines that users make: not parts of one (links), nor base classes."""
    return {
        kind
        for kind in exported()
        if hasattr(kind, "next_event")
        and not getattr(kind, "_is_protocol", False)
        and not kind.__name__.endswith(("Link", "Base"))
    }


def path_of(kind: type[Any]) -> str:
    return f"{kind.__module__.removeprefix('culm.')}.{kind.__name__}"


def wrong_constructors(kind: type[Any]) -> Iterator[str]:
    """The objects of limits and times that a machine does not take, or has no default for."""
    parameters = inspect.signature(kind).parameters
    for name in ("limits", "timing") if hasattr(kind, "advance") else ("limits",):
        default = parameters[name].default if name in parameters else None
        if not type(default).__name__.endswith(name.capitalize()):
            yield f"{path_of(kind)}({name}=)"


def loose_limits(kind: type[Any]) -> Iterator[str]:
    """Limits that a machine takes one by one."""
    for parameter in inspect.signature(kind).parameters:
        if parameter.endswith("_max"):
            yield f"{path_of(kind)}({parameter}=)"


def loose_seconds(kind: type[Any]) -> Iterator[str]:
    """Times that a class takes one by one.  Records may have one among their values."""
    module, name = kind.__module__, kind.__name__
    is_record = hasattr(kind, "__dataclass_fields__") and not module.endswith(".limits")
    if not (is_record or name.endswith("Timing") or module.startswith(PARTS)):
        for parameter in inspect.signature(kind).parameters:
            if parameter.endswith("_s"):
                yield f"{path_of(kind)}({parameter}=)"


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of all modules and classes, by their dotted names."""
    for path in MODULES:
        module = ".".join(path.relative_to(SOURCE / "culm").with_suffix("").parts)
        for name, node in definitions(tree(path)):
            if isinstance(node, ast.FunctionDef):
                yield f"{module}.{name}", node


def is_called_for_a_size(function: ast.FunctionDef) -> bool:
    """Whether it is a method without arguments for a size, which should be a property."""
    return (
        function.name.endswith("_size")
        and not function.name.startswith("_")
        and ast.unparse(function.args) == "self"
        and not any(ast.unparse(each).endswith("property") for each in function.decorator_list)
    )


def faults() -> Iterator[str]:
    """Everything that has another shape."""
    for kind in machine_types():
        yield from wrong_constructors(kind)
        yield from loose_limits(kind)
    for kind in exported():
        if "__init__" in vars(kind):
            yield from loose_seconds(kind)
    for name, node in functions():
        if is_called_for_a_size(node) and node.name != "read_size":
            yield f"{name}()"
        if node.name == "perform" and [each.arg for each in node.args.args[:1]] != ["self"]:
            yield f"{name}()"


def test_machines_and_stores_have_one_shape() -> None:
    assert set(faults()) == STANDING


def test_a_loose_time_is_a_fault() -> None:
    class Taking:
        def __init__(self, *, size_max: int, wait_s: float) -> None: ...

    assert [found.rpartition(".")[2] for found in loose_seconds(Taking)] == ["Taking(wait_s=)"]


def test_a_size_is_a_property() -> None:
    source = "@property\ndef a_size(self): ...\ndef b_size(self): ...\ndef c_size(self, d): ..."
    found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    assert [node.name for node in found if is_called_for_a_size(node)] == ["b_size"]


def test_a_loose_limit_is_a_fault() -> None:
    class Taking:
        def __init__(self, *, size_max: int) -> None: ...

    assert [found.rpartition(".")[2] for found in loose_limits(Taking)] == ["Taking(size_max=)"]
