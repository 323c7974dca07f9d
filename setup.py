"""The list of extension modules; everything else is in pyproject.toml.

``CULM_BUILD_EXT``: ``auto`` (default: build, go on without if that fails), ``require``
or ``no``.  ``CULM_SANITIZE=1`` builds with AddressSanitizer and UBSan.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

MODE = os.environ.get("CULM_BUILD_EXT", "auto")
if MODE not in {"auto", "require", "no"}:
    raise SystemExit(f"CULM_BUILD_EXT must be auto, require or no, not {MODE!r}")

FLAGS = ["-O3"]
LINK_FLAGS: list[str] = []
if os.environ.get("CULM_SANITIZE") == "1":
    LINK_FLAGS = ["-fsanitize=address,undefined"]
    FLAGS = ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", *LINK_FLAGS]

CORES = os.cpu_count() or 1

EXTENSIONS = [
    Extension(
        f"culm.kernels._{source.stem}",
        [source.as_posix()],
        extra_compile_args=FLAGS,
        extra_link_args=LINK_FLAGS,
        optional=MODE == "auto",
    )
    for source in sorted(Path("cext").glob("*.pyx"))
]


def modules() -> list[Extension]:
    """The extensions, translated to C on all cores."""
    if MODE == "no":
        return []
    from Cython.Build import cythonize

    return cythonize(EXTENSIONS, force=True, nthreads=CORES)


# Forced: objects of an earlier build may have been made with other flags.
setup(ext_modules=modules(), options={"build_ext": {"force": True, "parallel": CORES}})
