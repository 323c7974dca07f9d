"""The columns of every DataFrame of the pipeline: types, nullability, meanings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from culm.spark.audit import FORKS, VERDICT
from culm.spark.capture_rows import CAPTURED
from culm.spark.decode import VERIFIED
from culm.spark.dissection import DISSECTED
from culm.spark.findings import LOGS
from culm.spark.fingerprint import PIECES, RANGES
from culm.spark.operations import OPERATIONS
from culm.spark.quarantine import QUARANTINE
from culm.spark.raft_logs import RAFT_ENTRIES
from culm.spark.reading import ROWS
from culm.spark.reconcile import DIVERGENT, HOLDERS, PLAN
from culm.spark.sessions import SAID
from culm.spark.simulate import RUNS
from culm.spark.ssb import MESSAGES


class Schema(NamedTuple):
    """A DataFrame: the function that gives it, its columns, and their meanings by name.

    `sure` names the columns that are never null.
    """

    title: str
    given_by: str
    columns: Sequence[tuple[str, str]]
    meanings: Mapping[str, str]
    sure: str = ""

    @property
    def nulls(self) -> frozenset[str]:
        """The columns that may be null."""
        return frozenset(name for name, _ in self.columns) - {*self.sure.split()}


_HOLDERS = {
    "item": "",
    "size": "bytes of it, with its payload; null if no inventory says them",
    "copies": "how many replicas hold it",
    "holders": "which, in ascending order",
    "lacking": "which do not",
    "payload_bytes": "bytes of its payload; null if none has it, or payloads are not compared",
    "payload_copies": "how many replicas have the payload; null if payloads are not compared",
    "payload_holders": "which",
}

_CAPTURED = {
    "file": "the capture",
    "block": "the byte where the block of the record begins",
    "row": "the record's number there, from 0 on",
    "machine": "its name in the registry; empty if it has none",
    "session": "the name of the capture, to tell it from others",
    "step": "its number, from 1 on; null if a part before it could not be read",
    "at": "seconds since the capture began; null as above, 0 without a clock",
    "time": "the same since 1970; null if it does not say when it began",
    "part": "0: the step itself; from 1 on, its messages and violations",
    "what": "`step`; `message`; `violation`: the peer broke a rule, as the machine says, or"
    " as bytes show that cannot be split; `refused`: the caller broke one",
    "kind": "of a step: `received`, `sent`, `event`, `effect`, `answer`, `time`,"
    " `deadline`, `call`; `idle` if it took nothing",
    "call": "the method that was called; with a `!` a verb of the registry",
    "handle": "the object of the machine that was called; 0 is the machine",
    "link": "the connection, of a machine that has several",
    "state": "of the machine, after an event",
    "received": "whether the bytes are the peer's; null where there are none",
    "peer": "the address of a datagram",
    "name": "of the message, or the class of the event, the effect or the error",
    "code": "of the error, or of the fault in the bytes",
    "within": "the packet that carries the message; null if none does",
    "offset": "of the message, or the first wrong byte, in the bytes of the step",
    "size": "of the bytes of the step, or of the message in them",
    "continues": "whether more of the message comes with a later step",
    "said": "JSON: arguments and result of the call, or an error's message",
    "data": "the bytes of the step, if they are of one stream or datagram",
    "fields": "of a message, each with the ones inside it after it",
    "fault": "null, or why this part of the file cannot be read",
    "block_end": "the end of a part that could not be read, if known; null otherwise",
}

#: All schemas, by short names.
SCHEMAS: Mapping[str, Schema] = {
    "rows": Schema(
        "Rows of archives",
        "read",
        ROWS,
        {
            "entry": "the record; null where there is a fault",
            "payload": "null if it is not on hand",
            "kind": "the kind that an archive names; null for lines and tables",
            "file": "where the record is: its file,",
            "block": "the byte where its block or line begins (of tables about that of its group),",
            "row": "its number there; null if that is not known",
            "fault": "null, or why this part of the file cannot be read",
            "block_end": "the end of a part that could not be read, if known; null otherwise",
        },
        "file block",
    ),
    "verified": Schema(
        "Entries, decoded and verified",
        "verify",
        VERIFIED,
        {
            "log": "author and log id, 40 bytes: the log that the entry says it is of",
            "author": "its public key, 32 bytes",
            "log_id": "a number without a sign",
            "seqnum": "from 1 on, without a sign",
            "end_of_log": "whether the entry ends its log",
            "lipmaa": "the number of the entry to which the lipmaalink leads; 0 for entry 1",
            "lipmaalink": "an encoded hash; null where the entry has none",
            "backlink": "the same",
            "payload_size": "of the payload, as the entry says",
            "payload_hash": "the same",
            "signature": "64 bytes",
            "hash": "of the entry, encoded",
            "fault": "null, or why the entry does not decode: all columns above are null then",
            "reasons": "bits: faults of the row by itself (not given by `decode`)",
        },
        "reasons",
    ),
    "messages": Schema(
        "Messages of Secure Scuttlebutt",
        "verify_messages",
        MESSAGES,
        {
            "log": "the feed's public key and eight zeros",
            "feed": "its id",
            "seqnum": "from 1 on",
            "id": "of the message, as messages say it",
            "previous": "of the one before; null for the first",
            "timestamp": "milliseconds, as the author tells them",
            "content_type": "null for a private message; U+FFFD stands for half a surrogate pair",
            "end_of_log": "false",
            "lipmaa": "0",
            "lipmaalink": "null",
            "backlink": "the digest in `previous`",
            "hash": "the digest in `id`",
            "fault": "null, or why the message cannot be read: all columns above are null then",
            "reasons": "bits: faults of the row by itself",
        },
        "reasons",
    ),
    "verdicts": Schema(
        "Verdicts: these columns beside those of the rows that were given",
        "audit(...).verdicts",
        VERDICT,
        {
            "reasons": "bits: all that is against the row",
            "verified": "whether the entry, and all before it in its log, are as they should be",
        },
        "reasons verified",
    ),
    "logs": Schema(
        "Logs",
        "audit(...).logs",
        LOGS,
        {
            "log": "author and log id",
            "author": "its public key",
            "log_id": "a number without a sign",
            "rows": "signed rows, repetitions included",
            "entries": "sequence numbers of which there is something",
            "height": "the largest of them",
            "verified": "the newest verified entry; all before it are verified, too; 0 if none is",
            "first_fault": "the number after `verified`; null if `verified` is `height`",
            "first_fault_reasons": "bits: why it stops there; `GAP` if that entry is missing",
            "forks": "sequence numbers with more than one variant",
            "gaps": "entries whose predecessor is missing",
            "invalid_from": "the first fork, or lie about a payload's size; null if there is none",
            "ends_at": "the first entry that ends the log; null if none does",
        },
        "log author log_id rows entries height verified forks gaps",
    ),
    "forks": Schema(
        "Forks",
        "audit(...).forks",
        FORKS,
        {
            "log": "author and log id",
            "seqnum": "the number that has several entries",
            "variants": "how many",
            "proof": "the first and the last in order of bytes; null if rows had no `entry`",
        },
        "log seqnum variants",
    ),
    "ranges": Schema(
        "Fingerprints of ranges",
        "fingerprint(...).ranges",
        RANGES,
        {
            "monoid": "how fingerprints are made",
            "level": "how many bytes of an item name its range",
            "range": "which; an item that is shorter than the level is a range of its own",
            "count": "of items",
            "digest": "of their fingerprint, in full",
        },
        "monoid level range count digest",
    ),
    "tree": Schema(
        "Pieces of a serialised tree",
        "fingerprint(...).tree",
        PIECES,
        {"offset": "where it begins", "data": "its bytes"},
        "offset data",
    ),
    "divergent": Schema(
        "Ranges in which replicas differ",
        "reconcile(...).ranges",
        DIVERGENT,
        {
            "level": "how many bytes of an item name its range",
            "range": "which",
            "counts": "how many items each replica has in it, which may be others",
        },
        "level range counts",
    ),
    "holders": Schema(
        "Who has what, in ranges that differ",
        "reconcile(...).holders and at_risk",
        HOLDERS,
        _HOLDERS,
        "item copies holders lacking",
    ),
    "plan": Schema(
        "Copies to make",
        "reconcile(...).plan",
        PLAN,
        {
            "item": "",
            "part": "`item`: all of it, with the payload if anybody has it; `payload`: that alone",
            "size": "bytes; null if no inventory says them",
            "source": "a replica that has all of it, as far as anybody has",
            "target": "the one that lacks it",
        },
        "item part source target",
    ),
    "operations": Schema(
        "Operations of p2panda",
        "decode_operations",
        OPERATIONS,
        {
            "action": "`CREATE`, `UPDATE` or `DELETE`",
            "schema_id": "of the document",
            "previous": "the ids of the operations before",
            "fields": 'JSON; bytes are hexadecimal, `"NaN"`, `"Infinity"` and `"-Infinity"` text',
            "fault": "null, or why there is no operation: all columns above are null then",
        },
    ),
    "raft": Schema(
        "Entries of Raft's logs: these columns beside those that were given",
        "decode_raft_entries",
        RAFT_ENTRIES,
        {
            "servers": "of a configuration the endpoints by id, JSON; null otherwise",
            "fault": "null, or why a configuration cannot be decoded",
        },
    ),
    "captured": Schema(
        "Steps of captures, messages in them, and broken rules",
        "decode_captures",
        CAPTURED,
        _CAPTURED,
        "file block",
    ),
    "dissected": Schema(
        "Fields of bytes",
        "culm_dissect` (SQL) as a struct; `fields` also by `decode_captures",
        DISSECTED,
        {
            "fields": "in order, each with the ones inside it after it; values as a `number` (from"
            " 2**63 on negative), a `text` or `bytes`",
            "fault": "null, or the code of the fault; `TRUNCATED` if more bytes could go on",
            "fault_offset": "the first wrong byte",
        },
        "fields",
    ),
    "quarantine": Schema(
        "Rows that were set aside",
        "quarantined",
        QUARANTINE,
        {
            "reason": "the fault",
            "kind": "as in the rows of archives",
            "file": "the same",
            "block": "the same",
            "row": "the same",
            "block_end": "the same",
            "record": "the unusable record, if it could be read",
        },
        "reason",
    ),
    "said": Schema(
        "What machines said of sessions, as of captures",
        "replay_sessions",
        SAID,
        {name: _CAPTURED[name] for name, _ in SAID if name in _CAPTURED}
        | {
            "session": "its name",
            "line": "the line to which the machine said it; 0: before any",
            "step": "its number, from 1 on; null for a line that never got to the machine",
        },
        "session line part what",
    ),
    "runs": Schema(
        "Runs of a simulator",
        "simulate",
        RUNS,
        {
            "seed": "`run_seed` runs it again",
            "verdict": "`kept`; `broken`: a promise was; `failed`: another exception",
            "steps": "null unless the simulator tells them",
            "bytes": "the same",
            "cpu_s": "processor time",
            "transcript": "the traceback, with its notes; null if all was kept",
        },
        "seed verdict cpu_s",
    ),
}
