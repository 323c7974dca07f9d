"""What is done with the text of a diagram before it is drawn, and what it says in words."""

from __future__ import annotations

import re

KINDS = {
    "stateDiagram-v2": "State diagram",
    "sequenceDiagram": "Sequence diagram",
    "flowchart": "Flow chart",
}


# A transition, an edge or a message: where from, where to, and what is written there.
TRANSITION = re.compile(r"^\s*(\S+) --> (\S+?)(?: ?: ?(.*))?$", re.M)
MESSAGE = re.compile(r"^\s*(\w+)-?->>(\w+): (.*)$", re.M)
LOOP = re.compile(r"^(\s*)(\w+) --> \2 ?: ?(.*)$", re.M)


def drawable(source: str) -> str:
    """The source with what does not leave a state as a line in the state's box.

    Drawn as a loop, it would lie on the labels of other transitions.
    """
    named: set[str] = set()

    def inside(found: re.Match[str]) -> str:
        indent, state, text = found.groups()
        heading = "" if state in named else f"{indent}{state} : {state}\n"
        named.add(state)
        return f"{heading}{indent}{state} : \u21bb {text}"

    return LOOP.sub(inside, source)


def description(source: str) -> str:
    """What the diagram shows, for those who cannot see it."""
    kind = KINDS.get(source.split(maxsplit=1)[0], "Diagram")
    arrows = TRANSITION.findall(source) if kind == "State diagram" else MESSAGE.findall(source)
    parts = []
    for whence, whither, text in arrows:
        ends = (
            f"{'start' if whence == '[*]' else whence} to {'end' if whither == '[*]' else whither}"
        )
        parts.append(f"{ends}: {text}" if text else ends)
    return f"{kind}. {'; '.join(parts)}." if parts else kind
