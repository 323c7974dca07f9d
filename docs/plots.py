"""Sphinx extension: ``plot`` draws what a benchmark has found, and says when and how.

The figures are those in ``benchmarks/recorded.json``, and are changed there.  Like a diagram, a
plot is two pictures: one for light and one for dark pages.  ``claims`` is the table of what
``benchmarks/compare.py`` has measured.
"""

from __future__ import annotations

import html
import json
import sys
from pathlib import Path

from docutils import nodes
from offline import show
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from plot_recorded import RECORDED, Plot, drawn, recorded

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "compare.json"
THEMES = {"light": "only-light", "dark": "only-dark"}


def in_words(plot: Plot) -> str:
    """What the plot shows, for those who cannot see it."""
    parts = [
        f"{group}: "
        + ", ".join(
            f"{name} {figures[number]:,g}" if len(plot.series) > 1 else f"{figures[number]:,g}"
            for name, figures in plot.series.items()
        )
        for number, group in enumerate(plot.groups)
    ]
    return f"{plot.title}, in {plot.axis}. {'; '.join(parts)}."


class PlotDirective(SphinxDirective):
    """A plot by its name, and below it when, where and by which command it was measured."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Draw it in both themes."""
        self.env.note_dependency(str(RECORDED))
        plot = recorded()[self.arguments[0]]
        alt = html.escape(in_words(plot))
        pictures = [
            show(self.env, f"plots/{plot.name}-{theme}.svg", drawn(plot, theme), shown, alt)
            for theme, shown in THEMES.items()
        ]
        listed = nodes.bullet_list()
        for each in plot.measured:
            words = nodes.paragraph(
                "", "", nodes.Text(f"{each.what}: {each.date}, {each.machine}, ")
            )
            words += nodes.literal("", each.command)
            listed += nodes.list_item("", words)
        return [*pictures, listed]


def in_short(number: float) -> str:
    """The number with four digits that count."""
    return f"{float(f'{number:.4g}'):,.10g}"


class ClaimsDirective(SphinxDirective):
    """The claims of ``benchmarks/results/compare.json``, each beside its peer.

    Below the table: the functions that take the time where a target is missed.
    """

    def run(self) -> list[nodes.Node]:
        """Make the table and the list."""
        self.env.note_dependency(str(RESULTS))
        claims = json.loads(RESULTS.read_text(encoding="utf-8"))["claims"]
        rows = ["| Claim | culm | Beside | Ratio | Target |", "| --- | ---: | --- | ---: | --- |"]
        for found in claims:
            target = f"{'at most' if found['at_most'] else 'at least'} {found['target']:.3g}"
            rows.append(
                f"| {found['claim']} | {in_short(found['ours'])} {found['unit']} "
                f"| {in_short(found['peer'])}, {found['peer_name']} | {found['ratio']:.2f} "
                f"| {target}{'' if found['met'] else ': missed'} |"
            )
        rows.append("")
        for found in claims:
            if not found["met"] and (profile := found.get("profile")):
                parts = (f"`{name}` {part:.1%}" for name, part in profile.items())
                rows.append(f"- {found['claim']}: {', '.join(parts).replace('`others`', 'others')}")
        return self.parse_text_to_nodes("\n".join(rows))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("plot", PlotDirective)
    app.add_directive("claims", ClaimsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
