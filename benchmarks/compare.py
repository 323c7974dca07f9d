"""Every claim about speed, size and memory beside a named peer: in one run, by turns.

``python benchmarks/compare.py`` lets culm and the peer of each claim (`claims`) work in turns for
some rounds, prints a table, and writes ``benchmarks/results/compare.json``: a list of ``{claim,
workload, ours, peer, peer_name, unit, clock, ratio, target, met, rounds}``.  `ours` and `peer` are
medians, and the ratio is the median of the rounds' ratios, so that other load on the machine hits
both alike.  A claim without its peer is left out, and the reason is printed.

Where a target is missed, culm's side works once more, and the functions that take its processor
time are reported as well (`sampled`), with their shares: ``profile``.  Other processes are not
included.

The exit status is 1 if a target is missed, with ``--strict``; docs/benchmarks.md explains the
targets.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "examples"), str(HERE.parent / "tests" / "oxen")]

from claims import CLAIMS, Absent, Claim, Effort  # noqa: E402
from sampled import profiled, shares  # noqa: E402

RESULTS = HERE / "results" / "compare.json"


def compare(claim: Claim, effort: Effort) -> dict[str, object]:
    """Let both sides of a claim take turns.  Raises `Absent`."""
    with claim.contest(effort) as (ours, peer):
        found = [(ours(), peer()) for _ in range(claim.rounds or effort.rounds)]
        ratio = median(one / other for one, other in found)
        met = ratio <= claim.target if claim.at_most else ratio >= claim.target
        with profiled() as taken:
            if not met:
                ours()
    return {
        "claim": claim.name,
        "workload": claim.workload,
        "ours": round(median(one for one, _ in found), 4),
        "peer": round(median(other for _, other in found), 4),
        "peer_name": claim.peer,
        "unit": claim.unit,
        "clock": claim.clock,
        "ratio": round(ratio, 3),
        "target": claim.target,
        "met": met,
        "at_most": claim.at_most,
        "rounds": [round(one / other, 3) for one, other in found],
        "profile": shares(taken),
    }


def line(found: dict[str, object]) -> str:
    sign = "<=" if found["at_most"] else ">="
    verdict = "" if found["met"] else "  missed"
    profile: Any = found["profile"]
    parts = "".join(f"\n{part:>12.1%}  {name}" for name, part in profile.items())
    peer = f"({found['peer_name']})"
    return (
        f"{found['claim']:<44}{found['ours']:>14,} {found['peer']:>14,} {found['unit']:<16}"
        f"{found['ratio']:>7.2f}  {sign} {found['target']:<5}{verdict}   {peer}{parts}"
    )


def write(found: dict[str, object], path: Path) -> None:
    """Replace this claim's entry in the file, and keep the others."""
    kept = json.loads(path.read_text())["claims"] if path.exists() else []
    order = {claim.name: place for place, claim in enumerate(CLAIMS)}
    claims = [old for old in kept if old["claim"] != found["claim"] and old["claim"] in order]
    measured = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {platform.system()}",
    }
    claims.append({**found, **measured})
    claims.sort(key=lambda each: order[str(each["claim"])])
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"claims": claims}, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure culm beside what else one would pick.")
    parser.add_argument("--only", default="", help="a part of the names of claims")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--brief", action="store_true", help="little work: to try it out")
    parser.add_argument("--strict", action="store_true", help="a missed target is a failure")
    parser.add_argument("--list", action="store_true", help="the claims and their targets, no more")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    chosen = [claim for claim in CLAIMS if arguments.only.lower() in claim.name.lower()]
    if arguments.list:
        for claim in chosen:
            sign = "at most" if claim.at_most else "at least"
            print(f"{claim.name}: {sign} {claim.target} of {claim.peer}; {claim.workload}")
        return 0
    effort = Effort(rounds=1 if arguments.brief else arguments.rounds, brief=arguments.brief)
    results = []
    for claim in chosen:
        try:
            found = compare(claim, effort)
        except Absent as reason:
            print(f"{claim.name:<44}left out: {reason}", flush=True)
            continue
        print(line(found), flush=True)
        results.append(found)
        if not arguments.brief:
            write(found, arguments.output)  # at once: the next ones may take an hour
    return int(arguments.strict and not all(found["met"] for found in results))


if __name__ == "__main__":
    sys.exit(main())
