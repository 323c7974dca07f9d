"""Parts that are left out of a capture; each leaves a mark."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from culm.capture.values import MARK, Hidden, marked
from culm.machines import UnknownMachineError, lookup

SECRET_CALLS = frozenset({"rekey", "!rekey"})
"""The calls whose arguments are secret keys, although they look like any bytes."""


SECRET_ARGUMENTS = frozenset({"accepted", "hmac_key", "keys", "network", "password", "user"})
"""The same for the arguments by which machines are made."""


class Redact(Enum):
    """The parts of calls that a recorder leaves out.

    KEYS
        Secret keys: objects that are keys, arguments and settings that are, and fields that their
        own class does not show (``repr=False``), such as the keys of a session that come out of a
        handshake.
    PAYLOADS
        All bytes and texts.  Their sizes are kept, and so are names of calls, events and states,
        numbers, times, and the messages of errors.
    """

    KEYS = "keys"
    PAYLOADS = "payloads"


class Secret:
    """A value that is a secret by its name."""

    def __init__(self, value: object) -> None:
        self.value = value


def without_keys(value: object) -> Any:
    """The mark in place of a key; ``None`` for everything else."""
    if isinstance(value, (Hidden, Secret)):
        value = value.value
    elif not isinstance(value, (PrivateKey, SigningKey)):
        return None
    return marked("secret", type=type(value).__name__)


def without_secrets(machine: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a machine by its name, with marks in place of secrets."""
    try:
        keys = lookup(machine).keys
    except UnknownMachineError:
        keys = ()
    names = {key.name for key in keys if key.secret}
    return {
        name: without_keys(Hidden(value)) if value and name in names else value
        for name, value in config.items()
    }


def is_secret(value: object) -> bool:
    """Whether this is the mark of a secret."""
    return isinstance(value, dict) and value.get(MARK) == "secret"


# Names, and numbers in hexadecimal.
_KEPT = frozenset({MARK, "constant", "hex", "member", "message", "type"})


def without_payloads(value: Any) -> Any:
    """A value as `culm.capture.values` writes it, with sizes for all bytes and texts in it."""
    if isinstance(value, (bytes, str)):
        return _size_of(value) if value else value
    if isinstance(value, list):
        return [without_payloads(each) for each in value]
    if not isinstance(value, dict):
        return value
    if MARK not in value:
        pairs = [[without_payloads(key), without_payloads(each)] for key, each in value.items()]
        return marked("dict", pairs=pairs)
    return {name: part if name in _KEPT else _parts(name, part) for name, part in value.items()}


def _parts(name: str, part: Any) -> Any:
    """Fields keep their names."""
    if name in ("fields", "slots") and isinstance(part, dict):
        return {field: without_payloads(each) for field, each in part.items()}
    return without_payloads(part)


def _size_of(value: bytes | str) -> dict[str, Any]:
    return marked("payload", type=type(value).__name__, size=len(value))
