"""How big things may get, where randomness comes from, and what testing may depend on.

``packaging/test_arrows.py`` checks which room may import which.
"""

from __future__ import annotations

import ast
import subprocess
import symtable
import sys
from collections.abc import Container, Iterator
from pathlib import Path

from modules import MODULES, SOURCE, definitions, of_each, tree

# A class is as long as the state it owns asks for.
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60

# "module.py" or "module.py::Class.function" -> why it has to be so big.
ALLOWED: dict[str, str] = {}


def identify(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def too_big(path: Path) -> Iterator[str]:
    name = identify(path)
    lines = len(path.read_text(encoding="utf-8").splitlines())
    if lines > FILE_LINES_MAX:
        yield f"{name}: {lines} lines"
    for dotted, node in definitions(tree(path)):
        if isinstance(node, ast.ClassDef):
            continue
        assert node.end_lineno is not None
        size = node.end_lineno - node.lineno + 1
        if size > FUNCTION_LINES_MAX:
            yield f"{name}::{dotted}: {size} lines"


def imported(node: ast.AST) -> set[str]:
    """The first parts of the names of all modules that are imported in `node`."""
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            found |= {alias.name.split(".")[0] for alias in each.names}
        elif isinstance(each, ast.ImportFrom):
            found.add((each.module or "").split(".")[0])
    return found


@of_each(MODULES)
def test_files_and_functions_stay_small(path: Path) -> None:
    big = {what: what.rsplit(":", 1)[0] for what in too_big(path)}
    assert [what for what, name in big.items() if name not in ALLOWED] == []


def test_what_is_allowed_to_be_big_is_big() -> None:
    big = {what.rsplit(":", 1)[0] for path in MODULES for what in too_big(path)}
    assert set(ALLOWED) <= big


# Rooms whose objects still write into others.
WRITING_ROOMS = ("culm/kernels",)  # pure twins are written as their compiled kernels are

# "module.py: target" -> why it is right.
ALLOWED_WRITES = {
    "culm/machines/signatures.py: verb.__signature__": "a function, to be looked at as another",
    "culm/testing/suite/__init__.py: example.__qualname__": "a function, by the name of its case",
    "culm/testing/suite/__init__.py: example.__name__": "the same",
}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def test_no_imports_in_a_circle() -> None:
    """Anywhere in a module, under ``TYPE_CHECKING`` too."""
    paths = {module_name(path): path for path in MODULES}
    left = {name: set(modules_imported(path, paths)) - {name} for name, path in paths.items()}
    while free := {name for name, needed in left.items() if not needed & left.keys()}:
        left = {name: needed for name, needed in left.items() if name not in free}
    while free := left.keys() - set().union(*left.values()):
        left = {name: needed for name, needed in left.items() if name not in free}
    assert sorted(left) == []


def modules_imported(path: Path, known: Container[str]) -> Iterator[str]:
    """The modules of culm that a module imports."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module or ""


@of_each(MODULES)
def test_no_object_writes_into_anothers_attributes(path: Path) -> None:
    if not identify(path).startswith(WRITING_ROOMS):
        found = {f"{identify(path)}: {target}" for target in foreign_writes(tree(path))}
        assert found - ALLOWED_WRITES.keys() == set()


def foreign_writes(module: ast.Module) -> Iterator[str]:
    """Attributes set or deleted on anything but ``self`` and freshly made objects."""
    for function in ast.walk(module):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            inside = list(within(function))
            own = {"self", "cls", *(name for node in inside for name in made(node))}
            for node in inside:
                stored = isinstance(node, ast.Attribute) and isinstance(
                    node.ctx, (ast.Store, ast.Del)
                )
                if stored and not (isinstance(node.value, ast.Name) and node.value.id in own):
                    yield ast.unparse(node)


def within(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of the functions defined inside it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child
            yield from within(child)


def made(node: ast.AST) -> Iterator[str]:
    """The names that are given a new object: ``name = Class(...)``."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        called = ast.unparse(node.value.func).split(".")[-1].lstrip("_")
        if called[:1].isupper() or called in {"cls", "new__"}:
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def test_a_write_into_another_object_is_told_from_others() -> None:
    def writes(body: str) -> list[str]:
        return list(foreign_writes(ast.parse(f"def f(self, x):\n    {body}")))

    assert writes("x.a = 1") == ["x.a"]
    assert writes("self.x.a += 1") == ["self.x.a"]
    assert writes("del x[0].a") == ["x[0].a"]
    assert writes("x.a, self.b = 1, 2") == ["x.a"]
    assert writes("for x.a in self: pass") == ["x.a"]
    assert writes("self.a = x.a") == []
    assert writes("y = Thing(); y.a = 1") == []
    assert writes("y = x.thing(); y.a = 1") == ["y.a"]


@of_each(MODULES)
def test_a_generator_of_chance_is_passed_in(path: Path) -> None:
    """Generators are made from a seed: by the network of tests, and where a config names one."""
    made = [
        ast.unparse(node)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).split(".")[-1] in {"Random", "SystemRandom"}
    ]
    assert made in ([], ["Random(f'{self.seed} {purpose}')"], ["Random(seed)"])
    rooms = (SOURCE / "culm" / "testing", SOURCE / "culm" / "machines")
    assert not made or any(map(path.is_relative_to, rooms))


