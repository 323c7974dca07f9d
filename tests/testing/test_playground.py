"""The conversations of the playground, in CPython; `test_playground_in_browser.py` has its page."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from base64 import b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.append(str(DOCS))

from playground import site  # noqa: E402
from playground.changes import CAN, parse  # noqa: E402
from playground.history import catalogue, history, told  # noqa: E402
from playground.rooms import BYMUX, OXEN  # noqa: E402
from playground.scenarios import SCENARIOS  # noqa: E402
from playground.world import STEPS_MAX, Act, Scenario, World  # noqa: E402

NAMES = list(SCENARIOS)
each_scenario = pytest.mark.parametrize("name", NAMES)


def events(found: dict[str, Any], name: str, node: str | None = None) -> list[dict[str, str]]:
    """The fields of all events of that name, of one member or of all."""
    steps = [each for each in found["steps"] if node in (None, each.get("node"))]
    return [dict(parts) for step in steps for kind, parts in step.get("events", ()) if kind == name]


def views(found: dict[str, Any]) -> dict[str, Any]:
    """All members' state at the end."""
    last: dict[str, Any] = {}
    for step in found["steps"]:
        last |= step.get("views", {})
    return last


# The content of the stories


def test_an_election_ends_with_a_leader_that_commits() -> None:
    found = history("raft-election")
    assert {view[1] for view in views(found).values()} == {"LEADER", "FOLLOWER"}
    assert len(events(found, "Committed")) == 2
    assert all("3, committed 3" in dict(view[3])["log"] for view in views(found).values())


def test_the_others_go_on_without_a_leader_and_it_follows_when_it_is_back() -> None:
    found = history("raft-leader-killed")
    [death] = [step for step in found["steps"] if step["kind"] == "dies"]
    leaders = [step["node"] for step in found["steps"] for event in step.get("events", ())
               if event[0] == "RoleChanged" and ["role", "LEADER"] in event[1]]  # fmt: skip
    assert leaders[0] == death["node"] != leaders[1]
    assert len(events(found, "Committed")) == 2
    assert views(found)[death["node"]][1] == "FOLLOWER"
    assert len({dict(view[3])["log"] for view in views(found).values()}) == 1


def test_the_smaller_side_of_a_partition_commits_nothing() -> None:
    found = history("raft-partition")
    [lost] = events(found, "Lost")
    assert lost["certain"] == "True"
    assert len(events(found, "Committed")) == 2
    assert len({dict(view[3])["term"] for view in views(found).values()}) == 1


def test_nodes_that_have_joined_hear_what_is_said_to_all() -> None:
    found = history("oxen-join")
    heard = {each["data"] for each in events(found, "MessageReceived", "Ben")}
    assert heard == {"Ada says 1", "Cleo says 1"}
    assert [each["data"] for each in events(found, "MessageReceived", "Ada")] == ["Cleo says 1"]


def test_what_is_lost_comes_again_once_and_in_order() -> None:
    found = history("oxen-loss")
    assert sum(each["fate"] == "lost" for each in found["messages"]) > 5
    heard = [each["data"] for each in events(found, "MessageReceived", "Ben")]
    assert heard == [f"Ada says {number}" for number in range(1, 6)]


def test_around_a_broken_link_messages_come_by_way_of_another() -> None:
    found = history("oxen-around")
    arrived = [each for each in found["messages"] if each["label"] == "OneToOne"]
    assert {each["from"] for each in arrived if each["to"] == "Ben" and each["fate"] == "came"} == {
        "Cleo"
    }
    heard = [each["data"] for each in events(found, "MessageReceived", "Ben")]
    assert heard == ["Ada says 1", "Ada says 2"]


def test_a_large_message_needs_its_lost_piece_alone_again() -> None:
    found = history("oxen-large", ["drop-8"])
    pieces = [each for each in found["messages"] if each["label"] == "Piece"]
    assert [each["fate"] for each in pieces].count("lost") == 1
    plain = [each["label"] for each in history("oxen-large")["messages"]]
    assert len(pieces) == plain.count("Piece") + 1
    assert len(events(found, "MessageReceived", "Ben")) == 2


def test_a_dead_node_is_given_up_and_taken_back() -> None:
    found = history("oxen-restart")
    assert {"peer": "Ben"} in events(found, "PeerUnreachable", "Ada")
    assert {"peer": "Ben"} in events(found, "PeerReachable", "Ada")


def test_no_byte_leaves_before_credit_and_none_beyond_it() -> None:
    found = history("bymux-credit")
    credit = [int(each["amount"]) for each in events(found, "StreamCredit")]
    pieces = [each["data"] for each in events(found, "StreamData")]
    assert credit == [20, 20, 20]
    assert [len(piece) for piece in pieces] == [20, 20, 4]
    assert events(found, "Closed") == [{"error": "nothing"}] * 2


def test_a_stream_without_credit_holds_up_no_other() -> None:
    found = history("bymux-stalled")
    order = [each["stream_id"] for each in events(found, "StreamData")]
    assert order == ["2"] * 6 + ["0"] * 3


