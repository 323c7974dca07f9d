"""An audit of replicated data: a directory and a feed, copies with faults, a report.

Replicates a directory as a Bamboo log between two processes, and a feed of Secure Scuttlebutt
between two others; exports the data of each of them; plants faults in copies; audits all copies on
Spark and compares them.  The reports stay in the output directory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from culm.bamboo import LogKey, Reason, audit_log, decode
from culm.exits import ExitStatus, exits
from culm.spark.archive import write_archive
from culm.spark.command import main as run_job
from culm.ssb.feed_id import feed_id_of
from culm.ssb.messages import FeedPlace, check_place, create_message, read_message
from culm.wire.multihash import YAMF
from culm_io.command import command_of
from culm_io.programs.arguments import count, folder, source
from culm_io.programs.demo import DemoError, add_json, run_program, serving, told
from culm_io.programs.directory.files import load_key
from culm_io.programs.ending import ImpossibleError, end_without
from culm_io.stores.bamboo import SqliteStore
from culm_io.stores.ssb import SsbSqliteStore

_POSTS = 200
_CUT_ENTRIES = 3
_ENTRIES_MIN = _CUT_ENTRIES + 5  # so that each fault has an entry of its own
# Plans are many and rows are few: Java's second compiler would not pay.
_SETTINGS = ("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

Record = tuple[bytes, bytes | None]


# A directory, as a Bamboo log.


def replicate_directory(source: Path, folder: Path) -> tuple[Path, Path, LogKey]:
    """Publish and fetch; the stores of both sides, and the log."""
    published, fetched = folder / "published.store", folder / "fetched.store"
    summary = run_program("publish", source, "--exclude=__pycache__", "--store", published)
    if summary["entries"] < _ENTRIES_MIN:
        few = f"its log has {summary['entries']} entries, not {_ENTRIES_MIN}"
        raise ImpossibleError(f"{source} is too small: {few}")
    author, _, log_id = summary["log"].partition("/")
    with serving(published) as port:
        where = ("--store", fetched, "--from", f"127.0.0.1:{port}", "--into", folder / "fetched")
        run_program("fetch", *where)
    return published, fetched, LogKey(bytes.fromhex(author), int(log_id))


def records_of(path: Path, log: LogKey) -> list[Record]:
    """All entries of a log in a store, with their payloads."""
    with SqliteStore(path, family=YAMF, must_exist=True) as store:
        entries = store.entries(log, payload_size_max=1 << 30)
    return [(entry.encoded, entry.payload) for entry in entries]


def export(path: Path, records: Sequence[Record]) -> Path:
    """Write an archive."""
    with path.open("wb") as file:
        write_archive(file, f"bamboo/{YAMF.name}", records)
    return path


def damage_log(records: Sequence[Record], key: SigningKey) -> list[Record]:
    """A copy in which an entry is missing, one is forged, one forked, and a payload is another."""
    count = len(records)
    damaged = list(records)
    entry, payload = damaged[count // 5]
    damaged[count // 5] = (entry, (payload or b"") + b"?")
    entry, payload = damaged[2 * count // 5]
    damaged[2 * count // 5] = (entry[:-1] + bytes([entry[-1] ^ 1]), payload)
    other = replace(decode(damaged[3 * count // 5][0], family=YAMF), payload_size=1)
    other = replace(other, payload_hash=YAMF.hash(b"?"))
    signed = replace(other, signature=key.sign(other.signed_bytes()).signature)
    damaged.append((signed.encode(), b"?"))
    del damaged[4 * count // 5]
    return damaged


def reasons_of(records: Sequence[Record], log: LogKey) -> dict[str, int]:
    """The verdicts of one process on the records of a log, read in ascending order."""
    ascending = sorted(records, key=lambda record: decode(record[0], family=YAMF).seqnum)
    verdicts = audit_log(log, ascending, family=YAMF)
    return dict(Counter(Reason(reason).name for each in verdicts for reason in each.reasons))


# A feed of Secure Scuttlebutt.


@contextmanager
def peer(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A peer in a process of its own, which is told to quit in the end."""
    command = command_of("ssb", "run", "--dir", folder, "--port", 0, "--quiet")
    with subprocess.Popen(
        [*command, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            tell(process, "quit")
            process.communicate()  # else its goodbye would have no reader


def tell(process: subprocess.Popen[str], *lines: str) -> None:
    assert process.stdin is not None
    process.stdin.write("".join(f"{line}\n" for line in lines))
    process.stdin.flush()


def until(process: subprocess.Popen[str], **fields: Any) -> dict[str, Any]:
    """The next line of a peer with these fields."""
    assert process.stdout is not None
    for line in process.stdout:
        said: dict[str, Any] = json.loads(line)
        if fields.items() <= said.items():
            return said
    raise DemoError(f"a peer has ended before it said {fields}")


def replicate_feed(folder: Path, posts: int) -> tuple[list[bytes], list[bytes], SigningKey]:
    """Post, and follow from elsewhere; the messages that both have, and the author's key."""
    here, there = folder / "here", folder / "there"
    with peer(here) as author:
        listening = until(author, event="listening")
        feed = listening["feed"]
        tell(author, *(f"publish number {number}" for number in range(1, posts + 1)))
        with peer(there, "--connect", listening["address"]) as follower:
            tell(follower, f"follow {feed}")
            until(follower, event="stored", feed=feed, sequence=posts)
    return messages_of(here, feed), messages_of(there, feed), load_key(here / STORE, create=False)


STORE = "feeds.sqlite"


def messages_of(folder: Path, feed: str) -> list[bytes]:
    store = SsbSqliteStore(folder / STORE)
    try:
        return store.messages(feed)
    finally:
        store.close()


def damage_feed(messages: Sequence[bytes], key: SigningKey) -> list[bytes]:
    """A copy in which one message is missing, one is forged, one forked, and the last cut short."""
    count = len(messages)
    damaged = list(messages)
    damaged[count // 2] = damaged[count // 2].replace(b"number", b"Number")
    last = read_message(messages[count // 4 - 1]).place
    content = {"type": "post", "text": "something else"}
    damaged.append(create_message(key, content=content, timestamp=1, last=last).data)
    damaged.append(damaged[count - 1][:-20])
    del damaged[count - 1], damaged[3 * count // 4]
    return damaged


def export_lines(path: Path, lines: Sequence[bytes]) -> Path:
    """Write an export, one message a line."""
    path.write_bytes(b"\n".join(lines))
    return path


def verified_prefix(messages: Sequence[bytes]) -> int:
    """How far a feed is verified, message by message; nothing is verified after a fork."""
    last: FeedPlace | None = None
    read = [read_message(data) for data in messages]
    forked = {number for number, times in Counter(m.sequence for m in read).items() if times > 1}
    for message in sorted(read, key=lambda each: each.sequence):
        if message.sequence in forked or not message.verify():
            break
        check_place(message, last)
        last = message.place
    return 0 if last is None else last.sequence


# The jobs.


class Reports:
    """Runs jobs, each with a report below `output`; their summaries by the reports' names."""

    def __init__(self, output: Path, master: str) -> None:
        self._output = output
        self._master = master
        self.summaries: dict[str, Any] = {}

    def run(self, title: str, job: str, kind: str, **inputs: Path) -> dict[str, Any]:
        """The summary of a job."""
        name = title.replace(" ", "-")
        given = [f"--input={each}={path}" for each, path in inputs.items()]
        where = ["--output", str(self._output / name), "--master", self._master, *_SETTINGS]
        text = tempfile.TemporaryFile("w+")  # noqa: SIM115
        began = time.monotonic()
        stdout, sys.stdout = sys.stdout, text
        try:
            status = run_job([job, *given, *where, "--kind", kind, "--quiet", "--json"])
        finally:
            sys.stdout = stdout
        if status == ExitStatus.INTERRUPTED:
            raise KeyboardInterrupt
        if status not in (ExitStatus.DONE, ExitStatus.FAILED):
            raise DemoError(f"{title} has failed with status {status}")
        text.seek(0)
        summary: dict[str, Any] = json.load(text)
        _say(f"  {title}: {_told(summary)}, in {time.monotonic() - began:.1f} s")
        self.summaries[name] = summary
        return summary

    def write_index(self) -> Path:
        """A page that leads to all reports."""
        links = "".join(
            f'<li><a href="{name}/report.html">{escape(name.replace("-", " "))}</a></li>\n'
            for name in self.summaries
        )
        page = self._output / "index.html"
        page.write_text(f"<!doctype html>\n<title>culm</title>\n<ul>\n{links}</ul>\n", "utf-8")
        return page


def _told(summary: dict[str, Any]) -> str:
    if summary["job"] == "reconcile":
        moved = sum(each["copies"] + each["payloads"] for each in summary["copies"])
        return f"{moved} copies to make, {summary['at_risk']} at risk"
    found = {**summary["quarantined"], **summary["reasons"]}
    said = ", ".join(f"{name} {count}" for name, count in found.items()) or "nothing is wrong"
    return f"{summary['rows']} rows: {said}"


def _expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise DemoError(f"{what}: {found} instead of {wanted}")


def audit_directory(source: Path, folder: Path, reports: Reports) -> None:
    """Replicate, export, damage, audit and compare a directory."""
    _say(f"Replicating {source}")
    published, fetched, log = replicate_directory(source, folder)
    here, there = records_of(published, log), records_of(fetched, log)
    _say(f"  {len(here)} entries published, {len(there)} fetched")
    damaged = damage_log(here[:-_CUT_ENTRIES], load_key(published, create=False))
    copies = {
        "published": export(folder / "published.culm", here),
        "fetched": export(folder / "fetched.culm", there),
        "damaged": folder / "damaged",
    }
    copies["damaged"].mkdir()
    export(copies["damaged"] / "most.culm", damaged)
    cut = export(copies["damaged"] / "rest.culm", here[-_CUT_ENTRIES:])
    cut.write_bytes(cut.read_bytes()[:-1])
    _say("Auditing its copies")
    kind = f"bamboo/{YAMF.name}"
    for name in ("published", "fetched"):
        summary = reports.run(f"directory {name}", "audit", kind, **{name: copies[name]})
        _expect(f"the verdict on the {name} log", summary["clean"], True)
        _expect(f"the entries of the {name} log", summary["verified_rows"], len(here))
    summary = reports.run("directory damaged", "audit", kind, damaged=copies["damaged"])
    _expect("the rows set aside", summary["quarantined"], {"TRUNCATED_BLOCK": 1})
    _expect("the verdict on the damaged log", summary["reasons"], reasons_of(damaged, log))
    summary = reports.run("directory compared", "reconcile", kind, **copies)
    # One is missing, one is forged, some were cut off; the fork is nowhere else.
    lacking = 2 + _CUT_ENTRIES + 2
    _expect("copies to make", sum(each["copies"] for each in summary["copies"]), lacking)
    # Instead of one payload the damaged copy has another.
    _expect("payloads to copy", sum(each["payloads"] for each in summary["copies"]), 1)
    _expect("entries at risk", summary["at_risk"], 1)


def audit_feed(folder: Path, posts: int, reports: Reports) -> None:
    """The same of a feed."""
    _say(f"Replicating a feed of {posts} messages")
    here, there, key = replicate_feed(folder, posts)
    _expect("the follower's messages", there, here)
    damaged = damage_feed(here, key)
    copies = {
        "here": export_lines(folder / "here.jsonl", here),
        "there": export_lines(folder / "there.jsonl", there),
        "damaged": export_lines(folder / "damaged.jsonl", damaged),
    }
    _say("Auditing its copies")
    for name in ("here", "there"):
        summary = reports.run(f"feed {name}", "audit", "ssb", **{name: copies[name]})
        _expect(f"the verdict on the feed {name}", summary["clean"], True)
        _expect(f"the messages of the feed {name}", summary["verified_rows"], posts)
    summary = reports.run("feed damaged", "audit", "ssb", damaged=copies["damaged"])
    _expect("the rows set aside", summary["quarantined"], {"NOT_JSON": 1})
    prefix = verified_prefix(damaged[:-1])
    _expect("how far the feed is verified", summary["verified_rows"], prefix)
    wanted = {"forks": 1, "gaps": 2, "faulty_logs": 1}
    _expect("the findings", {name: summary[name] for name in wanted}, wanted)
    forged = {"BAD_SIGNATURE": 1, "FORK": 2}
    found = {name: summary["reasons"].get(name) for name in forged}
    _expect("the verdict on the damaged feed", found, forged)
    _say(f"  {feed_id_of(bytes(key.verify_key))} is verified up to {prefix} of {posts}")
    summary = reports.run("feed compared", "reconcile", "ssb", **copies)
    # One is missing, one is forged, one was cut short; the fork is nowhere else.
    _expect("copies to make", sum(each["copies"] for each in summary["copies"]), 3 + 2)
    _expect("messages at risk", summary["at_risk"], 1)


def _say(text: str) -> None:
    print(text, flush=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="culm demo-spark",
        description=(__doc__ or "").partition("\n")[0],
        epilog=exits(
            {
                ExitStatus.DONE: "exactly the planted faults were found",
                ExitStatus.FAILED: "the findings are others, or a step has failed",
                ExitStatus.IMPOSSIBLE: "wrong arguments, or an extra is missing",
            }
        ),
    )
    made.add_argument(
        "--source",
        type=source,
        default=Path(sysconfig.get_path("stdlib"), "encodings"),
        metavar="DIR",
        help="the directory to replicate (default: %(default)s)",
    )
    made.add_argument(
        "--posts",
        type=count,
        default=_POSTS,
        metavar="N",
        help="how many messages the feed has (default: %(default)s)",
    )
    made.add_argument(
        "--output",
        type=folder,
        default=Path("demo-spark"),
        metavar="DIR",
        help="the directory for the reports; its content is deleted (default: %(default)s)",
    )
    made.add_argument("--master", default="local[2]", help="Spark's master (default: %(default)s)")
    add_json(made)
    return made


def main(words: Sequence[str] | None = None) -> ExitStatus:
    """Run the demo; the exit status."""
    options = parser().parse_args(words)
    try:
        import_module("pyspark")
    except ModuleNotFoundError as error:
        end_without(error, "spark")
    shutil.rmtree(options.output, ignore_errors=True)
    options.output.mkdir(parents=True)
    reports = Reports(options.output.resolve(), options.master)

    def run(done: dict[str, Any]) -> None:
        done |= {"source": str(options.source), "posts": options.posts}
        done["reports"] = reports.summaries
        with tempfile.TemporaryDirectory(prefix="culm-demo-") as folder:
            audit_directory(options.source, Path(folder), reports)
            audit_feed(Path(folder), options.posts, reports)
        done["index"] = str(reports.write_index())
        _say(f"Exactly the planted faults were found. The reports: {done['index']}")

    return told(run, as_json=options.json)
