"""A module that some system of a family could not load is found before its wheel is tagged."""

from __future__ import annotations

import dataclasses

import pytest
from wheel_parts import TARGETS, Module

GNU, MUSL = TARGETS
GOOD_GNU = Module(
    "culm/kernels/_varu64.cpython-311-x86_64-linux-gnu.so",
    needed=frozenset({"libc.so.6"}),
    glibc_versions=frozenset({(2, 2, 5), (2, 14)}),
)
GOOD_MUSL = Module(
    "culm/kernels/_varu64.cpython-311-x86_64-linux-musl.so", needed=frozenset({"libc.so"})
)


def test_what_is_right_has_no_fault():
    assert list(GNU.faults(GOOD_GNU)) == []
    assert list(MUSL.faults(GOOD_MUSL)) == []


def test_a_python_is_told_from_the_same_one_on_another_libc():
    gnu, musl = "cpython-311-x86_64-linux-gnu", "cpython-311-x86_64-linux-musl"
    assert MUSL.soabi(gnu) == MUSL.soabi(musl) == musl
    assert GNU.soabi(gnu) == gnu


@pytest.mark.parametrize(
    ("target", "module", "change", "fault"),
    [
        (GNU, GOOD_GNU, {"needed": frozenset({"libsodium.so.23"})}, "needs libsodium.so.23"),
        (GNU, GOOD_GNU, {"glibc_versions": frozenset({(2, 18)})}, "needs glibc 2.18"),
        (GNU, GOOD_GNU, {"debug_sections": frozenset({".debug_info"})}, "is not stripped"),
        (GNU, GOOD_GNU, {"name": GOOD_MUSL.name}, "is not looked for by a Python on gnu"),
        (
            GNU,
            GOOD_GNU,
            {"name": GOOD_GNU.name.replace(".cpython", "cpython")},
            "is not looked for by a Python on gnu",
        ),
        (MUSL, GOOD_MUSL, {"needed": frozenset({"libc.so.6"})}, "needs libc.so.6"),
        (MUSL, GOOD_MUSL, {"glibc_versions": frozenset({(2, 14)})}, "needs glibc 2.14"),
        (MUSL, GOOD_MUSL, {"name": GOOD_GNU.name}, "is not looked for by a Python on musl"),
    ],
)
def test_each_fault_is_found(target, module, change, fault):
    (found,) = target.faults(dataclasses.replace(module, **change))
    assert found.endswith(fault)