@of_each(MODULES)
def test_nothing_rests_on_where_an_object_lies_in_memory(path: Path) -> None:
    """The builtin ``id`` differs from run to run; only the memory meter may use it."""
    table = symtable.symtable(path.read_text(encoding="utf-8"), str(path), "exec")
    assert not uses_builtin(table, "id") or identify(path) == "culm/machines/memory.py"


def uses_builtin(table: symtable.SymbolTable, name: str) -> bool:
    """Whether a scope uses the builtin `name`: neither it nor an enclosing scope binds it."""
    found = name in table.get_identifiers() and table.lookup(name)
    if found and found.is_referenced():
        unbound = not found.is_assigned() and not found.is_parameter()
        if unbound and (found.is_global() or table.get_type() == "module"):
            return True
    return any(uses_builtin(child, name) for child in table.get_children())


def test_a_builtin_is_told_from_a_name_that_is_bound() -> None:
    def uses(source: str) -> bool:
        return uses_builtin(symtable.symtable(source, "", "exec"), "id")

    assert uses("id(1)")
    assert uses("def f(x):\n    return sorted(x, key=id)")
    assert uses("class C:\n    def f(self):\n        return id(self)")
    assert not uses("def f(id):\n    return id")
    assert not uses("def f():\n    id = 1\n    return lambda: id")
    assert not uses("class C:\n    id: int\ndef f(c):\n    return c.id")


@of_each(MODULES)
def test_test_tools_are_imported_only_where_they_belong(path: Path) -> None:
    names = imported(tree(path))
    assert "pytest" not in names
    suite = SOURCE / "culm" / "testing" / "suite"
    assert "hypothesis" not in names or path.is_relative_to(suite)


@of_each(MODULES)
def test_spark_is_imported_lazily(path: Path) -> None:
    local = (ast.If, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    at_import = [node for node in tree(path).body if not isinstance(node, local)]
    names = set().union(*map(imported, at_import)) if at_import else set()
    assert names & {"pyspark", "pandas", "pyarrow"} == set()


def test_driving_needs_no_test_tools() -> None:
    """The line driver serves other implementations: culm alone must be enough to install."""
    program = (
        "import sys\n"
        "for name in ('hypothesis', 'pytest'):\n"
        "    sys.modules[name] = None\n"
        "from culm.testing import drive, cluster, disk, link, record, transcript\n"
        "raise SystemExit(drive.main(['--list']))\n"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL).returncode == 0
    )
