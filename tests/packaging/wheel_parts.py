"""The demands of a wheel's extension modules on the machine they are installed on."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Target:
    """A family of Linux systems that one wheel is for.

    `libraries` names those that its modules may need, `glibc_max` is the newest version of glibc's
    symbols that the oldest of these systems has; ``None``: no glibc at all.
    """

    libc: str
    platform: str
    zig: str
    libraries: frozenset[str]
    glibc_max: tuple[int, ...] | None

    def soabi(self, other: str) -> str:
        """The suffix for the same Python there, from its suffix on another Linux system."""
        return re.sub(r"-linux-\w+", f"-linux-{self.libc}", other)

    def faults(self, module: Module) -> Iterator[str]:
        """Reasons why the module would not load on some of these systems."""
        for library in module.needed - self.libraries:
            yield f"{module.name} needs {library}"
        for version in module.glibc_versions:
            if self.glibc_max is None or version > self.glibc_max:
                yield f"{module.name} needs glibc {'.'.join(map(str, version))}"
        if not re.search(rf"\w\.cpython-\d+-\w+-linux-{self.libc}\.so$", module.name):
            yield f"{module.name} is not looked for by a Python on {self.libc}"
        if module.debug_sections:
            yield f"{module.name} is not stripped"


@dataclass(frozen=True, slots=True)
class Module:
    """An extension module, as described by its ELF file."""

    name: str
    needed: frozenset[str] = frozenset()
    glibc_versions: frozenset[tuple[int, ...]] = frozenset()
    undefined: frozenset[str] = field(default=frozenset(), repr=False)
    debug_sections: frozenset[str] = frozenset()


TARGETS = (
    Target(
        "gnu",
        "manylinux_2_17_{machine}",
        "{machine}-linux-gnu.2.17",
        frozenset({"libc.so.6"}),
        (2, 17),
    ),
    # The name that musl's loader has for itself.
    Target("musl", "musllinux_1_2_{machine}", "{machine}-linux-musl", frozenset({"libc.so"}), None),
)


def modules_in(wheel: Path) -> list[Module]:
    """The extension modules of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".so"))
        return [read_module(name, archive.read(name)) for name in names]


def read_module(name: str, content: bytes) -> Module:
    """The description of an extension module in its ELF file."""
    # pyelftools is installed only where wheels are built.
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerNeedSection
    from elftools.elf.sections import SymbolTableSection

    needed: set[str] = set()
    versions: set[tuple[int, ...]] = set()
    undefined: set[str] = set()
    debug: set[str] = set()
    for section in ELFFile(io.BytesIO(content)).iter_sections():
        if isinstance(section, DynamicSection):
            needed |= {tag.needed for tag in section.iter_tags("DT_NEEDED")}
        elif isinstance(section, GNUVerNeedSection):
            for _, wanted in section.iter_versions():
                found = (re.fullmatch(r"GLIBC_([\d.]+)", version.name) for version in wanted)
                versions |= {tuple(map(int, match[1].split("."))) for match in found if match}
        elif isinstance(section, SymbolTableSection):
            undefined |= {
                symbol.name
                for symbol in section.iter_symbols()
                if symbol["st_shndx"] == "SHN_UNDEF"
                and symbol["st_info"]["bind"] == "STB_GLOBAL"
                and symbol.name
            }
        if section.name.startswith((".debug", ".symtab")):
            debug.add(section.name)
    parts = (needed, versions, undefined, debug)
    return Module(name, *map(frozenset, parts))
