"""Entries of Bamboo logs, one after the other."""

from __future__ import annotations

from functools import partial

from culm.bamboo.entry import AUTHOR_SIZE, SIGNATURE_SIZE, decode_prefix
from culm.bamboo.links import has_lipmaalink
from culm.capture.dissect.fields import FieldReader
from culm.wire.multihash import HashFamily


def take_entry(reader: FieldReader, family: HashFamily, name: str = "entry") -> None:
    """Take an entry; its value is its sequence number."""
    decode = partial(decode_prefix, family=family)
    with reader.group(name) as entry, reader.judged(decode):
        reader.uint("tag", 1)
        reader.raw("author", AUTHOR_SIZE)
        reader.varu64("log_id", canonical=True)
        seqnum = reader.varu64("seqnum", canonical=True)
        entry.tell(seqnum)
        if has_lipmaalink(seqnum):
            reader.hash("lipmaalink", family)
        if seqnum > 1:
            reader.hash("backlink", family)
        reader.varu64("payload_size", canonical=True)
        reader.hash("payload_hash", family)
        reader.raw("signature", SIGNATURE_SIZE)
