"""The implementation in use can be seen; a broken one is reported, not hidden."""

from __future__ import annotations

import inspect
import itertools
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from kernel_twins import IMPLEMENTATIONS, REQUIRED, twin

from culm import kernels

SERIAL = itertools.count()
WORKING = "from .pure_{name} import *\n"
BROKEN = "raise ImportError('undefined symbol')\n"
MISSING_LIBRARY = "import surely_there_is_no_such_module\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Imports a copy of the package, with stand-ins for its compiled modules."""
    monkeypatch.syspath_prepend(tmp_path)

    def build(**compiled: str) -> ModuleType:
        package = tmp_path / f"kernels_copy_{next(SERIAL)}"
        package.mkdir()
        for source in Path(kernels.__path__[0]).glob("*.py"):
            shutil.copy(source, package)
        for name, source in compiled.items():
            (package / f"_{name}.py").write_text(source.format(name=name))
        return import_module(package.name)

    yield build
    for module in [name for name in sys.modules if name.startswith("kernels_copy_")]:
        del sys.modules[module]


def test_without_extensions_the_twins_serve_and_nothing_is_said(installed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        package = installed()
        assert package.IMPLEMENTATION == "pure"
    expected = dict.fromkeys(kernels.NAMES, "pure")
    assert dict(package.IMPLEMENTATIONS) == expected
    assert package.IMPORT_ERRORS == {}
    assert package.varu64 is package.load("varu64", "pure")


def test_with_all_extensions_they_serve_and_nothing_is_said(installed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        package = installed(**dict.fromkeys(kernels.NAMES, WORKING))
        assert package.IMPLEMENTATION == "compiled"
    assert package.lzfoo is package.load("lzfoo", "compiled")


@pytest.mark.parametrize("failure", [BROKEN, MISSING_LIBRARY])
def test_an_extension_that_does_not_import_is_reported(installed, failure):
    package = installed(**dict.fromkeys(kernels.NAMES, failure))
    with pytest.warns(RuntimeWarning, match="compiled kernels are not all in use"):
        implementation = package.IMPLEMENTATION
    assert implementation == "pure"
    assert package.IMPORT_ERRORS.keys() == set(kernels.NAMES)
    assert all(isinstance(error, ImportError) for error in package.IMPORT_ERRORS.values())
    with pytest.raises(ImportError):
        package.load("lzfoo", "compiled")


@pytest.mark.parametrize("other", [{}, {"lzfoo": BROKEN}])
def test_a_mixture_is_told(installed, other):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        package = installed(varu64=WORKING, **other)
        assert package.IMPLEMENTATION == "mixed"
    assert [warning.category for warning in told] == [RuntimeWarning] * (1 + len(other))
    assert re.search("'lzfoo': 'pure', .*'varu64': 'compiled'", str(told[-1].message))
    assert package.IMPORT_ERRORS.keys() == other.keys()


def test_a_kernel_is_imported_when_it_is_asked_for(installed):
    package = installed(varu64=BROKEN, lzfoo=WORKING)
    assert "cbor" not in vars(package)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert package.lzfoo is package.load("lzfoo", "compiled")
    with pytest.warns(RuntimeWarning, match="undefined symbol"):
        assert package.varu64 is package.load("varu64", "pure")
    assert {"varu64", "lzfoo"} == vars(package).keys() & set(kernels.NAMES)
    with pytest.raises(AttributeError, match="zip"):
        _ = package.zip


def test_what_is_told_is_what_is_used():
    for name in kernels.NAMES:
        used = kernels.load(name, kernels.IMPLEMENTATIONS[name])
        assert getattr(kernels, name) is used
    assert set(kernels.IMPLEMENTATIONS.values()) == {kernels.IMPLEMENTATION}
    if REQUIRED:
        assert kernels.IMPLEMENTATION == "compiled"


@pytest.mark.parametrize("arguments", [("zip", "pure"), ("lzfoo", "fast")])
def test_only_what_there_is_can_be_loaded(arguments):
    with pytest.raises(ValueError, match=r"kernel is named|implementation is"):
        kernels.load(*arguments)


@pytest.mark.parametrize("name", kernels.NAMES)
def test_twins_have_one_interface(name):
    compiled, pure = (twin(name, implementation) for implementation in IMPLEMENTATIONS)
    for path, thing in public(pure):
        other = compiled
        for part in path.split("."):
            other = getattr(other, part)
        if inspect.isfunction(thing):
            assert parameters(other) == parameters(thing), path
        elif not inspect.isclass(thing) and not isinstance(thing, property):
            assert other == thing, path
    assert {path for path, _ in public(compiled)} >= {path for path, _ in public(pure)}


@pytest.mark.parametrize("name", kernels.NAMES)
def test_the_stub_of_a_compiled_kernel_names_what_there_is(name):
    stub = Path(kernels.__path__[0], f"_{name}.pyi").read_text()
    stubbed = {line.split()[-1] for line in stub.splitlines() if " as " in line}
    assert stubbed == {path for path, _ in public(twin(name, "pure")) if "." not in path}


def public(module: ModuleType) -> list[tuple[str, object]]:
    """Names that a kernel defines, those of its classes' members included."""
    helpers = {"Any", "Buffer", "Callable", "Decode", "Iterable", "Mapping", "NoReturn", "Protocol"}
    helpers |= {"annotations", "array", "index", "Sequence", "Struct", "reduce", "pairwise"}
    helpers |= {"bisect_left", "bisect_right", "blake3", "fingerprints", "overload", "xxhash"}
    helpers |= {"TypeGuard"}
    found: list[tuple[str, object]] = []
    names = getattr(module, "__all__", None) or [
        name for name in vars(module) if not name.startswith("_") and name not in helpers
    ]
    for name in names:
        thing = vars(module)[name]
        found.append((name, thing))
        if inspect.isclass(thing):
            members = vars(thing).items()
            found += [(f"{name}.{key}", value) for key, value in members if key[0] != "_"]
    return found


def parameters(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    signature = inspect.signature(function)
    return [(item.name, item.kind, item.default) for item in signature.parameters.values()]
