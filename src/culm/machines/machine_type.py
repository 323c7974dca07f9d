"""A machine as data: its name, its settings, its verbs and its codec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from culm.machine import (
    DatagramMachine,
    Effect,
    Event,
    LinkedMachine,
    LocalProtocolError,
    ProtocolErrorCode,
    StreamMachine,
)
from culm.machines.config import Config, Key, read_config
from culm.machines.encodings import EVERY, Encoding
from culm.machines.operations import Call
from culm.signatures import with_signatures

AnyMachine = StreamMachine | DatagramMachine | LinkedMachine
Verb = Callable[..., object]  # verb(machine, **args)
Responder = Callable[[Effect[Any]], object]


class VerbErrorCode(ProtocolErrorCode):
    """Codes for the local errors that verbs raise."""

    NO_SUCH_HANDLE = 1  # the arguments name a stream, request or other handle that is not there


def close_link(machine: LinkedMachine, link: int) -> None:
    """Give up a connection, as a verb.  Raises `LocalProtocolError` (``NO_SUCH_HANDLE``)."""
    for each in machine.links:
        if each.number == link:
            each.close()
            return
    raise LocalProtocolError(VerbErrorCode.NO_SUCH_HANDLE, f"link {link}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialling:
    """The calls that open links, for programs that connect machines with each other.

    wanted: the name of the member that an event asks to be dialled; ``None`` for all other
        events.
    made: the call that reports a new connection to that member; it returns the new link or its
        number.
    failed: the call that reports that the member was not reached.
    accepted: the call that reports a connection from elsewhere; returns the link.
    """

    wanted: Callable[[Event], str | None]
    made: Callable[[str], Call]
    failed: Callable[[str], Call]
    accepted: Call


@dataclass(frozen=True, slots=True)
class Unsealed:
    """Bytes of a peer, without the wrapping of a layer below.

    seal: wraps other bytes in place of `data`, so that the layer below accepts them.
    """

    data: bytes
    seal: Callable[[bytes], bytes] = bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """The formats of a machine's bytes, and of the answers to its effects.

    results: makes the answer to an effect of a type from the JSON result of a ``complete``
        line, in which bytes are already decoded.
    encodings: the encodings of numbers that the peer uses.
    unwrapped: the parts in some bytes of a conversation, without the wrapping of a layer
        below; sealed again and joined, the parts are the same bytes.
    messages: cuts bytes of a conversation into messages (`culm.machines.messages`); joined, they
        are the same bytes.  Without it each of the `unwrapped` parts is a message.
    """

    results: Mapping[type[Effect[Any]], Callable[[Any], object]] = field(
        default_factory=dict[type[Effect[Any]], Callable[[Any], object]]
    )
    encodings: Sequence[Encoding] = EVERY
    unwrapped: Callable[[bytes], Sequence[Unsealed]] = lambda data: [Unsealed(data)]
    messages: Callable[[bytes], Sequence[bytes]] | None = None

    def cut(self, data: bytes) -> list[bytes]:
        """The messages in `data`, and bytes between them; joined, the pieces are `data`."""
        if self.messages is not None:
            return [each for each in self.messages(data) if each]
        return [sealed for part in self.unwrapped(data) if (sealed := part.seal(part.data))]


@dataclass(frozen=True, kw_only=True, eq=False)
class MachineType:
    """A machine as the registry knows it.

    name: its name in the line driver and in reports, for example ``bymux``.
    build: makes a machine from a config that has every key of `keys`; called by `make`.
    keys: the keys that a config may have, with defaults; other keys are refused.
    verbs: calls on handles for users, by name: ``verb(machine, **args)``.  The machine's
        own public methods need none.  An argument whose annotation is an enum may be given
        by the name of a member.  A verb is one call: it raises only `LocalProtocolError`
        (with `VerbErrorCode.NO_SUCH_HANDLE` for a handle that is not there), and then has
        changed nothing.
    respond: makes, for a config with every key, a fresh store that answers effects at
        once; called by `store`.  Machines that have effects must have one.
    dialling: the calls that open links, for a machine that has several.
    helpers: the classes of its arguments and those of its calls, which a capture may make.
    """

    name: str
    build: Callable[[Config], AnyMachine]
    keys: Sequence[Key] = ()
    verbs: Mapping[str, Verb] = field(default_factory=dict[str, Verb])
    respond: Callable[[Config], Responder] | None = None
    dialling: Dialling | None = None
    codec: Codec = field(default_factory=Codec)
    helpers: Sequence[type] = ()

    def make(self, config: Config) -> AnyMachine:
        """A new machine.  Raises `ConfigError`, and the machine's own errors for wrong values."""
        return self.build(read_config(self.keys, config))

    def store(self, config: Config) -> Responder | None:
        """A fresh store that answers effects, and verifies signatures; ``None`` without effects."""
        if self.respond is None:
            return None
        return with_signatures(self.respond(read_config(self.keys, config)))

    def __str__(self) -> str:
        return self.name
