"""Takes the pictures of reports that the docs show: ``python docs/picture_reports.py demo-spark``.

The directory is what `tox run -e demo-spark` leaves. It needs what ``browse_site.py`` needs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from browse_site import chromium

# Reports, pictures of them, and the part of the page that is shown: from which heading to which.
SHOWN = (
    ("directory-damaged", "report-audit", "h1", "h2:nth-of-type(2)"),
    ("feed-damaged", "report-feed", "h1", "h2:nth-of-type(2)"),
    ("directory-compared", "report-compared", "h2:nth-of-type(2)", "h2:nth-of-type(3)"),
)
WIDTH, MARGIN = 1000, 16
# What the names of pictures end with, for light pages and for dark ones (`offline`).
SCHEMES = {"light": "", "dark": "-dark"}


def main(reports: Path) -> int:
    """Take all pictures; returns the exit status."""
    pictures = Path(__file__).with_name("pictures")
    with chromium() as browser:
        if browser is None:
            print("there is no browser")
            return 1
        for scheme, suffix in SCHEMES.items():
            page = browser.new_page(viewport={"width": WIDTH, "height": 600}, color_scheme=scheme)
            for report, picture, first, last in SHOWN:
                page.goto((reports / report / "report.html").resolve().as_uri())
                begin, end = (
                    page.evaluate(f"document.querySelector('{each}').getBoundingClientRect().top")
                    for each in (first, last)
                )
                page.screenshot(
                    path=pictures / f"{picture}{suffix}.png",
                    full_page=True,
                    clip={"x": 0, "y": begin - MARGIN, "width": WIDTH, "height": end - begin},
                )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
