"""Reasons for refusals."""

from __future__ import annotations

from culm.machine import ProtocolErrorCode


class ErrorCode(ProtocolErrorCode):
    """Reasons for refusing a call, or a request that no server in its right mind makes."""

    NOT_LEADER = 1
    QUEUE_FULL = 2
    TRANSFER_IN_PROGRESS = 3
    CHANGE_IN_PROGRESS = 4
    NOTHING_COMMITTED = 5
    ALREADY_MEMBER = 6
    NOT_MEMBER = 7
    IS_LEADER = 8
    BAD_ENDPOINT = 9
    VALUE_TOO_LARGE = 10
    NO_CHANGE = 11
    NO_LEADER = 12
    NOT_VOTER = 13
    NOT_UNDERSTOOD = 14
    CONFIGURATION_TOO_LARGE = 15
    CONTRADICTION = 20
    SNAPSHOT_TOO_LARGE = 21
    LOST_ENTRIES = 22
