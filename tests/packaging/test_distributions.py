"""Sdist and wheel, built and installed as a stranger would: ``tox run -e dist``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging_project import ROOT

pytestmark = [pytest.mark.dist, pytest.mark.timeout(1200)]

KERNELS = sorted(path.stem for path in (ROOT / "cext").glob("*.pyx"))
VERSIONS = ["3.11", "3.12", "3.13"]

# Imports every module of the installed package but those that need an extra, tells which
# kernels it found, and asks the line driver what it can drive.
IMPORT_ALL = """
import importlib, importlib.resources, pkgutil, culm, culm.kernels
for module in pkgutil.walk_packages(culm.__path__, "culm."):
    if not module.name.startswith(("culm.testing.suite", "culm.testing.campaign", "culm.spark")):
        importlib.import_module(module.name)
assert importlib.resources.files("culm").joinpath("py.typed").is_file()
print(culm.kernels.IMPLEMENTATION)
from culm.testing import drive
assert drive.main(["--list"]) == 0
"""


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Standard output of `command`; its failure shows all that it wrote."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CULM_")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean | dict(env or {}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command} failed\n{done.stdout}\n{done.stderr}"
    return done.stdout


def interpreter(version: str) -> Path:
    """A working interpreter of that version on the search path; skips if there is none."""
    for folder in os.get_exec_path():
        candidate = Path(folder) / f"python{version}"
        if candidate.exists():
            # A version manager's shim may be there and lead nowhere.
            probe = subprocess.run([candidate, "-c", "import venv"], capture_output=True)
            if probe.returncode == 0:
                return candidate
    pytest.skip(f"no python{version} on this machine")


def tracked_files() -> set[str]:
    """What the project consists of, as git knows it; skips in an unpacked sdist."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    return set(run("git", "ls-files", cwd=ROOT).splitlines())


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files alone, as they are in the tree, without a repository around them."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in tracked_files():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    return copy


@pytest.fixture(scope="session")
def sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, checkout, cwd=folder)
    (archive,) = folder.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="session")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    return tree


def build_wheel(tree: Path, folder: Path, python: Path | None = None, **env: str) -> Path:
    """Build a wheel of a copy of an unpacked sdist with an interpreter's pip."""
    copy = shutil.copytree(tree, folder / "source")
    command = [python or sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, copy]
    run(*command, cwd=folder, env=env)
    (wheel,) = folder.glob("*.whl")
    return wheel


def new_environment(python: Path, folder: Path) -> Path:
    """The interpreter of a fresh virtual environment."""
    run(python, "-m", "venv", folder, cwd=folder.parent)
    return folder / "bin" / "python"


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_sdist_holds_every_tracked_file_and_nothing_that_was_generated(unpacked: Path):
    held = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    made = {name for name in held if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    assert held - made == tracked_files()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wheel_from_the_sdist_installs_and_runs_compiled(
    version: str, unpacked: Path, tmp_path: Path
):
    python = new_environment(interpreter(version), tmp_path / "environment")
    (tmp_path / "wheel").mkdir()
    wheel = build_wheel(unpacked, tmp_path / "wheel", python, CULM_BUILD_EXT="require")

    names = names_in(wheel)
    assert {Path(name).parts[0].split("-")[0] for name in names} == {"culm"}
    assert not [name for name in names if name.endswith((".pyx", ".pxd", ".c"))]
    built = {Path(name).name.split(".")[0] for name in names if name.endswith((".so", ".pyd"))}
    assert built == {f"_{kernel}" for kernel in KERNELS}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    with zipfile.ZipFile(wheel) as archive:
        kernels = [archive.read(name) for name in names if name.endswith(".so")]
    assert not [kernel for kernel in kernels if b".debug_info" in kernel]  # stripped

    run(python, "-m", "pip", "install", wheel, cwd=tmp_path)
    assert run(python, "-c", IMPORT_ALL, cwd=tmp_path).split()[:2] == ["compiled", "bymux"]


@pytest.mark.parametrize(
    "env",
    [{"CULM_BUILD_EXT": "no"}, {"CULM_BUILD_EXT": "auto", "CC": "/nonexistent/cc"}],
    ids=["no", "auto without a compiler"],
)
def test_without_extensions_the_twins_serve(env: dict[str, str], unpacked: Path, tmp_path: Path):
    wheel = build_wheel(unpacked, tmp_path, **env)
    assert wheel.stem.endswith("-py3-none-any")
    assert not [name for name in names_in(wheel) if name.endswith((".so", ".pyd"))]
    python = new_environment(Path(sys.executable), tmp_path / "environment")
    run(python, "-m", "pip", "install", wheel, cwd=tmp_path)
    output = run(python, "-W", "error", "-c", IMPORT_ALL, cwd=tmp_path)
    assert output.split()[:2] == ["pure", "bymux"]


def test_a_build_without_a_compiler_says_so(unpacked: Path, tmp_path: Path):
    copy = shutil.copytree(unpacked, tmp_path / "source")
    log = tmp_path / "log"
    command = [sys.executable, "-m", "pip", "wheel", "--log", log, "--no-deps", "-w", tmp_path]
    run(*command, copy, cwd=tmp_path, env={"CC": "/nonexistent/cc"})
    assert "the kernels will be those in Python" in log.read_text(encoding="utf-8")


def test_what_an_earlier_build_has_left_comes_into_no_wheel(unpacked: Path, tmp_path: Path):
    tree = shutil.copytree(unpacked, tmp_path / "tree")
    for lib in ("lib", f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"):
        package = tree / "build" / lib / "culm"
        package.mkdir(parents=True)
        (package / "of_an_earlier_build.py").touch()
    (tmp_path / "wheel").mkdir()
    names = names_in(build_wheel(tree, tmp_path / "wheel", CULM_BUILD_EXT="no"))
    assert "culm/machine.py" in names
    assert "culm/of_an_earlier_build.py" not in names


@pytest.mark.parametrize(
    "env",
    [{"CULM_BUILD_EXT": "require", "CC": "/nonexistent/cc"}, {"CULM_BUILD_EXT": "perhaps"}],
    ids=["require without a compiler", "unknown mode"],
)
def test_a_build_that_cannot_be_had_fails(env: dict[str, str], unpacked: Path, tmp_path: Path):
    with pytest.raises(AssertionError, match="failed"):
        build_wheel(unpacked, tmp_path, **env)
