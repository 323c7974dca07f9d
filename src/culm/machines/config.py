"""The keys of a machine's config, with their meanings; other keys are refused."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

from culm.machines.signatures import by_name, is_one_of, signature_of, type_words

Config = Mapping[str, Any]  # JSON data with {"hex": ...} already read as bytes


class ConfigError(ValueError):
    """A config with a key that the machine does not have, or with a wrong value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a config.

    type: type of the value, or a union of types; a member of an enum is given by its name.
    default: the value if the key is absent.
    meaning: one line, for people.
    secret: whether captures leave it out.
    """

    name: str
    type: object
    default: object = None
    meaning: str
    secret: bool = False

    @property
    def type_words(self) -> str:
        """`type` as the line driver and the documentation write it."""
        return type_words(self.type)


def keys_of(made: Callable[..., object], *, without: Sequence[str] = ()) -> tuple[Key, ...]:
    """A key for each keyword argument of `made` with a default, except those in `without`.

    Their meaning is read from the docstring of `made`, where each has a line of its own, or
    several share one with commas, above an indented text.
    """
    meanings = meanings_of(inspect.getdoc(made) or "")
    return tuple(
        Key(
            name=name,
            type=parameter.annotation,
            default=parameter.default,
            meaning=meanings.get(name, ""),
        )
        for name, parameter in signature_of(made).parameters.items()
        if name not in without and parameter.default is not parameter.empty
    )


def read_config(keys: Sequence[Key], config: Config) -> dict[str, Any]:
    """`config` as a machine with these `keys` takes it: with the defaults of absent keys.

    Raises `ConfigError`, which names the possible keys, or the type that a value should have.
    """
    known = {key.name: key for key in keys}
    for name in config:
        if name not in known:
            there_are = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"there is no key {name!r}; there are: {there_are}")
    return {name: _value(key, config.get(name, key.default)) for name, key in known.items()}


def _value(key: Key, value: object) -> object:
    try:
        found = by_name(key.name, key.type, value)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if found is not key.default and not is_one_of(key.type, found):
        raise ConfigError(f"{key.name} must be {key.type_words}, not {value!r}")
    return found


def meanings_of(doc: str) -> dict[str, str]:
    """The meaning of each argument that a docstring explains."""
    found: dict[str, str] = {}
    for names, text in re.findall(r"^([a-z]\w*(?:, \w+)*)\n((?: {4}.*\n?)+)", doc, flags=re.M):
        for name in names.split(", "):
            found[name] = " ".join(dedent(text).split())
    return found
