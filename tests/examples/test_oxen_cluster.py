"""The Oxen example: processes over UDP; one is killed and comes back, and one leaves."""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import time
from pathlib import Path
from random import Random
from subprocess import PIPE
from typing import Any

import pytest
from pictures import words_of

from culm.oxen import Node, PeerState
from culm_io.command import command_of
from culm_io.programs.ending import ImpossibleError
from culm_io.programs.oxen.command import Chat, key_in, main, tags_in
from culm_io.programs.oxen.command import words_of as words_of_tags
from culm_io.programs.oxen.story import Story
from culm_io.programs.ports import free_ports


def udp_ports(count: int) -> list[str]:
    return list(map(str, free_ports(count, kind=socket.SOCK_DGRAM)))


def run(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_of("oxen", *arguments),
        input=typed,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_story_ends_well() -> None:
    done = run("demo", "--nodes", "3", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["in_order"] is True
    assert summary["exit_codes"] == [0, 0, 0]
    # Four lines of each of three, one of each of the two left, two of each of three.
    assert summary["lines_said"] == 20
    # The first rounds as heard by the two survivors, the next one between them, the last of all.
    assert summary["lines_heard"] == 2 * 8 + 2 + 3 * 4
    assert set(summary["seconds"]) >= {"the killed one is given up", "it is back"}
    assert done.stderr == ""


def test_one_node_shows_its_table_and_leaves() -> None:
    (port,) = udp_ports(1)
    done = run("node", port, typed="hello\n/leave\n")
    assert done.returncode == 0, done.stderr
    assert f"{port} (" in done.stdout
    assert "you: hello" in done.stdout
    assert "peer  state  reached" in done.stdout
    assert "\x1b" not in done.stdout  # it is a pipe


def test_in_a_pipe_it_speaks_as_things_happen_and_a_signal_is_a_goodbye() -> None:
    one, two = udp_ports(2)
    command = command_of("oxen", "node", "--pace", "0.1")
    with (
        subprocess.Popen([*command, one], stdin=PIPE, stdout=PIPE, text=True) as first,
        subprocess.Popen([*command, two, "--join", one], stdin=PIPE, stdout=PIPE) as second,
    ):
        assert first.stdout is not None
        assert first.stdout.readline() == f"{two} joined\n"
        second.terminate()
        assert first.stdout.readline() == f"{two} left\n"
        assert second.wait(60) == 0
        first.terminate()
        assert first.wait(60) == 0
        assert f"{one} (" in first.stdout.read()


def test_machines_are_told_a_table_when_it_changes() -> None:
    (port,) = udp_ports(1)
    with Talker(port) as talker:
        time.sleep(2.0)
        talker.type("/leave")
        output, _ = talker.process.communicate()
    tables = [line for line in output.splitlines() if json.loads(line)["what"] == "table"]
    assert len(tables) == 1


def test_an_empty_line_is_no_goodbye_and_a_long_one_is_refused() -> None:
    done = run("node", *udp_ports(1), typed=f"\n{'x' * 100_000}\nafter that\n/leave\n")
    assert done.returncode == 0, done.stderr
    assert "you: after that" in done.stdout
    assert "not sent: payload too large" in done.stdout
    assert done.stderr == ""


def test_what_is_refused_is_said_to_machines_as_well() -> None:
    (port,) = udp_ports(1)
    done = run("node", port, "--json", typed=f"{'x' * 2000}\n/leave\n")
    said = [line for line in map(json.loads, done.stdout.splitlines()) if line["what"] != "table"]
    assert [line["what"] for line in said] == ["not sent"]
    assert "2000" in said[0]["text"]


def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        done = run("node", port)
    assert done.returncode == 2
    assert f"port {port}: " in done.stderr
    assert "Traceback" not in done.stderr


def test_who_finds_nobody_asks_again() -> None:
    """At a hundredth of the pace a helper is awaited for 0.8 seconds."""
    command = command_of("oxen", "node", "--json", "--pace", "0.01")
    own, helpers = udp_ports(2)
    with subprocess.Popen(
        [*command, own, "--join", helpers], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as late:
        assert late.stdin is not None
        assert late.stdout is not None
        for line in late.stdout:
            if json.loads(line)["what"] == "unreachable":
                break
        with subprocess.Popen(
            [*command, helpers], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as helper:
            assert helper.stdout is not None
            for line in late.stdout:
                if json.loads(line)["what"] == "joined":
                    break
            late.stdin.write(b"/leave\n")
            late.stdin.close()
            late.stdout.read()
            assert late.wait(60) == 0
            helper.communicate(b"/leave\n", timeout=60)
            assert helper.returncode == 0


class Talker:
    """A node in a separate process, at a tenth of the pace."""

    def __init__(self, *arguments: str) -> None:
        command = command_of("oxen", "node", "--json", "--pace", "0.1", *arguments)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def until(self, **wanted: object) -> dict[str, object]:
        """The next line with these values."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            note = json.loads(line)
            if wanted.items() <= note.items():
                return note
        raise AssertionError(f"{wanted} was not said")

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def __enter__(self) -> Talker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def key(tmp_path: Path) -> str:
    made = run("key")
    assert made.returncode == 0
    file = tmp_path / "cluster.key"
    file.write_text(made.stdout)
    return str(file)


@pytest.mark.slow
def test_nodes_with_one_key_know_each_others_tags_and_speak_in_groups(key: str) -> None:
    one, two = udp_ports(2)
    with (
        Talker(one, "--key", key, "--tags", "role=store", "hall") as first,
        Talker(two, "--key", key, "--join", one) as second,
    ):
        assert second.until(what="tags")["text"] == "hall role=store"
        second.type("/tag room=3 cellar")
        assert first.until(what="tags")["text"] == "cellar room=3"
        assert first.until(what="table", tags={two: {"cellar": "", "room": "3"}})
        second.type("/to nobody this is for nobody")
        second.type("/to hall this is for the hall")
        assert first.until(what="message")["text"] == "this is for the hall"
        second.type("/untag cellar")
        assert first.until(what="tags")["text"] == "room=3"
        for each in (first, second):
            each.type("/leave")
        for each in (first, second):
            assert each.process.wait(60) == 0


@pytest.mark.slow
def test_who_has_no_key_or_another_one_is_not_let_in(key: str, tmp_path: Path) -> None:
    other = tmp_path / "other.key"
    other.write_text(run("key").stdout)
    ports = udp_ports(4)
    with (
        Talker(ports[0], "--key", key) as member,
        Talker(ports[1], "--join", ports[0]) as without,
        Talker(ports[2], "--join", ports[0], "--key", str(other)) as stranger,
    ):
        for each in (without, stranger):
            assert each.until(what="unreachable", peer=ports[0])
        with Talker(ports[3], "--join", ports[0], "--key", key) as friend:
            assert friend.until(what="joined")["peer"] == ports[0]
            assert member.until(what="joined")["peer"] == ports[3]


@pytest.mark.parametrize("text", ["", "00" * 31, "00" * 33, "x" * 64, "ä"])
def test_what_is_no_key_is_said(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cluster.key"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(argparse.ArgumentTypeError, match=r"cluster\.key"):
        key_in(str(file))
    with pytest.raises(argparse.ArgumentTypeError, match="nowhere"):
        key_in(str(tmp_path / "nowhere"))


def test_tags_are_words() -> None:
    assert tags_in(["role=store", "hall", "sum=1=1"]) == {"role": "store", "hall": "", "sum": "1=1"}
    assert words_of_tags(tags_in(["role=store", "hall"])) == "hall role=store"


def test_tags_and_a_key_are_explained_and_too_many_refused(capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["node", "--help"])
    assert ended.value.code == 0
    explained = capsys.readouterr().out
    assert "--key FILE" in explained
    assert "--tags NAME[=VALUE]" in explained
    with pytest.raises(ImpossibleError, match="at most 64 tags in 512 bytes"):
        main(["node", "39476", "--tags", "x" * 600])
    with pytest.raises(SystemExit) as ended:
        main(["node", "39476", "--tags", "\udcff"])
    assert ended.value.code == 2


def test_end_of_input_is_a_goodbye() -> None:
    assert run("node", *udp_ports(1), "--json").returncode == 0


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("sid", [b"\xff\xfe", b"\x1b[2J\x1b]0;owned\x07"])
def test_a_peer_may_have_any_name(
    sid: bytes, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names come from the network: none ends the program, or moves the cursor."""
    ours, theirs = (Node(me=me, rng=Random(1), epoch=0.0) for me in (b"39477", sid))
    chat = Chat(as_json=as_json)
    for node in (ours, theirs):
        node.advance(1.0)
    theirs.join(ours.me)
    ours.start()
    for _ in range(10):
        for node, other in ((theirs, ours), (ours, theirs)):
            for _, datagram in node.datagrams_to_send():
                other.receive_datagram(datagram, source=node.me)
            while (event := other.next_event()) is not None:
                if other is ours:
                    chat.note(event)
    assert ours.peers()[sid].state is PeerState.JOINED
    chat.show(ours, last=True)
    shown = capsys.readouterr().out
    assert "joined" in shown
    assert shown.replace("\n", "").isprintable()


def test_the_table_in_the_pages_picture_is_a_real_one() -> None:
    """The link between the first two is cut, and all have heard of it."""
    shown = words_of("oxen.md", "program-oxen")
    (heard,) = {int(each) for each in re.findall(r"direct (\d+) 0(?= |$)", shown)}
    story = Story(4, 1.0, as_json=False)
    ada, ben, cleo, dan = story.members
    for member in story.members:
        member.running = True
        others = [str(each.port) for each in story.members if each is not member]
        member.peers = dict.fromkeys(others, "joined")
        member.ways = dict.fromkeys(others, "direct")
        member.notes = [("message", str(ada.port), "hello")] * heard
    ada.ways[str(ben.port)] = f"through {cleo.port}"
    ben.ways[str(ada.port)] = f"through {dan.port}"
    title, *rows = story.table().plain().splitlines()
    assert title in shown
    assert " ".join(" ".join(rows).split()) in shown
