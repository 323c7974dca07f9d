"""Messages of Secure Scuttlebutt as columns, checked, and ready for an audit of all feeds.

Input is a column ``entry`` with a message in each row, as in the lines of an export: the JSON of
the message itself, or ``{"key": id, "value": message, ...}`` as peers send it.  The output is
the input of `culm.spark.audit.audit`, as if a feed were a Bamboo log without lipmaalinks: the
``log`` is the public key and eight zero bytes, and a hash is the digest in an id.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from culm.bamboo.errors import Reason
from culm.spark.columns import check_columns, free_names, map_rows
from culm.spark.reasons import bits
from culm.ssb.feed_id import public_key_of
from culm.ssb.messages import ClassicMessage, MessageError, read_message, verify_messages
from culm.ssb.v8json import JsonError, parse, stringify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The columns that `verify_feed_messages` adds; with a ``fault`` all but ``reasons`` are null.
MESSAGES = (
    ("log", "binary"),
    ("feed", "string"),
    ("seqnum", "bigint"),
    ("id", "string"),
    ("previous", "string"),
    ("timestamp", "double"),
    ("content_type", "string"),
    ("end_of_log", "boolean"),
    ("lipmaa", "bigint"),
    ("lipmaalink", "binary"),
    ("backlink", "binary"),
    ("hash", "binary"),
    ("fault", "string"),
    ("reasons", "int"),
)

#: The fault of a row whose entry is null; others are names of `culm.ssb.messages.MessageErrorCode`.
NO_MESSAGE = "NO_MESSAGE"
#: The fault of a message whose id differs from the key beside it.
WRONG_KEY = "WRONG_KEY"

_LOG_ID = bytes(8)


def verify_feed_messages(
    frame: DataFrame, *, hmac_key: bytes | None = None, keep: Sequence[str] | None = None
) -> DataFrame:
    """Add the fields of each message and the reasons against it by itself: the columns `MESSAGES`.

    `hmac_key` is the network's, if it has one.  `keep` names the columns that stay, by default
    all.  Raises `ColumnError` if ``entry`` is missing or of another type, `ValueError` for an
    invalid key.
    """
    verify_messages([], hmac_key=hmac_key)
    check_columns(frame, [("entry", "binary")])
    kept = free_names(frame, dict(MESSAGES)) if keep is None else list(keep)
    return map_rows(frame, partial(message_rows, hmac_key=hmac_key), ["entry"], kept, MESSAGES)


def message_rows(
    given: Sequence[dict[str, Any]], *, hmac_key: bytes | None = None
) -> Iterator[dict[str, Any]]:
    """The new columns of a batch's rows."""
    read = [read_row(row) for row in given]
    messages = [each for each in read if isinstance(each, ClassicMessage)]
    signed = iter(verify_messages(messages, hmac_key=hmac_key))
    for each in read:
        if isinstance(each, str):
            yield {"fault": each, "reasons": bits(Reason.MALFORMED)}
        else:
            yield _fields(each) | {"reasons": 0 if next(signed) else bits(Reason.BAD_SIGNATURE)}


def read_row(row: dict[str, Any]) -> ClassicMessage | str:
    """The message of a row, or its fault."""
    if row.get("fault") is not None:
        return str(row["fault"])
    data: bytes | None = row["entry"]
    if data is None:
        return NO_MESSAGE
    try:
        return read_message(data)
    except MessageError as error:
        fault = error.code.name
    try:
        value = parse(data)
        if not isinstance(value, dict) or "value" not in value:
            return fault
        message = read_message(stringify(value["value"]))
    except MessageError as error:
        return error.code.name
    except JsonError:
        return fault
    return message if value.get("key", message.id) == message.id else WRONG_KEY


def _fields(message: ClassicMessage) -> dict[str, Any]:
    content = message.content
    return {
        "log": public_key_of(message.author) + _LOG_ID,
        "feed": message.author,
        "seqnum": message.sequence,
        "id": message.id,
        "previous": message.previous,
        "timestamp": float(message.timestamp),
        "content_type": content["type"] if isinstance(content, dict) else None,
        "end_of_log": False,
        "lipmaa": 0,
        "backlink": None if message.previous is None else _digest(message.previous),
        "hash": _digest(message.id),
    }


def _digest(message_id: str) -> bytes:
    return b64decode(message_id[1 : message_id.index(".")])
