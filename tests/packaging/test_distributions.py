"""Sdist and wheel, built and installed as by a stranger: ``tox run -e dist``."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from packaging_project import ROOT, code_blocks

import services

pytestmark = [pytest.mark.dist, pytest.mark.timeout(1200)]

CODE = {".py", ".pyi", ".typed"}
PAGES = {".css", ".js", ".lua", ".txt"}  # parts of pages, and of dissectors
KERNELS = sorted(path.stem for path in (ROOT / "cext").glob("*.pyx"))
VERSIONS = ["3.11", "3.12", "3.13", "3.14"]

SUFFIX = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"

# Imports every module of the installed package that needs no extra, prints its kernels, and asks
# the line driver for its machines.
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
    """Standard output of `command`; a failure shows all of its output."""
    # Neither our settings, nor a tree that shadows the installed package.
    foreign = {name for name in os.environ if name.startswith(("CULM_", "PYTHON"))}
    clean = {name: value for name, value in os.environ.items() if name not in foreign}
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
            # A version manager's shim may be present and lead nowhere.
            probe = subprocess.run([candidate, "-c", "import venv"], capture_output=True)
            if probe.returncode == 0:
                return candidate
    pytest.skip(f"no python{version} on this machine")


def tracked_files() -> set[str]:
    """The files of the project, as known to git; skips in an unpacked sdist."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    return set(run("git", "ls-files", cwd=ROOT).splitlines())


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files alone, as they are in the tree, without a repository."""
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
        if hasattr(tarfile, "data_filter"):  # since 3.11.4
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)
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


def package_in(wheel: Path) -> set[str]:
    """The contents of a wheel, without its metadata."""
    return {name for name in names_in(wheel) if ".dist-info/" not in name}


def sources() -> set[str]:
    """The parts that belong in every wheel: modules, stubs, `py.typed`, parts of pages."""
    files = {name.removeprefix("src/") for name in tracked_files() if name.startswith("src/")}
    assert {Path(name).suffix for name in files} == {*CODE, *PAGES}
    return files


def test_the_sdist_holds_every_tracked_file_and_nothing_that_was_generated(unpacked: Path):
    held = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    made = {name for name in held if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    assert held - made == tracked_files()


def test_links_of_the_readme_lead_to_files_of_this_version_from_anywhere(unpacked: Path):
    told = email.message_from_string((unpacked / "PKG-INFO").read_text(encoding="utf-8"))
    urls = dict(line.split(", ") for line in told.get_all("Project-URL", []))
    assert told["Description-Content-Type"] == "text/markdown"
    targets = re.findall(r"\]\(([^)#]+)\)", str(told.get_payload()))
    below = f"{urls['Source']}/blob/v{told['Version']}/"
    assert [target for target in targets if not target.startswith("https://")] == []
    names = [target.removeprefix(below) for target in targets if target.startswith(below)]
    assert len(names) > 10
    assert [name for name in names if not (unpacked / name).exists()] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wheel_from_the_sdist_installs_and_runs_compiled(
    version: str, unpacked: Path, tmp_path: Path
):
    python = new_environment(interpreter(version), tmp_path / "environment")
    (tmp_path / "wheel").mkdir()
    wheel = build_wheel(unpacked, tmp_path / "wheel", python, CULM_BUILD_EXT="require")

    names = names_in(wheel)
    suffix = run(python, "-c", SUFFIX, cwd=tmp_path).strip()
    assert package_in(wheel) == sources() | {f"culm/kernels/_{name}{suffix}" for name in KERNELS}
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
    assert package_in(wheel) == sources()
    python = new_environment(Path(sys.executable), tmp_path / "environment")
    run(python, "-m", "pip", "install", wheel, cwd=tmp_path)
    output = run(python, "-W", "error", "-c", IMPORT_ALL, cwd=tmp_path)
    assert output.split()[:2] == ["pure", "bymux"]


@pytest.mark.parametrize("compiler", ["none", "broken", "there"])
def test_a_stranger_installs_the_sdist_and_runs_the_first_example(
    compiler: str, sdist: Path, tmp_path: Path
):
    """With nothing but Python, with a compiler that fails, and with one that works."""
    python = new_environment(Path(sys.executable), tmp_path / "environment")
    (tmp_path / "empty").mkdir()
    env = {
        "none": {"PATH": str(tmp_path / "empty")},
        "broken": {"CC": "/bin/false", "CXX": "/bin/false"},
        "there": {},
    }[compiler]
    log = tmp_path / "log"
    told = run(python, "-m", "pip", "install", "--log", log, sdist, cwd=tmp_path, env=env)
    is_pure = compiler != "there"
    # By default pip shows only the wheel's name; the reason is in its log.
    (wheel,) = re.findall(r"filename=culm-\S+", told)
    assert wheel.endswith("-py3-none-any.whl") == is_pure
    assert ("the kernels will be those in Python" in log.read_text(encoding="utf-8")) == is_pure

    implementation = "import culm.kernels; print(culm.kernels.IMPLEMENTATION)"
    used = run(python, "-W", "error", "-c", implementation, cwd=tmp_path, env=env)
    assert used.split() == ["pure" if is_pure else "compiled"]
    example = code_blocks("README.md", "python")[0]
    lines = run(python, "-W", "error", "-c", example, cwd=tmp_path, env=env).splitlines()
    assert lines == [f"entry {number} is verified, and in the store" for number in (1, 2, 3)]


@pytest.mark.parametrize("through", ["pip", "build", "build --wheel"])
def test_what_an_earlier_build_has_left_comes_into_no_wheel(
    through: str, unpacked: Path, tmp_path: Path
):
    tree = shutil.copytree(unpacked, tmp_path / "tree")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    libs = ("lib", f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}")
    left = [f"build/{lib}/culm/of_an_earlier_build.py" for lib in libs]
    left += [f"build/{lib}/culm/kernels/_varu64{suffix}" for lib in libs]
    # Built in place, for the checkout itself.
    left += [f"src/culm/kernels/_{name}{suffix}" for name in ("varu64", "of_an_earlier_build")]
    left += ["cext/varu64.c", "src/culm/__pycache__/of_an_earlier_build.cpython-311.pyc"]
    for name in left:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).touch()
    listed = tree / "src/culm.egg-info/SOURCES.txt"
    listed.parent.mkdir(exist_ok=True)
    listed.write_text("\n".join(left), encoding="utf-8")

    (tmp_path / "wheel").mkdir()
    if through == "pip":
        wheel = build_wheel(tree, tmp_path / "wheel", CULM_BUILD_EXT="no")
    else:
        command = [sys.executable, "-m", *through.split(), "--outdir", tmp_path / "wheel", tree]
        run(*command, cwd=tmp_path, env={"CULM_BUILD_EXT": "no"})
        (wheel,) = (tmp_path / "wheel").glob("*.whl")
    assert package_in(wheel) == sources()


@pytest.mark.parametrize(
    "env",
    [{"CULM_BUILD_EXT": "require", "CC": "/nonexistent/cc"}, {"CULM_BUILD_EXT": "perhaps"}],
    ids=["require without a compiler", "unknown mode"],
)
def test_a_build_that_cannot_be_had_fails(env: dict[str, str], unpacked: Path, tmp_path: Path):
    with pytest.raises(AssertionError, match="failed"):
        build_wheel(unpacked, tmp_path, **env)


# Imports every module of culm-io, whose extras are all there except Spark, and prints the typed
# packages.
IMPORT_IO = """
import importlib, importlib.resources, pkgutil, culm_io
for module in pkgutil.walk_packages(culm_io.__path__, "culm_io."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
assert importlib.resources.files("culm_io").joinpath("py.typed").is_file()
print(culm_io.__version__)
"""


@pytest.fixture(scope="session")
def both_wheels(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    culm = build_wheel(unpacked, tmp_path_factory.mktemp("culm"), CULM_BUILD_EXT="no")
    return culm, build_wheel(unpacked / "examples", tmp_path_factory.mktemp("culm-io"))


def test_the_wheel_of_culm_io_has_its_modules_and_its_licence(both_wheels: tuple[Path, Path]):
    names = names_in(both_wheels[1])
    tracked = {name for name in tracked_files() if name.startswith("examples/culm_io/")}
    assert package_in(both_wheels[1]) == {name.removeprefix("examples/") for name in tracked}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.parametrize(
    "trial", [services.log_is_followed, services.servers_agree, services.cluster_talks]
)
def test_from_two_wheels_a_stranger_has_services_that_run(
    trial: Callable[[Path, str, Mapping[str, str]], None],
    both_wheels: tuple[Path, Path],
    tmp_path: Path,
):
    python = new_environment(Path(sys.executable), tmp_path / "environment")
    culm, culm_io = both_wheels
    io_with_trio = f"culm-io[trio] @ {culm_io.as_uri()}"
    run(python, "-m", "pip", "install", culm, io_with_trio, cwd=tmp_path)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    trial(tmp_path, str(python), clean)


def test_from_two_wheels_a_stranger_has_the_command(both_wheels: tuple[Path, Path], tmp_path: Path):
    python = new_environment(Path(sys.executable), tmp_path / "environment")
    culm, culm_io = both_wheels
    run(python, "-m", "pip", "install", culm, f"culm-io[all] @ {culm_io.as_uri()}", cwd=tmp_path)
    version = run(python, "-W", "error", "-c", IMPORT_IO, cwd=tmp_path).strip()
    assert run(python.with_name("culm"), "--version", cwd=tmp_path) == f"culm-io {version}\n"
    assert run(python.with_name("culm"), "oxen", "key", cwd=tmp_path).strip().isalnum()
