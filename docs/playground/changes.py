"""What a reader changes in a conversation, and how a link to it says so.

A change is a few words with ``-`` between them: ``drop-17`` (message 17), ``byte-17-4-255``,
``kill-n2-34`` (after step 34), ``do-n2-propose-34``, ``heal-34``.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BYTE_VERBS", "CAN", "MESSAGE_VERBS", "Change", "parse"]

MESSAGE_VERBS = ("drop", "late", "twice", "break")
BYTE_VERBS = ("byte",)
NODE_VERBS = ("kill", "start", "cut")
# What can become of a message, by what carries it: a stream loses nothing and repeats nothing.
CAN = {
    "datagram": ("drop", "late", "twice", "byte"),
    "stream": ("break", "late", "byte"),
    "end": ("late",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change.  It concerns a `message`, by its number, or comes after a `step`."""

    verb: str
    message: int | None = None
    offset: int = 0
    value: int = 0
    node: str = ""
    deed: str = ""
    step: int | None = None


def parse(text: str) -> Change:
    """The change that a text says.  Raises `ValueError`."""
    verb, *rest = text.split("-")
    try:
        return _parsed(verb, rest)
    except ValueError:
        raise ValueError(f"not a change: {text}") from None


def _parsed(verb: str, rest: list[str]) -> Change:
    if verb in MESSAGE_VERBS:
        (message,) = map(_number, rest)
        return Change(verb=verb, message=message)
    if verb in BYTE_VERBS:
        message, offset, value = map(_number, rest)
        if value > 255:
            raise ValueError
        return Change(verb=verb, message=message, offset=offset, value=value)
    if verb in NODE_VERBS:
        node, step = rest
        return Change(verb=verb, node=node, step=_number(step))
    if verb == "do":
        node, deed, step = rest
        return Change(verb=verb, node=node, deed=deed, step=_number(step))
    if verb == "heal":
        (step,) = rest
        return Change(verb=verb, step=_number(step))
    raise ValueError


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ValueError
    return int(text)
