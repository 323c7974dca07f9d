"""A stranger's capture can do no more than a driver could, and costs no more than its size."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from test_capture_viewer import data_of

from culm.capture import CaptureError, Header, Replay, Step, read, view
from culm.capture.blocks import MAGIC, write_block
from culm.capture.command import main
from culm.capture.lines import lines
from culm.exits import ExitStatus
from culm.machines import lookup, names

BYMUX = Header(machine="bymux", config={"role": "REACTIVE"})


def handle(number: object) -> dict[str, object]:
    return {"": "object", "number": number}


def step(name: str, *arguments: Any, on: int = 0, result: Any = None, **keywords: Any) -> Step:
    return Step(0.0, on, name, list(arguments), keywords, result)


def capture_of(*steps: Step, header: Header = BYMUX) -> bytes:
    return MAGIC + write_block(b"".join(each.encode() for each in (header, *steps)))


def look_up(on: int, name: str, number: int) -> Step:
    return step("__getattribute__", name, on=on, result=handle(number))


def test_no_step_leads_from_a_machine_to_the_interpreter(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    code = f"__import__('pathlib').Path({str(trace)!r}).touch()"
    path = tmp_path / "hostile"
    path.write_bytes(
        capture_of(
            look_up(0, "close", 1),
            look_up(1, "__func__", 2),
            look_up(2, "__globals__", 3),
            step("get", "__builtins__", on=3, result=handle(4)),
            step("get", "eval", on=4, result=handle(5)),
            step("__call__", code, on=5),
        )
    )
    player = Replay(read(path.read_bytes()).header)
    for each in read(path.read_bytes()):
        with pytest.raises(CaptureError):
            player.do(each)
    for more in ([], ["--until", "6"], ["--json"]):
        assert main(["replay", str(path), *more]) == ExitStatus.IMPOSSIBLE
    assert not trace.exists()


def test_only_handles_that_were_handed_out_can_be_called() -> None:
    data = step("trailing_data", result=handle(1))  # bytes, whatever the capture calls them
    for number in (1, None, [], "1"):
        taken = step("machine_behind", result=handle(number))
        player = Replay(BYMUX)
        for each in (data, taken):
            player.do(each)
        with pytest.raises(CaptureError, match="nothing has the number 1"):
            player.do(step("close", on=1))


VALUES: list[Any] = [
    *(0, -1, 1 << 63, -(1 << 63), True, None, 1.5, "", "role", b"", bytes(32), [], [1], {"a": 1}),
    *({"": "tuple", "items": [1]}, {"": "chance"}, handle(0), handle(1), handle(2), handle(-1)),
    {"": "culm.machine:Closed", "fields": {"error": None}},
    {"": "culm.wire.multihash:HashFamily", "constant": "YAMF"},
]


@pytest.mark.parametrize("name", names())
def test_calls_that_somebody_makes_up_are_refused_and_nothing_else_is_raised(name: str) -> None:
    random = Random(name)
    called = [*dir(lookup(name).make({})), *(f"!{verb}" for verb in lookup(name).verbs)]
    for _ in range(300):
        player = Replay(Header(machine=name))
        for _ in range(6):
            given = random.choices(VALUES, k=random.randrange(3))
            found = handle(random.randrange(3))
            made = step(random.choice(called), *given, on=random.randrange(3), result=found)
            try:
                player.do(made)
            except CaptureError:
                continue
            assert not made.name.startswith("_")


@pytest.mark.costly
@pytest.mark.parametrize("name", names())
def test_captures_that_somebody_makes_up_become_other_files_or_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every value stands in every place of a caller's, a store's or a driver's value."""
    random = Random(name)
    path = tmp_path / "made-up"
    inputs = ["receive_data", "receive_eof", "receive_datagram", "advance", "complete", "fail"]
    called = [*inputs, *dir(lookup(name).make({})), *(f"!{verb}" for verb in lookup(name).verbs)]
    for _ in range(20):
        steps = [
            step(
                random.choice(called),
                *random.choices(VALUES, k=random.randrange(4)),
                result=random.choice(VALUES),
            )
            for _ in range(random.randrange(1, 4))
        ]
        path.write_bytes(capture_of(*steps, header=Header(machine=name)))
        for told in ("show", "replay"):
            assert main([told, str(path)]) in ExitStatus
        for made in ("lines", "qlog", "pcap", "test", "view"):
            assert main([made, "-o", str(tmp_path / made), str(path)]) in ExitStatus
        capsys.readouterr()


def test_a_machine_that_was_not_made_has_no_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hostile"
    made = step("+culm.bymux.connection:Connection", result=handle(5), role=1)
    path.write_bytes(capture_of(made, header=Header()))
    assert main(["replay", str(path)]) == ExitStatus.FAILED
    assert main(["replay", str(path), "--until", "1"]) == ExitStatus.IMPOSSIBLE
    assert "no machine" in capsys.readouterr().err


def test_many_bombs_in_one_piece_take_the_memory_of_one() -> None:
    size = 1 << 22
    bomb = write_block(step("receive_data", bytes(size)).encode())
    assert len(bomb) < 1 << 15

    def peak_of(count: int) -> int:
        tracemalloc.start()
        assert sum(1 for _ in read(capture_of() + bomb * count)) == count
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_of(20) < peak_of(2) + size


