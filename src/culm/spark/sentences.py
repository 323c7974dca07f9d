"""A job's findings in a sentence, as an operator would first tell them to a colleague."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

_Said = Mapping[str, Any]


def sentence_of(summary: _Said) -> str:
    """The sentence for the summary of any job, or two if there was too little to look at."""
    short = summary["too_few_rows"]
    told = _JOBS[summary["job"]](summary)
    if not short:
        return told
    has = "has" if len(short) == 1 else "have"
    return f"{_listed(short)} {has} fewer rows than asked for, so this shows little. {told}"


def _verified(said: _Said) -> str:
    wrong = _wrong_rows(said)
    if wrong:
        return f"Of {_many(said['rows'], 'record')}, {_listed(wrong)}."
    return f"Nothing is wrong with {_many(said['rows'], 'record')}, each by itself."


def _audited(said: _Said) -> str:
    one, many = _noun(said)
    parts = _wrong_rows(said)
    if said["faulty_logs"]:
        why = [
            _many(said[name], word)
            for name, word in (("forks", "fork"), ("gaps", "gap"))
            if said[name]
        ]
        known = f" ({_listed(why)})" if why else ""
        parts.insert(0, f"{_stopped(said['faulty_logs'], said['logs'])} to the end{known}")
    if parts:
        verified = f"{_many(said['verified_rows'], 'row')} of {said['rows']:,}"
        return f"{_capital(_listed(parts))}; {verified} hold what is verified."
    return (
        f"Nothing is wrong: {_many(said['entries'], one, many)} of {_many(said['logs'], 'log')},"
        " verified to the end."
    )


def _stopped(faulty: int, logs: int) -> str:
    if faulty < logs:
        return f"{faulty:,} of {logs:,} logs {_verb(faulty, 'is', 'are')} not verified"
    return "the only log is not verified" if logs == 1 else f"none of {logs:,} logs is verified"


def _reconciled(said: _Said) -> str:
    one, many = _noun(said)
    replicas = len(said["inputs"])
    lacking = {each["target"] for each in said["copies"]}
    if not lacking:
        same = f"All {replicas} replicas have the same {many}"
        shown = "" if said["equality"] == "shown" else ", unless somebody has crafted some"
        return f"{same}{shown}.{_besides(said)}"
    copies = [
        _many(sum(each[name] for each in said["copies"]), *words)
        for name, words in (("copies", (one, many)), ("payloads", ("payload",)))
        if any(each[name] for each in said["copies"])
    ]
    risk = said["at_risk"]
    alone = f", {risk:,} of them with too few copies" if risk else ""
    some = f"{len(lacking)} of" if len(lacking) < replicas else "All"
    lack = _verb(len(lacking), "lacks", "lack")
    return (
        f"{some} {replicas} replicas {lack} something:"
        f" {_listed(copies)} to copy{alone}.{_besides(said)}"
    )


def _fingerprinted(said: _Said) -> str:
    return f"A set of {_many(said['items'], 'item')} has been fingerprinted.{_besides(said)}"


def _operated(said: _Said) -> str:
    done = [f"{count:,} {action}" for action, count in said["actions"].items()]
    return f"Operations: {_listed(done) or 'none'}.{_besides(said)}"


def _compared_logs(said: _Said) -> str:
    count = sum(said["violations"].values())
    wrong = _wrong_rows(said)
    if count:
        wrong.insert(0, f"{_many(count, 'entry', 'entries')} cannot stand where they do")
    servers = _many(said["servers"], "server")
    if wrong:
        return f"In the logs of {servers}, {_listed(wrong)}."
    return f"Nothing contradicts itself in the logs of {servers}."


def _replayed(said: _Said) -> str:
    wrong = _wrong_rows(said)
    if said["violations"]:
        ended = sum(said["violations"].values())
        wrong.insert(0, f"{ended:,} ended because the peer broke a rule")
    if said["refused"]:
        wrong.append(f"{_many(said['refused'], 'line')} broke a rule of ours")
    sessions = _many(said["sessions"], "session")
    if wrong:
        return f"Of {sessions}, {_listed(wrong)}."
    return f"No rule was broken in {sessions}."


def _decoded(said: _Said) -> str:
    wrong = _wrong_rows(said)
    if said["refused"]:
        wrong.insert(0, f"{_many(said['refused'], 'call')} broke a rule of ours")
    if said["violations"]:
        wrong.insert(0, f"{_many(sum(said['violations'].values()), 'step')} broke the protocol")
    steps = f"{_many(said['steps'], 'step')} of {_many(said['captures'], 'capture')}"
    if wrong:
        return f"Of {steps}, {_listed(wrong)}."
    return f"No rule was broken in {steps}."


def _simulated(said: _Said) -> str:
    verdicts: dict[str, int] = said["verdicts"]
    wrong = [f"{count:,} {name}" for name, count in verdicts.items() if name != "kept"]
    runs = _many(said["runs"], "run")
    return f"Of {runs}, {_listed(wrong)}." if wrong else f"All promises were kept in {runs}."


_JOBS: Mapping[str, Callable[[_Said], str]] = {
    "verify": _verified,
    "audit": _audited,
    "fingerprint": _fingerprinted,
    "reconcile": _reconciled,
    "operations": _operated,
    "raft": _compared_logs,
    "sessions": _replayed,
    "captures": _decoded,
    "simulate": _simulated,
}


def _wrong_rows(said: _Said) -> list[str]:
    """The faults of rows by themselves."""
    parts = []
    aside = sum(said["quarantined"].values())
    if aside:
        parts.append(f"{_many(aside, 'row')} {_verb(aside, 'was', 'were')} set aside")
    forged = said.get("reasons", {}).get("BAD_SIGNATURE", 0)
    if forged:
        parts.append(f"{_many(forged, 'record')} {_verb(forged, 'is', 'are')} not signed as said")
    payloads = sum(said.get("reasons", {}).get(f"PAYLOAD_{name}", 0) for name in ("HASH", "SIZE"))
    if payloads:
        parts.append(f"{_many(payloads, 'payload')} {_verb(payloads, 'is', 'are')} wrong")
    return parts


def _besides(said: _Said) -> str:
    """The same, as a sentence to follow another one; empty if there are none."""
    wrong = _wrong_rows(said)
    return f" Besides, {_listed(wrong)}." if wrong else ""


def _noun(said: _Said) -> tuple[str, str]:
    return ("message", "messages") if said.get("kind") == "ssb" else ("entry", "entries")


def _many(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _verb(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


def _listed(parts: Iterable[str]) -> str:
    *most, last = [*parts] or [""]
    return f"{', '.join(most)} and {last}" if most else last


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
