"""Takes the pictures of the playground that the docs show: ``python docs/picture_playground.py``.

It needs what ``browse_site.py`` needs, and Pyodide where ``playground.site`` looks for it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from browse_site import chromium, served
from picture_captures import SCHEMES, WINDOW
from playground import site

RUNS = "document.getElementById('engine').textContent.includes('runs in this page')"


def write_alone(folder: Path) -> bool:
    """Write a site of the playground alone; returns whether Pyodide is in it."""
    (folder / "_static").mkdir()
    logo = (Path(__file__).with_name("static") / "logo.svg").read_bytes()
    (folder / "_static" / "logo.svg").write_bytes(logo)
    return site.write(folder / "playground")


def main(pictures: Path) -> int:
    """Take all pictures; returns the exit status."""
    with TemporaryDirectory() as folder, chromium() as browser:
        if browser is None or not write_alone(Path(folder)):
            print("there is no browser, or no Pyodide")
            return 1
        with served(Path(folder)) as home:
            for scheme, suffix in SCHEMES.items():
                opened = browser.new_page(
                    viewport={"width": WINDOW[0], "height": WINDOW[1]},
                    color_scheme="dark" if scheme == "dark" else "light",
                )
                opened.goto(f"{home}playground/index.html#raft-leader-killed/0")
                opened.wait_for_function(RUNS)
                voted = opened.locator("#log li", has_text="RoleChanged LEADER 2")
                opened.keyboard.press("End")
                voted.click()
                opened.mouse.move(0, 0)
                opened.wait_for_timeout(400)
                opened.screenshot(path=pictures / f"playground{suffix}.png")
    return 0


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("pictures")
    sys.exit(main(Path(where)))