def many(name: str, *arguments: Any, count: int, machine: str = "", **more: Any) -> bytes:
    """A small capture with `count` large steps, ten in a block."""
    block = write_block(step(name, *arguments, **more).encode() * 10)
    return capture_of(header=Header(machine=machine)) + block * (count // 10)


FULL = [
    many("receive_data", bytes(1 << 16), count=400),
    many("receive_data", b"\0\1\5" * 5000, count=10, machine="bymux"),  # each is 20,000 fields
    many("next_event", result={"": "m:Event", "fields": {"data": bytes(1 << 16)}}, count=400),
    many("next_event", result={"": "m:Event", "fields": {"data": "x" * (1 << 16)}}, count=400),
    many("!told", [[0] * 4000, {"": "set", "items": [0] * 4000}], count=20),
]


@pytest.mark.costly
@pytest.mark.parametrize("capture", FULL, ids=["bytes", "fields", "event", "text", "items"])
def test_a_page_has_no_more_than_it_has_room_for(
    capture: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 1 << 17
    monkeypatch.setattr(view, "_TEXT_SIZE_MAX", room)
    tracemalloc.start()
    told = data_of(view.page({"one": partial(read, capture)}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20
    first, count, total = told["window"]
    assert (first, total) == (1, sum(1 for _ in read(capture)))
    assert len(told["steps"]) == count
    assert sum(len(json.dumps(row)) for row in told["steps"]) < room + (1 << 18)
    rest = data_of(view.page({"one": partial(read, capture)}, first=count + 1, count=2))
    begins, more, _ = rest["window"]
    assert (begins, more > 0) == (count + 1, count < total)


@pytest.mark.parametrize("name", ["complete", "fail", "next_deadline", "advance", "receive_data"])
def test_calls_without_arguments_are_shown(name: str) -> None:
    captures = {"one": partial(read, capture_of(step(name), step(name, ticket=1)))}
    assert len(data_of(view.page(captures))["steps"]) == 2


def test_messages_are_named_up_to_a_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "damaged"
    cut = step("receive_data", b"\0\1\5\x20\1")  # its last message is incomplete
    path.write_bytes(capture_of(cut) + bytes(12))
    assert main(["show", "--messages", str(path)]) == ExitStatus.IMPOSSIBLE
    told = capsys.readouterr()
    assert told.out.splitlines()[-1].endswith("receive_data(5 bytes 0001052001)  CREDIT, WRITE")
    assert "damaged" in told.err


EVIL = "\x1b[31m\x9b31m\n\u202e\u2028</script>\0"
"""Would set a terminal's colour, begin a line or reverse one."""


@pytest.mark.parametrize(
    "made",
    [
        step("next_event"),
        step(f"a{EVIL}"),
        step("close", EVIL, {EVIL: EVIL}, **{EVIL: EVIL}, result=EVIL),
        step("next_event", result={"": f"culm.machine:{EVIL}", "fields": {EVIL: EVIL}}),
        step("next_event", result={"": "culm.machine:Closed", "member": EVIL}),
        step("receive_data", {"": EVIL}),
        step(f"+{EVIL}"),
        Step(0.0, 0, "close", [], {}, None, {"": EVIL, "code": EVIL, "message": EVIL}, EVIL),
    ],
)
@pytest.mark.parametrize("machine", ["bymux", EVIL])
def test_nothing_of_a_capture_acts_on_the_terminal(
    made: Step, machine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = Header(machine=machine, session=EVIL, culm=EVIL, python=EVIL, config={})
    (tmp_path / "hostile").write_bytes(capture_of(made, header=named))
    (tmp_path / "other").write_bytes(capture_of(step("close")))
    one, other = str(tmp_path / "hostile"), str(tmp_path / "other")
    for told in (["show", one], ["replay", one], ["replay", one, "--until", "1"]):
        main(told)
    main(["diff", one, other])
    main(["show", "--json", one])
    found = capsys.readouterr()
    for line in (found.out + found.err).split("\n"):
        assert line.isprintable()
        assert not line.startswith("\\u202e")


@pytest.mark.parametrize("command", ["qlog", "pcap", "test", "view"])
def test_what_is_no_capture_empties_no_file(command: str, tmp_path: Path) -> None:
    (tmp_path / "hostile").write_bytes(b"GIF89a")
    kept = tmp_path / "kept"
    kept.write_bytes(b"of value")
    told = main([command, str(tmp_path / "hostile"), "-o", str(kept)])
    assert told == ExitStatus.IMPOSSIBLE
    assert kept.read_bytes() == b"of value"


@pytest.mark.parametrize(
    "made",
    [
        step("receive_data", "text"),
        step("receive_data", 5),
        step("receive_datagram", b"x", source=[]),
        step("advance", "now"),
        step("complete", [], None),
        step("fail", {}, None),
        step("send_data", {}),
    ],
    ids=lambda made: f"{made.name} {made.arguments}",
)
@pytest.mark.parametrize("machine", ["bymux", "oxen", "ssb-peer", "point2point-replicator"])
def test_what_the_line_driver_cannot_be_told_is_refused(machine: str, made: Step) -> None:
    capture = read(capture_of(made, header=Header(machine=machine)))
    with suppress(CaptureError):
        for line in lines(capture):
            json.dumps(line)
