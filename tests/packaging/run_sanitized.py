"""Runs pytest on instrumented kernels, with the sanitizers' runtime loaded first.

The interpreter itself is not instrumented, so the runtime of AddressSanitizer has to be preloaded;
only the compiler knows its path.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path


def runtime_library(name: str) -> str:
    """Path of the compiler's library `name`; exits with a message if there is none."""
    command = [*shlex.split(os.environ.get("CC", "gcc")), f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).is_absolute():
        raise SystemExit(
            f"{shlex.join(command)}: no such library; install the compiler's sanitizers"
        )
    return found


def check_instrumented() -> None:
    """Exit with a message unless every installed kernel was built with CULM_SANITIZE=1."""
    spec = importlib.util.find_spec("culm")
    assert spec is not None
    assert spec.origin is not None
    kernels = sorted(Path(spec.origin).parent.glob("kernels/_*.so"))
    plain = [path.name for path in kernels if b"__asan_" not in path.read_bytes()]
    if plain or not kernels:
        raise SystemExit(f"built without the sanitizers: {', '.join(plain) or 'no kernel at all'}")


def main() -> None:
    check_instrumented()
    environment = os.environ | {
        "LD_PRELOAD": runtime_library("libasan.so"),
        # Python frees little at exit, through no fault of culm.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        # Python's own allocator would hide the boundaries between objects.
        "PYTHONMALLOC": "malloc",
    }
    command = [sys.executable, "-m", "pytest", *sys.argv[1:]]
    os.execve(sys.executable, command, environment)


if __name__ == "__main__":
    main()
