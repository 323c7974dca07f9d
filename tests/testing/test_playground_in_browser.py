"""The playground in a real browser, with Pyodide; runs in `tox -e playground`, where both are."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.append(str(DOCS))

pytest.importorskip("playwright.sync_api", reason="tox -e playground installs playwright")
import browse_site  # noqa: E402
from picture_playground import RUNS, write_alone  # noqa: E402
from playground.history import history, told  # noqa: E402
from playground.scenarios import SCENARIOS  # noqa: E402

WIDE, NARROW = (1280, 900), (390, 844)
PATIENCE_MS = 120_000
PAGE = "playground/index.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browse_site.chromium() as opened:
        if opened is None:
            pytest.skip("no browser: apt install chromium-headless-shell, or name it: CULM_BROWSER")
        yield opened


def write(folder: Path) -> bool:
    """A site of the playground alone."""
    (folder / "playground.html").write_text("<h1>About</h1>")
    return write_alone(folder)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    if not write(folder):
        pytest.skip("no Pyodide: CULM_PYODIDE=fetch has npm bring it into the cache")
    with browse_site.served(folder) as address:
        yield address


Opener = Callable[..., Any]


@pytest.fixture(scope="module")
def opened(browser: Any, home: str) -> Iterator[Opener]:
    """Opens the playground at an address; nothing in it may fail, or load from elsewhere."""
    wrong: list[str] = []
    contexts: list[Any] = []

    def left(url: str) -> list[str]:
        return [] if url.startswith((home, "data:", "blob:")) else [url]

    def open_page(place: str = "", size: tuple[int, int] = WIDE, python: bool = True) -> Any:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, reduced_motion="reduce"
        )
        contexts.append(context)
        made = context.new_page()
        made.set_default_timeout(PATIENCE_MS)
        made.on("pageerror", lambda error: wrong.append(str(error)))
        made.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        made.on("request", lambda request: wrong.extend(left(request.url)))
        made.goto(f"{home}{PAGE}{place}")
        made.wait_for_selector("[data-ready]")
        if python:
            made.wait_for_function(RUNS)
        return made

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def page(opened: Opener) -> Any:
    """One page for all tests: Python takes a while to start."""
    return opened()


def visit(page: Any, place: str) -> Any:
    """Go to a conversation, a step and changes by the address alone."""
    wanted = " ".join(place.split("/")[2:]) or "plain"
    page.evaluate(
        """place => { if (location.hash === `#${place}`) return;
            delete document.body.dataset.ready; location.hash = place; }""",
        place,
    )
    page.wait_for_selector(f'[data-ready="{wanted}"]', state="attached")
    return page


def changed(page: Any) -> str:
    """The changes in the address."""
    return str(page.evaluate("location.hash")).partition("/")[2].partition("/")[2]


def at(page: Any) -> int:
    return int(page.evaluate("location.hash.split('/')[1]"))


def test_the_first_conversation_is_there_before_python_is(opened: Opener) -> None:
    page = opened(python=False)
    assert page.inner_text("#title") == "An election"
    assert page.locator("#log li").count() == len(history("raft-election")["steps"])


def test_keys_go_from_step_to_step_and_back(page: Any) -> None:
    visit(page, "raft-election/0")
    last = len(history("raft-election")["steps"]) - 1
    keys = {"ArrowRight": 1, "ArrowDown": 2, "ArrowLeft": 1, "End": last, "Home": 0}
    for key, step in [*keys.items(), ("ArrowRight", 1)]:
        page.keyboard.press(key)
        page.wait_for_function("step => location.hash.split('/')[1] == step", arg=step)
    assert page.inner_text("#step h2") == "n3 has a deadline"
    assert "RoleChanged" in page.inner_text("#step")
    assert page.locator("#stage .member.acts .called").text_content() == "n3"


def test_it_plays_to_the_end_and_stops(page: Any) -> None:
    last = len(history("bymux-credit")["steps"]) - 1
    visit(page, f"bymux-credit/{last - 2}")
    page.keyboard.press(" ")
    page.wait_for_function("n => location.hash.split('/')[1] == n", arg=last)
    page.wait_for_selector("#play:not(.playing)")


def test_a_datagram_is_lost_and_comes_again(page: Any) -> None:
    messages = history("oxen-join")["messages"]
    said = next(each for each in messages if each["label"] == "Broadcast")
    visit(page, f"oxen-join/{said['sent']}")
    page.locator("#step .goes button", has_text="Broadcast").click()
    page.locator(".choices button", has_text="Lose it").click()
    page.wait_for_function("location.hash.includes('drop-')")
    page.locator("#log li.lost").first.wait_for()
    found = history("oxen-join", [changed(page)])
    assert found["messages"][said["number"]]["fate"] == "lost"
    page.locator("#log li", has_text="Ada says 1").first.wait_for()
    assert "lost" in page.inner_text("#changes")
    page.keyboard.press("u")
    page.wait_for_function("!location.hash.includes('drop-')")
    assert page.locator("#changes li").count() == 0


def test_a_byte_is_changed_and_its_error_is_an_event(page: Any) -> None:
    visit(page, "bymux-credit/5")
    page.locator(".byte").nth(1).click()
    assert "stream_id" in page.inner_text(".fields .on > .row")
    page.fill(".editor input", "09")
    page.press(".editor input", "Enter")
    page.wait_for_function("location.hash.endsWith('byte-1-1-9')")
    page.locator("#log .event", has_text="UNKNOWN_STREAM").first.click()
    page.wait_for_function("document.querySelector('#step').innerText.includes('Closed')")


def test_a_leader_is_killed_and_another_leads(page: Any) -> None:
    visit(page, "raft-election/22")
    page.locator("#stage .member.leads").click()
    name = page.inner_text("#step h2")
    page.locator(".choices button", has_text="Kill it").click()
    page.locator("#log li.dies").wait_for()
    page.keyboard.press("End")
    page.locator("#stage .member.leads").wait_for()
    assert page.locator("#stage .member.dead .called").text_content() == name
    assert page.locator("#stage .member.leads .called").text_content() != name
    page.locator("#stage .member.dead").click()
    page.locator(".choices button", has_text="Start it").click()
    page.locator("#log li.starts").wait_for()
    assert page.locator("#changes li").count() == 2


def test_an_earlier_change_makes_a_new_future(page: Any) -> None:
    visit(page, "raft-election/22/kill-n3-22")
    page.locator("#log li").nth(4).click()
    page.keyboard.press("b")
    page.wait_for_function("location.hash.includes('break-')")
    assert changed(page).startswith("break-")
    assert "kill" not in changed(page)


def test_a_link_shows_what_was_seen(opened: Opener, page: Any) -> None:
    visit(page, "oxen-loss/20/twice-10")
    seen = page.inner_text("#log"), page.inner_text("#step"), page.inner_text("#changes")
    other = opened("#oxen-loss/20/twice-10")
    other.wait_for_selector('[data-ready="twice-10"]')
    found = other.inner_text("#log"), other.inner_text("#step"), other.inner_text("#changes")
    assert found == seen


@pytest.mark.parametrize(
    "place", ["nothing/9", "raft-election/x/y", "raft-election/999", "raft-election/-4/<b>", "/"]
)
def test_an_address_that_means_nothing_shows_what_there_is(page: Any, place: str) -> None:
    visit(page, "oxen-join/3")
    page.evaluate("place => { location.hash = place; }", place)
    page.wait_for_function("document.getElementById('title').innerText === 'An election'")
    assert page.locator("#log .here").count() == 1


def test_a_change_of_what_was_never_sent_says_so(page: Any) -> None:
    visit(page, "oxen-join/3/drop-999")
    assert page.inner_text("#engine") == "Nothing changed: message 999 was never sent."


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_python_in_the_browser_tells_the_same_to_the_byte(page: Any, name: str) -> None:
    """Like CPython here, with another version of Python and other hash seeds."""
    changes = [[each["change"]] for each in history(name)["tries"]]
    ask = """async ([name, changes]) => {
        const { history } = await import('./engine.js');
        return JSON.stringify(await history(name, changes)); }"""
    for each in changes:
        assert json.loads(page.evaluate(ask, [name, each])) == json.loads(told(name, each))


SIZES = {"wide": WIDE, "middle": (900, 700), "narrow": NARROW, "lying": (844, 390)}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_nothing_is_beside_the_screen(opened: Opener, size: tuple[int, int]) -> None:
    page = opened("#raft-partition/120", size, python=False)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate("document.documentElement.scrollHeight") <= size[1]
    clock, around = (page.locator(each).bounding_box() for each in ("#clock", "#transport"))
    words = page.evaluate("document.getElementById('clock').scrollWidth")
    assert clock["x"] + words <= around["x"] + around["width"] + 1
    if size in (NARROW, SIZES["lying"]):
        for name in ("steps", "detail", "try"):
            page.locator(f'[data-pane="{name}"][role=tab]').click()
            assert page.locator(f"#{name}").is_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_without_pyodide_one_steps_and_is_told_why_nothing_changes(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CULM_PYODIDE", "no")
    assert not write(tmp_path)
    with browse_site.served(tmp_path) as address:
        page = browser.new_page()
        page.goto(f"{address}{PAGE}?oxen-loss")
        page.wait_for_selector("[data-ready]", state="attached")
        assert page.inner_text("#title") == "Three in ten are lost"
        page.keyboard.press("End")
        assert at(page) == len(history("oxen-loss")["steps"]) - 1
        assert "built without Pyodide" in page.inner_text("#engine")
        assert page.locator(".choices").count() == 0
        assert page.locator("#tries button").first.is_disabled()
        page.close()