def test_an_end_is_answered_with_an_end_and_ends_a_call_once() -> None:
    found = history("muxrpc-replicate")
    assert [each["body"] for each in events(found, "ValueReceived", "client")] == [
        '{"@server":1}',
        '{"@server":2}',  # the third comes after the end, and is dropped
    ]
    assert len(events(found, "CallEnded")) == 2
    assert events(found, "Closed") == [{"error": "nothing"}] * 2


def test_a_call_that_fails_leaves_another_alone() -> None:
    found = history("muxrpc-beside")
    [failed] = [each for each in events(found, "CallEnded") if each["failure"] != "nothing"][:1]
    assert "not now" in failed["failure"]
    assert [each["body"] for each in events(found, "ReplyReceived")] == ['{"id":"@server"}']
    assert len(events(found, "ValueReceived")) == 3
    assert events(found, "Closed") == [{"error": "nothing"}] * 2


def test_a_value_that_claims_too_much_ends_the_connection() -> None:
    [unknown, large, _] = history("muxrpc-replicate")["tries"]
    found = history("muxrpc-replicate", [large["change"]])
    assert "BODY_TOO_LARGE" in events(found, "Closed", "server")[0]["error"]
    found = history("muxrpc-replicate", [unknown["change"]])
    assert "CallError" in events(found, "CallEnded", "client")[0]["failure"]


# Common to all of them


@each_scenario
def test_the_same_comes_out_every_time(name: str) -> None:
    assert told(name) == told(name)
    assert len(history(name)["steps"]) < STEPS_MAX


def check(found: dict[str, Any]) -> None:
    """Properties of every history, whatever was changed."""
    steps, messages = found["steps"], found["messages"]
    assert len(steps) <= STEPS_MAX
    assert [each["at"] for each in steps] == sorted(each["at"] for each in steps)
    for number, message in enumerate(messages):
        assert number == message["number"]
        assert number in steps[message["sent"]]["sent"]
        assert message["carrier"] in CAN
        data = b64decode(message["data"])
        assert len(data) == message["size"] == sum(field[2] for field in message["fields"])
        if message["step"] is None:
            assert message["fate"] in ("on its way", "waits")
        else:
            assert steps[message["step"]]["message"] == number
            kind = {"came": "arrives", "lost": "lost"}[message["fate"]]
            assert steps[message["step"]]["kind"] == kind
    json.loads(json.dumps(found))


@each_scenario
def test_messages_and_steps_name_each_other(name: str) -> None:
    check(history(name))


@each_scenario
def test_every_change_that_is_proposed_has_its_place_and_makes_a_difference(name: str) -> None:
    plain = history(name)
    assert [each["words"] for each in plain["tries"]] == [e.words for e in SCENARIOS[name].tries]
    for each in plain["tries"]:
        found = history(name, [each["change"]])
        check(found)
        assert found["refused"] == []
        assert found["steps"][: each["step"]] == plain["steps"][: each["step"]]
        assert found["steps"] != plain["steps"]


