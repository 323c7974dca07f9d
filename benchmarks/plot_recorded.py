"""Draws the results of benchmarks: the plots of docs/benchmarks.md, from recorded.json.

    python benchmarks/plot_recorded.py FOLDER

writes two pictures of each plot, for light and for dark pages; it needs matplotlib.  Nothing is
measured here.  New measurements are written into recorded.json, with their date, machine and
command; the site draws its plots from there whenever it is built.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

RECORDED = Path(__file__).with_name("recorded.json")
BAR = 0.8  # of a group's height
# Ink on the page, and a colour for each series: every one stands out from its page and from its
# neighbours, even to readers who cannot tell red from green.
THEMES = {
    "light": ("#24292f", ("#1f6fb2", "#d9730d", "#6b7280", "#8a4fa3")),
    "dark": ("#d7dce2", ("#5aa9e6", "#f2a154", "#9aa4b2", "#c792ea")),
}
INK_ON_BARS = {"light": "white", "dark": "black"}


@dataclass(frozen=True, slots=True)
class Measured:
    """The origin of figures: the work, the date (ISO), the machine, the command."""

    what: str
    date: str
    machine: str
    command: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Bars in groups: each series has a figure for each group, in the unit that `axis` names."""

    name: str
    title: str
    axis: str
    groups: Sequence[str]
    series: dict[str, Sequence[float]]
    measured: Sequence[Measured]
    logarithmic: bool = False
    stacked: bool = False

    def __post_init__(self) -> None:
        if any(len(figures) != len(self.groups) for figures in self.series.values()):
            raise ValueError(f"{self.name}: as many figures in each series as there are groups")


@cache
def recorded() -> dict[str, Plot]:
    """All plots, by name."""
    plots = json.loads(RECORDED.read_text(encoding="utf-8"))
    made = (
        Plot(**{**plot, "measured": [Measured(*m) for m in plot["measured"]]}) for plot in plots
    )
    return {plot.name: plot for plot in made}


def drawn(plot: Plot, theme: str) -> str:
    """The plot as SVG, without a background; the same in each run."""
    ink, colours = THEMES[theme]
    rows = len(plot.groups) * (1 if plot.stacked else len(plot.series))
    # Text stays text, which can be searched and enlarged.
    settings = {"svg.hashsalt": "culm", "svg.fonttype": "none", "font.size": 10}
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    with rc_context({**settings, **dict.fromkeys(inks, ink)}):
        figure = Figure(figsize=(8, 1.1 + 0.27 * (rows + len(plot.groups))), layout="constrained")
        axes = figure.subplots()
        _draw_bars(axes, plot, colours, INK_ON_BARS[theme])
        axes.set_yticks(range(len(plot.groups)), plot.groups, parse_math=False)
        axes.invert_yaxis()
        axes.set_xlabel(plot.axis)
        axes.spines[["top", "right"]].set_visible(False)
        if len(plot.series) > 1:
            figure.legend(loc="outside upper left", ncols=len(plot.series), frameon=False)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    text = file.getvalue()
    return text[text.index("<svg") :]


def _draw_bars(axes: Axes, plot: Plot, colours: Sequence[str], ink: str) -> None:
    height = BAR if plot.stacked else BAR / len(plot.series)
    below = [0.0] * len(plot.groups)
    for number, ((name, figures), colour) in enumerate(
        zip(plot.series.items(), colours, strict=False)
    ):
        shift = 0.0 if plot.stacked else (number + 0.5) * height - BAR / 2
        places = [group + shift for group in range(len(plot.groups))]
        bars = axes.barh(places, figures, height, left=below, color=colour, label=name)
        if plot.stacked:
            axes.bar_label(bars, label_type="center", color=ink)
            below = [one + more for one, more in zip(below, figures, strict=True)]
        else:
            axes.bar_label(bars, labels=[f" {figure:,g}" for figure in figures])
    if plot.logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,g}")
    axes.margins(x=0.12, y=0.02)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for plot in recorded().values():
        for theme in THEMES:
            target = folder / f"{plot.name}-{theme}.svg"
            target.write_text(drawn(plot, theme), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
