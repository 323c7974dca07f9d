"""The note of a failure replays in the line driver, and shows the fault there."""

from __future__ import annotations

import json
from collections.abc import Callable

import broken_answers  # noqa: F401
import pytest
from broken_machines import CANARIES
from test_suite import LAWS

from culm.machines import Receive
from culm.machines.lines import LineDriver
from culm.machines.plain import JSON, from_plain
from culm.testing.spec import Conversation
from culm.testing.suite.runs import NOTE_LINES_MAX, retold
from toy_machines import LINES

Lines = list[dict[str, JSON]]


def _closings(lines: Lines) -> list[int]:
    return [at for at, line in enumerate(lines) if line.get("event") == "Closed"]


def _after_the_end(lines: Lines) -> Lines:
    return lines[_closings(lines)[0] + 1 :]


def _fails(lines: Lines) -> bool:
    return any("IndexError" in str(line.get("error")) for line in lines)


def _never_closes(lines: Lines) -> bool:
    return not _closings(lines) and lines[-1]["deadline"] is None


def _keeps_after_a_failure(lines: Lines) -> bool:
    kept = [at for at, line in enumerate(lines) if line.get("event") == "Kept"]
    failed = [at for at, line in enumerate(lines) if line.get("event") == "StoreFailed"]
    return bool(failed) and failed[0] < kept[-1]


SHOWS: dict[str, Callable[[Lines], bool]] = {
    "ClosesTwice": lambda lines: len(_closings(lines)) > 1,
    "IgnoresTheEnd": _never_closes,
    "NeverCloses": _never_closes,
    "EndsOnlyOnce": lambda lines: "LINE_TOO_LONG" in str(lines[-2]["error"]),
    "SaysGoodbyeTwice": lambda lines: sum(line.get("send") == b"bye\n".hex() for line in lines) > 1,
    "WaitsAfterTheEnd": lambda lines: lines[-1]["deadline"] is not None,
    "ReadsAfterTheEnd": lambda lines: _after_the_end(lines)[-1]["read_size"] == 64,
    "TrailsBeforeTheEnd": lambda lines: not _closings(lines) and lines[-1]["trailing"] != "",
    "TrustsSmallNumbers": _fails,
    "TrustsDatagrams": _fails,
    "LeavesItsDeadlineDue": lambda lines: lines[-1]["deadline"] is not None,
    "FailureIsSuccess": _keeps_after_a_failure,
}


@pytest.mark.filterwarnings("ignore::culm.testing.suite.LeftOutWarning")
@pytest.mark.usefixtures("canary_profile")
@pytest.mark.parametrize("name", SHOWS)
def test_a_note_shows_in_the_line_driver_what_was_wrong(name: str) -> None:
    canary = next(each for each in CANARIES if each.name == name)
    with pytest.raises((AssertionError, IndexError)) as caught:
        LAWS[canary.law].check(canary.spec)
    note = next(note for note in caught.value.__notes__ if "culm.testing.drive" in note)
    command, *story = note.splitlines()
    config = json.loads(command.split("--config ")[1].strip("'"))
    driver = LineDriver(canary.spec.machine, from_plain(config))
    lines: Lines = [*driver.start()]  # type: ignore[list-item]
    for line in story:
        try:
            lines += driver.do(json.loads(line))  # type: ignore[arg-type]
        except IndexError as error:  # it takes no more input
            lines.append({"error": repr(error)})
    assert SHOWS[name](lines), lines


def test_the_store_answers_when_it_is_told_to() -> None:
    canary = next(each for each in CANARIES if each.name == "FailureIsSuccess")
    driver = LineDriver(canary.spec.machine, {})
    [*_] = driver.start()
    [*_] = driver.do({"op": "receive", "hex": b"one\n".hex()})
    answered = [*driver.do({"op": "respond", "ticket": 1})]
    assert answered[0] == {"event": "Kept", "fields": {"text": {"hex": "6f6e65"}, "place": 0}}
    [refused, _] = driver.do({"op": "respond", "ticket": 1})
    assert isinstance(refused, dict)
    assert "no effect of ticket 1 waits" in str(refused["error"])


def test_a_long_note_has_both_ends_and_says_what_is_left_out() -> None:
    told = Conversation(name="many", operations=())
    story = [Receive(b"%d" % number) for number in range(NOTE_LINES_MAX + 2)]
    with pytest.raises(ValueError, match="broken") as caught, retold(LINES, told, story):
        raise ValueError("broken")
    _, first, *middle, last = caught.value.__notes__[0].splitlines()
    assert [first, last] == [
        json.dumps({"op": "receive", "hex": story[at].data.hex()}) for at in (0, -1)
    ]
    assert len(middle) == NOTE_LINES_MAX - 1
    assert [line for line in middle if "left out" in line] == [
        "(2 lines left out; CULM_CAPTURES=DIRECTORY keeps all)"
    ]
