"""libsodium's verification in a loop in C: the measure for columns of signatures."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
from array import array
from collections.abc import Callable
from pathlib import Path

from nacl import _sodium

#: Keys, signatures, messages and offsets into them; the number of valid ones.
VerifyLoop = Callable[[bytes, bytes, bytes, "array[int]"], int]


class NoLoop(Exception):
    """There is no C compiler, or libsodium's functions cannot be reached."""


def build_loop(folder: Path) -> VerifyLoop:
    """Compile the loop, as a library in `folder`.  Raises `NoLoop`."""
    library = folder / "sodium_loop.so"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    source = Path(__file__).with_name("sodium_loop.c")
    try:
        subprocess.run([*compiler, "-O3", "-shared", "-fPIC", source, "-o", library], check=True)
        verify = ctypes.CDLL(_sodium.__file__).crypto_sign_verify_detached
    except (OSError, subprocess.CalledProcessError, AttributeError) as error:
        raise NoLoop(str(error)) from None
    loop = ctypes.CDLL(str(library)).verify_loop
    loop.restype = ctypes.c_int64

    def run(keys: bytes, signatures: bytes, data: bytes, offsets: array[int]) -> int:
        cuts = (ctypes.c_int32 * len(offsets)).from_buffer(offsets)
        count = ctypes.c_int64(len(offsets) - 1)
        return int(loop(verify, keys, signatures, data, cuts, count))

    return run
