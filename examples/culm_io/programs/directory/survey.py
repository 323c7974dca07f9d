"""Which payloads of a log a store does not have, and how to ask for them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace

from culm.bamboo import LogKey, LogStore
from culm.point2point.replication import Want

__all__ = ["Survey", "survey_log"]

_READ_SIZE_MAX = 1 << 20


@dataclass(slots=True)
class Survey:
    """The stored part of the unbroken log.

    position: its last entry; last_lacks: whether that lacks a payload of interest.
    lacking: how many payloads of interest are missing; left_out: how many of those that are
    too large.  begun: how much there is of payloads of which only a beginning is there, by
    entry. gaps: ranges that bring lacking entries and nothing that is there, but for the last
    entry, with which fetching the next ones begins.
    """

    position: int = 0
    last_lacks: bool = False
    lacking: int = 0
    left_out: int = 0
    begun: dict[int, int] = field(default_factory=dict)
    gaps: list[Want] = field(default_factory=list)


def survey_log(
    store: LogStore,
    log: LogKey,
    *,
    payload_size_max: int,
    end: int | None = None,
    chosen: Container[int] | None = None,
) -> Survey:
    """Survey the entries of `log` in `store`, up to entry `end`.

    Payloads of more than `payload_size_max` bytes are not of interest, nor are those of other
    entries than the `chosen` ones, if that is given; then the last entry is one like the others.
    """
    head = store.head(log)
    survey = Survey(0 if head is None else head.seqnum)
    last = survey.position if end is None else min(end, survey.position)
    there_max = -1  # the largest payload that is there since the last gap began
    seqnum = 1
    while seqnum <= last:
        entries = store.entries(log, seqnum, last, size_max=_READ_SIZE_MAX)
        for entry in entries:
            size = entry.payload_size
            if entry.payload_complete or not (chosen is None or entry.seqnum in chosen):
                there_max = max(there_max, size)
                continue
            if entry.payload_stored:
                survey.begun[entry.seqnum] = entry.payload_stored
            if size > payload_size_max:
                survey.left_out += 1
                continue
            survey.lacking += 1
            if entry.seqnum == survey.position and chosen is None:
                survey.last_lacks = True
                continue
            gap = survey.gaps[-1] if survey.gaps else None
            if gap is not None and there_max < min(gap.size_min, size):
                size_min = min(gap.size_min, size)
                survey.gaps[-1] = replace(gap, last=entry.seqnum, size_min=size_min)
            else:
                survey.gaps.append(_gap(entry.seqnum, size, payload_size_max))
                there_max = -1
        seqnum = entries[-1].seqnum + 1
    return survey


def _gap(seqnum: int, size: int, size_max: int) -> Want:
    return Want(first=seqnum, last=seqnum, payload_only=True, size_min=size, size_max=size_max)
