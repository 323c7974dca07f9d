"""How the extension modules are built, and the readme; everything else is in pyproject.toml.

``CULM_BUILD_EXT``: ``auto`` (default: build if there is a C compiler), ``require`` or
``no``.  ``CULM_SANITIZE=1`` builds with AddressSanitizer and UBSan.
"""

import atexit
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

MODE = os.environ.get("CULM_BUILD_EXT", "auto")
if MODE not in {"auto", "require", "no"}:
    raise SystemExit(f"CULM_BUILD_EXT must be auto, require or no, not {MODE!r}")

SANITIZE = os.environ.get("CULM_SANITIZE") == "1"
CORES = os.cpu_count() or 1

# Objects of an earlier build may have been made with other flags, or be of modules that
# are no more: nothing is taken from a build before this one.
SCRATCH = tempfile.mkdtemp(prefix="culm-build-")
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)

PROBE = "#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return NULL; }\n"


def flags() -> tuple[list[str], list[str]]:
    """Those of the compiler, and those of the linker."""
    if os.name == "nt":
        return ["/O2"], []
    if SANITIZE:
        checks = ["-fsanitize=address,undefined"]
        careful = ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]
        return careful + checks, checks
    strip = "-Wl,-x" if sys.platform == "darwin" else "-Wl,--strip-all"
    return ["-O3", "-g0"], [strip]


def extension(name: str, source: str) -> Extension:
    """A module of one source, built with the flags of this machine."""
    compiler, linker = flags()
    return Extension(name, [source], extra_compile_args=compiler, extra_link_args=linker)


class Probe(build_ext):
    """Builds into the scratch folder alone, wherever the command line says."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.inplace = False
        self.build_lib = self.build_temp = str(Path(SCRATCH, "probe"))


def compiles() -> bool:
    """Whether an extension module can be built here: a compiler, a linker, Python's headers."""
    from setuptools import Distribution

    source = Path(SCRATCH, "probe.c")
    source.write_text(PROBE, encoding="ascii")
    command = Probe(Distribution({"ext_modules": [extension("probe", str(source))]}))
    command.ensure_finalized()
    try:
        command.run()
    except (CompileError, LinkError, OSError):
        return False
    return True


def modules() -> list[Extension]:
    """The extensions, translated to C on all cores; none where they cannot be built."""
    if MODE == "no" or not {"build_ext", "bdist_wheel", "editable_wheel", "build"} & set(sys.argv):
        return []
    if MODE == "auto" and not compiles():
        print(
            f"culm: no C compiler for {sysconfig.get_platform()} was found: "
            "the kernels will be those in Python, which are slower",
            file=sys.stderr,
        )
        return []
    from Cython.Build import cythonize

    kernels = sorted(Path("cext").glob("*.pyx"))
    return cythonize(
        [extension(f"culm.kernels._{kernel.stem}", kernel.as_posix()) for kernel in kernels],
        build_dir=SCRATCH,
        force=True,
        nthreads=CORES,
    )


def readme() -> str:
    """README.md as a package index shows it: with links to the files of this version."""
    source = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]["urls"]["Source"]
    found = re.search(r'__version__ = "(.+)"', Path("src/culm/__init__.py").read_text("utf-8"))
    assert found is not None
    links = f"]({source}/blob/v{found[1]}/"
    return re.sub(r"\]\((?![a-z]+:|#)", links, Path("README.md").read_text("utf-8"))


setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    ext_modules=modules(),
    options={
        "build": {"build_base": SCRATCH},
        "build_ext": {"force": True, "parallel": CORES},
    },
)
