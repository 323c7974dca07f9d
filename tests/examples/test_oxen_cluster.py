"""The Oxen example: processes over UDP, one of which is killed, comes back, and one leaves."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

from pictures import words_of

from oxen_cluster import Story

EXAMPLE = Path(__file__).parents[2] / "examples" / "oxen_cluster.py"


def run(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
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
    # Four lines of three, one of the two that are left, two of three.
    assert summary["lines_said"] == 20
    # The first rounds as the two survivors heard them, the next among them, the last of all.
    assert summary["lines_heard"] == 2 * 8 + 2 + 3 * 4
    assert set(summary["seconds"]) >= {"the killed one is given up", "it is back"}
    assert done.stderr == ""


def test_one_node_shows_its_table_and_leaves() -> None:
    done = run("node", "39471", typed="hello\n/leave\n")
    assert done.returncode == 0, done.stderr
    assert "39471 (" in done.stdout
    assert "you: hello" in done.stdout
    assert "peer  state  reached" in done.stdout
    assert "\x1b" not in done.stdout  # it is a pipe


def test_an_empty_line_is_no_goodbye_and_a_long_one_is_refused() -> None:
    done = run("node", "39473", typed=f"\n{'x' * 100_000}\nafter that\n/leave\n")
    assert done.returncode == 0, done.stderr
    assert "you: after that" in done.stdout
    assert "not sent: payload too large" in done.stdout
    assert done.stderr == ""


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
    command = [sys.executable, str(EXAMPLE), "node", "--json", "--pace", "0.01"]
    with subprocess.Popen(
        [*command, "39474", "--join", "39475"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as late:
        assert late.stdin is not None
        assert late.stdout is not None
        for line in late.stdout:
            if json.loads(line)["what"] == "unreachable":
                break
        with subprocess.Popen(
            [*command, "39475"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
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


def test_end_of_input_is_a_goodbye() -> None:
    assert run("node", "39472", "--json").returncode == 0


def test_the_table_in_the_pages_picture_is_a_real_one() -> None:
    """The link between the first two is cut, and all have heard of it."""
    story = Story(4, 1.0, as_json=False)
    ada, ben, cleo, dan = story.members
    for member in story.members:
        member.running = True
        others = [str(each.port) for each in story.members if each is not member]
        member.peers = dict.fromkeys(others, "joined")
        member.ways = dict.fromkeys(others, "direct")
        member.notes = [("message", str(ada.port), "hello")] * 12
    ada.ways[str(ben.port)] = f"through {cleo.port}"
    ben.ways[str(ada.port)] = f"through {dan.port}"
    title, *rows = story.table().plain().splitlines()
    shown = words_of("oxen.md", "program-oxen")
    assert title in shown
    assert " ".join(" ".join(rows).split()) in shown
