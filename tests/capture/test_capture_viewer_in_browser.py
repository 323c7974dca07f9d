"""The viewer's page in a real browser; runs in `tox -e site`, where there is one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from culm.capture import Recorder, Step, read
from culm.capture.view import page
from culm.machines import lookup

sys.path.append(str(Path(__file__).resolve().parents[2] / "docs"))

pytest.importorskip("playwright.sync_api", reason="tox -e site installs playwright")
import browse_site
import picture_captures
from test_capture_viewer import data_of

WIDE, NARROW = (1280, 900), (390, 844)
MANY = 100_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browse_site.chromium() as opened:
        if opened is None:
            pytest.skip("no browser")
        yield opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


Opener = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, folder: Path) -> Iterator[Opener]:
    """Opens a text as a page; nothing in it may fail, or load from elsewhere."""
    wrong: list[str] = []
    contexts: list[Any] = []

    def open_page(name: str, text: str, size: tuple[int, int] = WIDE) -> Any:
        path = folder / f"{name}.html"
        path.write_text(text, encoding="utf-8")
        contexts.append(
            browser.new_context(viewport={"width": size[0], "height": size[1]}, offline=True)
        )
        made = contexts[-1].new_page()
        made.on("pageerror", lambda error: wrong.append(str(error)))
        made.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        made.on("request", lambda request: wrong.extend(left(request.url, path)))
        made.goto(path.as_uri())
        made.wait_for_selector("[data-ready]", state="attached", timeout=60_000)
        return made

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def left(url: str, path: Path) -> list[str]:
    return [] if url == path.as_uri() or url.startswith(("data:", "blob:")) else [url]


@pytest.fixture(scope="module")
def conversation() -> str:
    return picture_captures.shown()


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_nothing_is_beside_the_screen(
    opened: Opener, conversation: str, size: tuple[int, int]
) -> None:
    shown = opened("both", conversation, size)
    assert shown.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert shown.locator("h1").inner_text() == "point2point-replicator"
    assert shown.locator(".lane").count() == 2
    shown.click("#fault")
    assert shown.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_the_first_fault_is_one_click_away_and_named(opened: Opener, conversation: str) -> None:
    shown = opened("both", conversation)
    assert shown.inner_text("#fault").strip() == "3 faults"
    shown.click("#fault")
    assert "UNKNOWN_PACKET_TYPE" in shown.locator(".trouble").first.inner_text()
    assert shown.locator(".kind").inner_text().lower() == "received"
    states = shown.locator(".lane .state").all_inner_texts()
    assert states == ["ESTABLISHED", "ESTABLISHED"]
    assert all("deadline in" in each for each in shown.locator(".lane .deadline").all_inner_texts())


def test_a_step_is_found_and_its_bytes_have_fields(opened: Opener, conversation: str) -> None:
    shown = opened("both", conversation)
    shown.fill("#search", "expected_hash")
    shown.press("#search", "Enter")
    assert shown.inner_text("#found").startswith("1 / ")
    field = shown.locator(".fields .row", has_text="expected_hash").first
    field.click()
    size = sum(len(each.split()) for each in shown.locator(".hex .on").all_inner_texts())
    assert size == 66
    shown.locator(".hex span[data-leaf]").first.click()
    assert shown.locator(".fields .on").count() == 1
    assert "header" in shown.locator(".fields .on > .row").inner_text()


def test_what_was_sent_leads_to_where_it_arrives(opened: Opener, conversation: str) -> None:
    shown = opened("both", conversation)
    shown.press("#scroll", "Home")
    first = shown.locator(".when").first.inner_text()
    assert first.startswith("Step ")
    assert "of alice" in first
    shown.locator(".goes button").click()
    assert "of bob" in shown.locator(".when").first.inner_text()
    shown.locator(".goes button").click()
    assert shown.locator(".when").first.inner_text() == first


def test_steps_are_chosen_by_kind_and_by_time(opened: Opener, conversation: str) -> None:
    shown = opened("both", conversation)
    height = shown.evaluate("document.getElementById('space').offsetHeight")
    shown.locator("#kinds button", has_text="Effects").click()
    assert shown.evaluate("document.getElementById('space').offsetHeight") < height
    shown.click("#by-time")
    assert shown.get_attribute("#by-time", "aria-pressed") == "true"
    before = shown.evaluate("document.getElementById('space').offsetHeight")
    shown.click("#closer")
    assert shown.evaluate("document.getElementById('space').offsetHeight") > before


def test_what_a_peer_sends_is_text_and_nothing_else(opened: Opener) -> None:
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append, machine="ssb-muxrpc", session="</script><b>x")
    machine: Any = recorder.stand_in(lookup("ssb-muxrpc").make({}))
    body = b'"</script><img src=x onerror=alert(1)>{{script}}"'
    machine.receive_data(b"\2" + len(body).to_bytes(4, "big") + b"\0\0\0\1" + body)
    while machine.next_event() is not None:
        pass
    recorder.flush()
    shown = opened("hostile", page({"</script><i>": partial(read, b"".join(pieces))}))
    shown.press("#scroll", "Home")
    assert shown.locator("img").count() == 0
    assert "<img src=x onerror=alert(1)>" in shown.inner_text("#step")


def many_steps(count: int) -> str:
    """A capture of so many steps, as a long connection leaves it."""
    pieces: list[bytes] = []
    recorder = Recorder(pieces.append, machine="bymux", config={"role": "REACTIVE"})
    recorder.flush()
    for _ in range(count // 2):
        recorder.put(Step(0.001, 0, "receive_data", [b"\x00\x01\x05"], {}, None))
        recorder.put(Step(0.0005, 0, "data_to_send", [], {}, b"\x80\x01"))
    recorder.flush()
    return page({"long": partial(read, b"".join(pieces))}, count=count)


def heap_of(shown: Any) -> int:
    """Bytes of JavaScript that are in use."""
    session = shown.context.new_cdp_session(shown)
    session.send("Performance.enable")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return int(next(each["value"] for each in metrics if each["name"] == "JSHeapUsedSize"))


@pytest.mark.parametrize("count", [MANY, pytest.param(10 * MANY, marks=pytest.mark.slow)])
def test_many_steps_are_scrolled_without_stutter(opened: Opener, count: int) -> None:
    """Each frame draws what is seen, however much there is: its work is counted, not its time."""
    text = many_steps(count)
    _, most, total = data_of(text)["window"]
    assert total == count
    assert most == count or most > 7 * MANY  # where there is no room for more
    shown = opened(f"many-{count}", text)
    assert f"{most:,}" in shown.inner_text("#about")
    for part in (0, 0.3, 0.77, 1):
        shown.evaluate(
            """part => { const it = document.getElementById('scroll');
                it.scrollTop = part * it.scrollHeight; }""",
            part,
        )
        shown.wait_for_timeout(100)
        first, last = map(int, shown.get_attribute("#diagram", "data-rows").split("-"))
        assert 0 < last - first < 100
        assert abs(first - part * (most - 25)) < most * 0.01
    shown.press("#scroll", "End")
    assert f"Step {most}" in shown.locator(".when").first.inner_text()
    print(f"{count} steps: {heap_of(shown) >> 20} MiB of heap")
    assert heap_of(shown) < (1 << 25) + 512 * count
