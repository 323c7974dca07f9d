"""culm's own machines as the suite checks them: conversations, hostile peers, bounds.

Each module registers the specs of one protocol.  ``python -m culm.testing.campaign NAME --specs
tests/specs`` searches one of them at length.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from culm.testing.registry import spec_of, specs

__all__ = ["SPECS", "spec_of"]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)

SPECS = specs()
