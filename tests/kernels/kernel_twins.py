"""The kernels, and the codecs on them, on the implementation of a test's choice."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

from culm import kernels

IMPLEMENTATIONS = ("compiled", "pure")

# Set where the extensions have been built: there, a missing one is a failure.
REQUIRED = os.environ.get("CULM_REQUIRE_COMPILED") == "1"


def twin(name: str, implementation: kernels.Implementation) -> ModuleType:
    """One twin of a kernel; skips the test if it was not built."""
    try:
        return kernels.load(name, implementation)
    except ModuleNotFoundError as error:
        message = f"culm.kernels._{name} is not built"
        if REQUIRED:
            raise AssertionError(message) from error
        pytest.skip(message)


@cache
def codec(name: str, implementation: kernels.Implementation) -> ModuleType:
    """A copy of ``culm.wire.<name>`` that runs on one twin."""
    kernel = twin(name, implementation)
    spec = importlib.util.find_spec(f"culm.wire.{name}")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.object(kernels, name, kernel):
        spec.loader.exec_module(module)
    return module


def freeze(module: ModuleType, view: Any, kind: int, size: int, varying: bool) -> Any:
    """A frozen tree, built from the description that `view` gives of itself."""
    count = len(view)
    lowest, states = view.blocks(0, -(-count // module.BLOCK) + 1)
    parts = view.slots(0, count), view.shorts(0, count), lowest, states
    return module.Frozen(kind, size, varying, count, *parts)
