"""Checks on a job's findings: which of them fail it, and whether there was enough input.

As with checks on data elsewhere, a job reports all its findings, and the user's `Checks` decide
which of them are failures.  An empty archive proves nothing, so too few rows are a status of their
own, which nothing else hides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any

from culm.bamboo.errors import Reason
from culm.garlic import ErrorCode
from culm.p2panda.errors import Reason as OperationFault
from culm.spark.archive import ArchiveFault
from culm.spark.capture_files import CaptureFault
from culm.spark.decode import NO_ENTRY
from culm.spark.lines import LineFault
from culm.spark.operations import NO_PAYLOAD
from culm.spark.quarantine import WRONG_KIND
from culm.spark.raft_logs import VIOLATIONS
from culm.spark.ssb import NO_MESSAGE, WRONG_KEY
from culm.spark.tables import TableFault
from culm.ssb.messages import MessageErrorCode
from culm.wire.errors import WireErrorCode

#: Findings that are neither reasons nor faults: rows that were set aside, for any fault,
SET_ASIDE = "SET_ASIDE"
#: ranges in which replicas differ,
DIVERGENT = "DIVERGENT"
#: items, or payloads, with few copies,
AT_RISK = "AT_RISK"
#: lines of a session that its machine has refused.
REFUSED = "REFUSED"

#: The enumerations of findings.
CODES: tuple[type[Enum], ...] = (
    *(ErrorCode, OperationFault, MessageErrorCode, WireErrorCode),
    *(TableFault, LineFault, ArchiveFault, CaptureFault, Reason),
)
#: All names that a check can have, except those that machines give to errors in sessions.
KNOWN = frozenset(
    {
        *(SET_ASIDE, DIVERGENT, AT_RISK, REFUSED),
        *(NO_ENTRY, NO_MESSAGE, NO_PAYLOAD, WRONG_KEY, WRONG_KIND, "NOT_JSON", "WRONG_FORM"),
        *("BROKEN", "FAILED"),
        *VIOLATIONS,
        *(code.name for codes in CODES for code in codes),
    }
)


class Status(StrEnum):
    """The result of a completed job."""

    PASSED = "passed"
    """There is no finding, or none that the checks count as a failure."""
    FAILED = "failed"
    """A check has failed."""
    TOO_FEW_ROWS = "too few rows"
    """An input has fewer rows than it should, so that the findings may be wrong."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The numbers of a job, for people and programs, and its findings by name.

    `findings` counts the reasons against records, the faults of rows that were set aside and the
    like; `rows` has the number of rows of each input.
    """

    numbers: dict[str, Any]
    findings: Mapping[str, int]
    rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not any(self.findings.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """Conditions: no finding in `fail_on` (``None`` for all), `rows_min` rows in each input."""

    fail_on: frozenset[str] | None = None
    rows_min: int = 1

    def failed(self, findings: Mapping[str, int]) -> list[str]:
        """The findings that fail the job, sorted by name."""
        found = {name.upper() for name, count in findings.items() if count}
        return sorted(found if self.fail_on is None else found & self.fail_on)

    def short(self, rows: Mapping[str, int]) -> list[str]:
        """The inputs with too few rows, sorted by name."""
        return sorted(name for name, count in rows.items() if count < self.rows_min)

    def status(self, outcome: Outcome) -> Status:
        """The status of a job with this outcome."""
        if self.short(outcome.rows):
            return Status.TOO_FEW_ROWS
        return Status.FAILED if self.failed(outcome.findings) else Status.PASSED


def unknown(names: Iterable[str]) -> list[str]:
    """The names that no check can have."""
    return sorted(set(names) - KNOWN)