NUMBERS = st.integers(0, 90)
MESSAGES = st.one_of(
    st.builds("{}-{}".format, st.sampled_from(["drop", "late", "twice", "break"]), NUMBERS),
    st.builds("byte-{}-{}-{}".format, NUMBERS, st.integers(0, 60), st.integers(0, 255)),
)


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_whatever_a_reader_does_the_conversation_goes_on(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    members = st.sampled_from(SCENARIOS[name].members)
    deeds, verbs = st.sampled_from(sorted(SCENARIOS[name].room.deeds)), ["kill", "start", "cut"]
    changes = st.one_of(
        MESSAGES,
        st.builds("heal-{}".format, NUMBERS),
        st.builds("{}-{}-{}".format, st.sampled_from(verbs), members, NUMBERS),
        st.builds("do-{}-{}-{}".format, members, deeds, NUMBERS),
    )
    chosen = data.draw(st.lists(changes, max_size=5))
    found = history(name, chosen)
    check(found)
    assert found == history(name, chosen)


def test_every_change_can_be_made_to_every_message_of_a_conversation() -> None:
    for name in ("oxen-join", "raft-election", "bymux-credit"):
        for message in history(name)["messages"][::6]:
            for verb in CAN[message["carrier"]]:
                if verb == "byte" and message["size"]:
                    for offset in range(0, message["size"], 23):
                        check(history(name, [f"byte-{message['number']}-{offset}-255"]))
                elif verb != "byte":
                    found = history(name, [f"{verb}-{message['number']}"])
                    check(found)
                    assert verb in found["messages"][message["number"]]["changes"]


def test_a_wrong_packet_ends_a_connection_with_its_error() -> None:
    found = history("bymux-credit", ["byte-1-1-9"])
    assert {each["error"].partition(":")[0] for each in events(found, "Closed", "client")} == {
        "UNKNOWN_STREAM"
    }


def test_a_datagram_that_comes_twice_is_taken_once() -> None:
    [first] = [each for each in history("oxen-join")["messages"] if each["label"] == "Broadcast"][
        :1
    ]
    found = history("oxen-join", [f"twice-{first['number']}"])
    again = found["messages"][first["number"] + 1]
    assert (again["changes"], again["data"], again["fate"]) == (["again"], first["data"], "came")
    heard = [each["data"] for each in events(found, "MessageReceived", "Ben")]
    assert heard.count("Ada says 1") == 1


def test_a_stream_is_never_reordered_by_a_delay() -> None:
    found = history("bymux-credit", ["late-0"])
    assert len(events(found, "StreamCreated")) == 1
    order = [each["step"] for each in found["messages"] if each["from"] == "client"]
    assert order == sorted(order)


def test_a_change_that_finds_nothing_says_so() -> None:
    found = history("bymux-credit", ["drop-999", "kill-server-998"])
    assert found["refused"] == ["message 999 was never sent", "there is no step 998"]


@pytest.mark.parametrize(
    "text",
    ["", "drop", "drop-x", "drop--1", "drop-1-2", "byte-1-2", "byte-1-2-256", "kill-n1", "heal",
     "do-n1-propose", "throw-1", "drop-9999999999", "drop-²", "drop-1 "],
)  # fmt: skip
def test_what_is_no_change_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a change"):
        parse(text)


def test_a_script_that_knows_no_such_verb_is_a_mistake() -> None:
    scenario = Scenario(
        name="x", title="", story="", room=BYMUX, members=("a", "b"), until=1.0,
        script=(Act(0.1, "dance", ("a",)),),
    )  # fmt: skip
    with pytest.raises(ValueError, match="dance"):
        World(scenario).run()


def test_without_chance_of_its_own_a_network_that_loses_all_delivers_nothing() -> None:
    scenario = Scenario(
        name="x", title="", story="", room=OXEN, members=("A", "B"), until=5.0, loss=1.0
    )
    world = World(scenario)
    world.run()
    assert world.messages
    assert {each.fate for each in world.messages} <= {"lost", "on its way"}


# The browser has less than this environment.

WITHOUT_LIBRARIES = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("nacl", "blake3", "cbor2", "xxhash", "h11"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
sys.path[:0] = sys.argv[1:]
import culm
from culm import kernels
from playground.history import told
from playground.scenarios import SCENARIOS
print(culm.__file__)
print(sum(len(told(name)) for name in SCENARIOS))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The playground of a site that is built without Pyodide."""
    folder = tmp_path_factory.mktemp("site") / "playground"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CULM_PYODIDE", "no")
        assert not site.write(folder)
        assert not site.write(folder)  # existing files are replaced
    return folder


def test_a_wheel_of_the_pure_twins_runs_all_conversations(tmp_path: Path) -> None:
    wheel = tmp_path / site.write_wheel(tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    with ZipFile(wheel) as made:
        names = made.namelist()
        [record] = [name for name in names if name.endswith(".dist-info/RECORD")]
        lines = made.read(record).decode().split()
        for line in lines[:-1]:
            path, digest, size = line.rsplit(",", 2)
            data = made.read(path)
            found = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (f"sha256={found}", f"{len(data)}") == (digest, size)
        assert len(lines) == len(names)
    assert not [name for name in names if name.endswith((".so", ".pyd", ".pyc"))]
    command = [sys.executable, "-c", WITHOUT_LIBRARIES, str(wheel), str(DOCS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    place, size = done.stdout.split()
    assert place.startswith(str(wheel))
    assert int(size) == sum(len(told(name)) for name in NAMES)


def test_a_site_without_pyodide_has_all_conversations_and_says_what_it_lacks(built: Path) -> None:
    about = json.loads((built / "about.json").read_text())
    assert (about["pyodide"], about["wheel"]) == (None, None)
    assert [each["name"] for each in about["scenarios"]] == NAMES
    for name in NAMES:
        assert (built / "data" / f"{name}.json").read_text(encoding="utf-8") == told(name)
    assert not (built / "pyodide").exists()


def test_every_page_that_a_conversation_leads_to_is_there() -> None:
    pages = {each["page"] for each in catalogue()}
    assert [page for page in pages if not (DOCS / page).with_suffix(".md").exists()] == []


def test_another_package_than_the_one_that_is_meant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "pyodide.tgz"
    package.write_bytes(b"something else")
    monkeypatch.setenv("CULM_PYODIDE", str(package))
    with pytest.raises(ValueError, match="is not pyodide"):
        site.pyodide_package()


def test_without_npm_and_without_a_cache_there_is_no_pyodide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv("CULM_PYODIDE", raising=False)
    assert site.pyodide_package() is None  # without a download
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("CULM_PYODIDE", "fetch")
    assert site.pyodide_package() is None
    assert "npm has no pyodide for us" in capsys.readouterr().out


def test_the_page_on_the_playground_links_to_all_conversations() -> None:
    assert re.findall(r'href="playground/index.html\?([^"]+)"', site.cards()) == NAMES
    assert "<!-- conversations -->" in (DOCS / "playground.md").read_text(encoding="utf-8")
