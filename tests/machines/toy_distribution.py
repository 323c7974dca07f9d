"""The toys as another package that registers its machines by entry points."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def install(folder: Path) -> list[str]:
    """Make `folder` look like an installed package; returns the additions to ``sys.path``."""
    info = folder / "toys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[culm.machines]\n"
        "keeper = toy_machines:KEEPER.machine\n"
        "lines = toy_machines:LINES.machine\n"
        "pinger = toy_machines:PINGER.machine\n"
        "self-registered = toy_registers\n"
        "[culm.specs]\n"
        "keeper = toy_machines:KEEPER\n"
        "lines = toy_machines:LINES\n"
        "unsteady = toy_unsteady:UNSTEADY\n"
        "self-registered = toy_registers\n"
    )
    (folder / "toy_registers.py").write_text(
        "from culm.testing.registry import register\n"
        "from spec_changes import spec_with\n"
        "from toy_machines import LANES\n"
        "register(spec_with(LANES, name='registers-itself'))\n"
    )
    (folder / "toy_unsteady.py").write_text(
        "from spec_changes import spec_with\n"
        "from toy_machines import LINES, LineReceived, Lines\n"
        "class Unsteady(Lines):\n"
        "    def _step(self):\n"
        "        event = super()._step()\n"
        "        if isinstance(event, LineReceived):\n"
        "            return LineReceived(text=' '.join({'a', 'b', 'c', 'd', 'e'}).encode())\n"
        "        return event\n"
        "UNSTEADY = spec_with(LINES, name='unsteady', build=lambda config: Unsteady())\n"
    )
    return [str(folder), str(TESTS)]
