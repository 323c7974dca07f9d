"""The hot paths, each twice: compiled from ``cext/`` and as a pure twin, its specification.

``culm.kernels.cbor``, ``classic``, ``fingerprint``, ``hashing``, ``lzfoo``, ``operations``,
``runs``, ``symbols``, ``tree``, ``varu64``, ``xenc`` are the twins in use: the compiled ones where
there are any.  Each is imported on its first use, so that a user of one codec does not wait for
libsodium.
The choice is told, never guessed:

- `IMPLEMENTATION` is ``"compiled"``, ``"pure"`` or ``"mixed"``,
- `IMPLEMENTATIONS` has the same by kernel,
- `IMPORT_ERRORS` holds the exception of each compiled kernel that is there and does not
  import.  Such a kernel, and a mixture, also cause a `RuntimeWarning` when they are first used:
  an installation without extensions is a choice, a half working one is not.

To ask for one of these three imports all kernels.

There is no switch.  To run without the extensions, install with ``CULM_BUILD_EXT=no``; to
have both twins side by side, as the tests do, call `load`.

Kernels take and return bytes and integers (``cbor`` and ``operations`` the values that CBOR stands
for; ``cbor`` also notes calls, for captures), keep no protocol state and import nothing of culm:
faults in the data are numbers, which `culm.wire` and the protocols turn into errors.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Literal

__all__ = [
    "IMPLEMENTATION",
    "IMPLEMENTATIONS",
    "IMPORT_ERRORS",
    "NAMES",
    "Implementation",
    "cbor",
    "classic",
    "fingerprint",
    "hashing",
    "load",
    "lzfoo",
    "operations",
    "runs",
    "symbols",
    "tree",
    "varu64",
    "xenc",
]

Implementation = Literal["compiled", "pure"]

NAMES = (
    "cbor",
    "classic",
    "fingerprint",
    "hashing",
    "lzfoo",
    "operations",
    "runs",
    "symbols",
    "tree",
    "varu64",
    "xenc",
)
_picked: dict[str, Implementation] = {}
_errors: dict[str, Exception] = {}


def load(name: str, implementation: Implementation) -> ModuleType:
    """One twin of the kernel `name`.

    Raises ``ImportError`` if the compiled one was not built or does not import.
    """
    if name not in NAMES:
        raise ValueError(f"no kernel is named {name!r}")
    if implementation not in ("compiled", "pure"):
        raise ValueError(f"an implementation is compiled or pure, not {implementation!r}")
    prefix = "_" if implementation == "compiled" else "pure_"
    return import_module(f"{__name__}.{prefix}{name}")


def _pick(name: str) -> ModuleType:
    """The twin to use of a kernel, from now on an attribute of this package."""
    try:
        module = load(name, "compiled")
    except Exception as error:
        module = load(name, "pure")
        _picked[name] = "pure"
        # A missing module was not built; any other failure is an error.
        if not isinstance(error, ModuleNotFoundError) or error.name != f"{__name__}._{name}":
            _errors[name] = error
    else:
        _picked[name] = "compiled"
    globals()[name] = module
    # A mixture is told at the first kernel that is unlike the others.
    first_unlike = list(_picked.values()).count(_picked[name]) == 1 < len(_picked)
    if name in _errors or first_unlike:
        warnings.warn(
            f"culm's compiled kernels are not all in use: {_picked}, {_errors}",
            RuntimeWarning,
            stacklevel=3,
        )
    return module


def __getattr__(name: str) -> object:
    if name in NAMES:
        return _pick(name)
    if name not in {"IMPLEMENTATION", "IMPLEMENTATIONS", "IMPORT_ERRORS"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for kernel in NAMES:
        if kernel not in _picked:
            _pick(kernel)
    used = set(_picked.values())
    globals()["IMPLEMENTATION"] = used.pop() if len(used) == 1 else "mixed"
    globals()["IMPLEMENTATIONS"] = _picked
    globals()["IMPORT_ERRORS"] = _errors
    return globals()[name]


if TYPE_CHECKING:
    from culm.kernels import pure_cbor as cbor
    from culm.kernels import pure_classic as classic
    from culm.kernels import pure_fingerprint as fingerprint
    from culm.kernels import pure_hashing as hashing
    from culm.kernels import pure_lzfoo as lzfoo
    from culm.kernels import pure_operations as operations
    from culm.kernels import pure_runs as runs
    from culm.kernels import pure_symbols as symbols
    from culm.kernels import pure_tree as tree
    from culm.kernels import pure_varu64 as varu64
    from culm.kernels import pure_xenc as xenc

    IMPLEMENTATION: Literal["compiled", "pure", "mixed"]
    IMPLEMENTATIONS: dict[str, Implementation]
    IMPORT_ERRORS: dict[str, Exception]
