"""Kernels for the benchmarks, and samples to run them on."""

from __future__ import annotations

import pytest

from culm import kernels
from samples import SAMPLES, numbers

SIZE = 1 << 20


@pytest.fixture(params=["text", "log", "random"], scope="session")
def sample(request: pytest.FixtureRequest) -> bytes:
    return SAMPLES[request.param](SIZE)


@pytest.fixture(scope="session")
def values() -> list[int]:
    return numbers(100_000)


def pytest_report_header() -> str:
    return f"culm's kernels: {kernels.IMPLEMENTATION}"
