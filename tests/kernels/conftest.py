"""Every test that uses a kernel runs on both of its implementations."""

from __future__ import annotations

from types import ModuleType

import pytest
from kernel_twins import IMPLEMENTATIONS, twin

from culm.kernels import Implementation


@pytest.fixture(params=IMPLEMENTATIONS, scope="session")
def implementation(request: pytest.FixtureRequest) -> Implementation:
    return request.param


@pytest.fixture(scope="session")
def varu64(implementation: Implementation) -> ModuleType:
    return twin("varu64", implementation)


@pytest.fixture(scope="session")
def cbor(implementation: Implementation) -> ModuleType:
    return twin("cbor", implementation)


@pytest.fixture(scope="session")
def classic(implementation: Implementation) -> ModuleType:
    return twin("classic", implementation)


@pytest.fixture(scope="session")
def fingerprint(implementation: Implementation) -> ModuleType:
    return twin("fingerprint", implementation)


@pytest.fixture(scope="session")
def hashing(implementation: Implementation) -> ModuleType:
    return twin("hashing", implementation)


@pytest.fixture(scope="session")
def tree(implementation: Implementation) -> ModuleType:
    return twin("tree", implementation)


@pytest.fixture(scope="session")
def lzfoo(implementation: Implementation) -> ModuleType:
    return twin("lzfoo", implementation)


@pytest.fixture(scope="session")
def runs(implementation: Implementation) -> ModuleType:
    return twin("runs", implementation)


@pytest.fixture(scope="session")
def operations(implementation: Implementation) -> ModuleType:
    return twin("operations", implementation)


@pytest.fixture(scope="session")
def operations_twins() -> tuple[ModuleType, ModuleType]:
    return twin("operations", "compiled"), twin("operations", "pure")


@pytest.fixture(scope="session")
def symbols(implementation: Implementation) -> ModuleType:
    return twin("symbols", implementation)


@pytest.fixture(scope="session")
def symbols_twins() -> tuple[ModuleType, ModuleType]:
    return twin("symbols", "compiled"), twin("symbols", "pure")


@pytest.fixture(scope="session")
def varu64_twins() -> tuple[ModuleType, ModuleType]:
    return twin("varu64", "compiled"), twin("varu64", "pure")


@pytest.fixture(scope="session")
def lzfoo_twins() -> tuple[ModuleType, ModuleType]:
    return twin("lzfoo", "compiled"), twin("lzfoo", "pure")


@pytest.fixture(scope="session")
def runs_twins() -> tuple[ModuleType, ModuleType]:
    return twin("runs", "compiled"), twin("runs", "pure")


@pytest.fixture(scope="session")
def fingerprint_twins() -> tuple[ModuleType, ModuleType]:
    return twin("fingerprint", "compiled"), twin("fingerprint", "pure")


@pytest.fixture(scope="session")
def tree_twins() -> tuple[ModuleType, ModuleType]:
    return twin("tree", "compiled"), twin("tree", "pure")


@pytest.fixture(scope="session")
def classic_twins() -> tuple[ModuleType, ModuleType]:
    return twin("classic", "compiled"), twin("classic", "pure")


@pytest.fixture(scope="session")
def cbor_twins() -> tuple[ModuleType, ModuleType]:
    return twin("cbor", "compiled"), twin("cbor", "pure")
