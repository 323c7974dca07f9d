"""Mutants: small changes of the code, each of which some test ought to notice.

    python tests/mutants.py garlic --seed 1 --count 60
    python tests/mutants.py garlic --only Change. --count 20

A sample of a room's mutants is drawn by seed, more of them from its boundaries.  Each is put into a
copy of `src`, and the room's tests run until one fails.  A mutant that none of them notices has
*survived*: a test is missing, or the change has no visible effect.  Those of the latter kind are
listed in `mutants.toml`, each with the reason.  Exit status 1: some survived that are not listed.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
JUDGED = TESTS / "mutants.toml"


@dataclass(frozen=True)
class Room:
    """The files to mutate, below src/culm, and the tests that ought to notice."""

    paths: tuple[str, ...]  # patterns, which leave out tables, and names
    tests: tuple[str, ...]  # patterns below tests
    boundaries: tuple[str, ...]  # files from which three times as many mutants are drawn

    @property
    def files(self) -> list[Path]:
        """The files that are mutated."""
        base = ROOT / "src/culm"
        found = {path for pattern in self.paths for path in base.glob(pattern)}
        named = {base / path for path in self.paths}
        return sorted(path for path in found if path.stem not in TABLES or path in named)

    @property
    def test_files(self) -> list[str]:
        """The files of its tests, as given to pytest."""
        found = {path for pattern in self.tests for path in TESTS.glob(pattern)}
        return [path.relative_to(ROOT).as_posix() for path in sorted(found)]


# Tables of numbers and shapes: their contents are a choice, or a test compares them with the wire.
TABLES = frozenset(("__init__", "effects", "errors", "events", "limits", "messages", "states"))


_MADE = "contract/test_constructors.py"

ROOMS = {
    "contract": Room(
        ("*.py", "effects.py", "pump/*.py"),
        ("contract/test_*.py", "pump/test_*.py"),
        ("buffer", "effects", "engine", "stack", "timers"),
    ),
    "bamboo": Room(
        ("bamboo/*.py",),
        ("bamboo/test_*.py", "point2point/test_replicator_payloads.py"),
        ("answers", "forks", "links", "staging", "store", "verify"),
    ),
    "bymux": Room(
        ("bymux/*.py",),
        ("bymux/test_*.py", _MADE),
        ("connection", "packets", "scheduler", "stream"),
    ),
    "garlic": Room(
        ("garlic/*.py", "garlic/raft/*.py"),
        ("garlic/test_*.py",),
        (
            *("change", "elector", "engine", "journal", "leadership", "log", "membership"),
            *("progress", "receiver", "replicator", "store", "sessions"),
        ),
    ),
    "oxen": Room(
        ("oxen/*.py",),
        ("oxen/test_*.py",),
        (
            *("flight", "incoming", "numbers", "outgoing", "reception", "roundtrip"),
            *("stream", "window", "keepalive", "proofs"),
        ),
    ),
    "p2panda": Room(
        ("p2panda/*.py",),
        ("p2panda/test_*.py", _MADE),
        ("comparison", "exchange", "heights", "intake", "serving", "sessions", "store"),
    ),
    "point2point": Room(
        ("point2point/*.py",),
        ("point2point/test_p2p_*.py", _MADE),
        ("channels", "direction", "handles", "pieces", "requests"),
    ),
    "replication": Room(
        ("point2point/replication/*.py", "replication/*.py"),
        ("point2point/test_replicator_*.py", "replication/test_*.py", _MADE),
        ("base", "decisions", "download", "log_state", "log_sync", "logs", "queues", "upload"),
    ),
    "reconcile": Room(
        ("reconcile/*.py",),
        ("reconcile/test_*.py", _MADE),
        ("compact", "frames", "incoming", "joined", "rateless", "run", "session"),
    ),
    "ssb": Room(
        ("ssb/*.py", "ssb/messages.py", "ssb/*/*.py"),
        ("ssb/test_*.py",),
        (
            *("box_stream", "connection", "exchange", "links", "notes"),
            *("reader", "secret_handshake", "server", "session", "sources"),
        ),
    ),
}

_OTHER_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OTHER_OPERATOR: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_OTHER_FUNCTION = {"min": "max", "max": "min", "all": "any", "any": "all"}
_REMOVABLE = (ast.Assign, ast.AugAssign, ast.Delete, ast.Return, ast.Break, ast.Continue)
_LEFT_ALONE = (ast.Assert, ast.Raise, ast.Import, ast.ImportFrom, ast.FormattedValue)


def replacements(node: ast.AST) -> Iterator[str]:
    """Possible replacements of `node`."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            for number, operator in enumerate(ops):
                changed = list(ops)
                changed[number] = _OTHER_COMPARISON[type(operator)]()
                yield f"({ast.unparse(ast.Compare(left, changed, others))})"
        case ast.BoolOp(op=operator, values=values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield f"({ast.unparse(ast.BoolOp(other, values))})"
            for left_out in range(len(values)):
                kept = [one for number, one in enumerate(values) if number != left_out]
                yield f"({ast.unparse(ast.BoolOp(operator, kept) if kept[1:] else kept[0])})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OTHER_OPERATOR:
            yield f"({ast.unparse(ast.BinOp(left, _OTHER_OPERATOR[type(operator)](), right))})"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value)):
            yield str(value + 1)
            if value > 0:
                yield str(value - 1)
        case ast.Constant(value=float(value)) if value:
            yield str(2 * value)
        case ast.Call(func=ast.Name(id=name)) if name in _OTHER_FUNCTION:
            yield ast.unparse(node).replace(name, _OTHER_FUNCTION[name], 1)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if isinstance(test, ast.Name | ast.Attribute | ast.Call):
                yield f"not {ast.unparse(test)}"  # in place of the test alone
        case ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.stmt() if isinstance(node, _REMOVABLE):
            yield "pass"
        case _:
            pass


@dataclass(frozen=True)
class Mutant:
    """One change: of a file below src/culm, in bytes `start` to `end`."""

    path: str
    function: str
    before: str  # the line, or the head of the statement, that is changed
    after: str
    line: int
    start: int
    end: int
    text: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The subject of a judgement, wherever in the file it now stands."""
        return self.path, self.function, self.before, self.after

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}: {self.before}  ->  {self.after}"

    def put_into(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


@dataclass
class Finder:
    """Finds the mutants of one file."""

    path: str
    source: bytes
    found: list[Mutant] = field(default_factory=list[Mutant])

    def __post_init__(self) -> None:
        lines = self.source.splitlines(keepends=True)
        self._starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
        self._look_at_body(ast.parse(self.source).body, "")

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _look_at_body(self, body: list[ast.stmt], function: str) -> None:
        for statement in body:
            match statement:
                case ast.ClassDef(name=name) if name.endswith("ErrorCode"):
                    pass  # another table
                case ast.ClassDef(name=name, body=inner):
                    self._look_at_body(inner, f"{function}{name}.")
                case ast.FunctionDef(name=name, body=inner, args=arguments):
                    self._look_at_body(inner, f"{function}{name}.")
                    for default in (*arguments.defaults, *arguments.kw_defaults):
                        if default is not None:
                            self._look_at(default, default, function + name)
                case _:
                    self._look_at(statement, statement, function.rstrip("."))

    def _look_at(self, node: ast.AST, statement: ast.AST, function: str) -> None:
        if isinstance(node, _LEFT_ALONE) or _is_strict(node):
            return
        if isinstance(node, ast.stmt | ast.match_case):
            statement = node
        if not _is_needed(node, function):
            for text in replacements(node):
                self._add(node, statement, function, text)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "type_comment"):
                continue
            for inner in value if isinstance(value, list) else (value,):
                if isinstance(inner, ast.AST):
                    self._look_at(inner, statement, function)

    def _add(self, node: ast.AST, statement: ast.AST, function: str, text: str) -> None:
        place = node
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            place = node.test
        assert isinstance(place, ast.expr | ast.stmt)
        assert place.end_lineno is not None
        assert place.end_col_offset is not None
        start = self._offset(place.lineno, place.col_offset)
        end = self._offset(place.end_lineno, place.end_col_offset)
        before, after = self._shown(statement, start, end, text)
        made = Mutant(self.path, function, before, after, place.lineno, start, end, text)
        self.found.append(made)

    def _shown(self, statement: ast.AST, start: int, end: int, text: str) -> tuple[str, str]:
        """The head of the statement, before and after, on one line."""
        if isinstance(statement, ast.match_case):
            first: ast.AST = statement.pattern
            last: ast.AST = statement.guard or statement.pattern
        else:
            first = statement
            body = getattr(statement, "body", None)
            last = _head(statement) if isinstance(body, list) else statement
        assert isinstance(first, ast.expr | ast.stmt | ast.pattern)
        assert isinstance(last, ast.expr | ast.stmt | ast.pattern)
        begin = self._offset(first.lineno, first.col_offset)
        assert last.end_lineno is not None
        assert last.end_col_offset is not None
        stop = max(end, self._offset(last.end_lineno, last.end_col_offset))
        whole = self.source[begin:stop]
        changed = self.source[begin:start] + text.encode() + self.source[end:stop]
        return _on_one_line(whole), _on_one_line(changed)


def _head(statement: ast.AST) -> ast.AST:
    """The last part of a compound statement before its body."""
    match statement:
        case ast.If(test=test) | ast.While(test=test):
            return test
        case ast.For(iter=iterated):
            return iterated
        case ast.With(items=items):
            return items[-1].context_expr
        case ast.Match(subject=subject):
            return subject
    return statement


def _is_strict(node: ast.AST) -> bool:
    """Whether it is an assertion in another form: that zipped sequences have one length."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _is_needed(node: ast.AST, function: str) -> bool:
    """Whether its mutants would prove nothing: a missing name, a bare string."""
    if isinstance(node, ast.Assign):
        made = any(not isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
        return made or function.endswith("__init__")
    return isinstance(node, ast.Return) and node.value is not None


def _on_one_line(source: bytes) -> str:
    return " ".join(source.decode().split())


def mutants(room: Room) -> list[Mutant]:
    """All mutants of a room, in order."""
    base = ROOT / "src/culm"
    return [
        mutant
        for path in room.files
        for mutant in Finder(path.relative_to(base).as_posix(), path.read_bytes()).found
    ]


def sample(room: Room, found: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """A sample of `count`, without repetition; a boundary's mutants are three times as likely."""
    rng = random.Random(seed)

    def turn(mutant: Mutant) -> float:
        weight = 3.0 if Path(mutant.path).stem in room.boundaries else 1.0
        return -rng.expovariate(weight)

    drawn: list[Mutant] = sorted(found, key=turn, reverse=True)[:count]
    return drawn


def judged() -> dict[tuple[str, str, str, str], str]:
    """Why mutants cannot be noticed, by key."""
    content = tomllib.loads(JUDGED.read_text(encoding="utf-8"))
    return {
        (one["path"], one["function"], one["before"], one["after"]): one["why"]
        for one in content["equivalent"]
    }


def _seconds_of_children() -> float:
    """Processor time that our subprocesses have taken."""
    times = os.times()
    return times.children_user + times.children_system


def limited(command: list[str], limit_s: int) -> list[str]:
    """`command`, limited to `limit_s` seconds of processor time: a busy machine kills no mutant."""
    return ["sh", "-c", f'ulimit -t {limit_s}; exec "$@"', "sh", *command] if limit_s else command


class Copy:
    """The copy of `src` that is mutated, and the room's test files, the quickest killers first."""

    def __init__(self, folder: Path, room: Room) -> None:
        self._source = folder / "src"
        shutil.copytree(
            ROOT / "src",
            self._source,
            ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
        )
        self._env = dict(
            os.environ,
            PYTHONPATH=str(self._source),
            CULM_HYPOTHESIS_PROFILE=os.environ.get("CULM_HYPOTHESIS_PROFILE", "brief"),
        )
        report = folder / "report.xml"
        began = _seconds_of_children()
        status, out = self._run([*room.test_files, f"--junit-xml={report}"])
        if status != 0:
            raise SystemExit(f"a test fails without any mutant:\n{out}")
        # Everything is compiled by now. Bytecode of a mutant must not outlive it.
        self._env["PYTHONDONTWRITEBYTECODE"] = "1"
        limit_s = 30 + 3 * round(_seconds_of_children() - began)
        self._took = dict.fromkeys(room.test_files, 0.0)
        cases = list(ElementTree.parse(report).iter("testcase"))
        # On a busy machine a test may take long even without a mutant.
        slowest_s = max(float(case.attrib["time"]) for case in cases)
        self._limits = limit_s, round(60.0 + 30 * slowest_s)
        for case in cases:
            modules = case.attrib["classname"].split(".")
            for name in self._took:
                if Path(name).stem in modules:
                    self._took[name] += float(case.attrib["time"])
        self._kills = dict.fromkeys(self._took, 0)

    def _run(self, names: list[str], limits_s: tuple[int, int] = (0, 0)) -> tuple[int, str]:
        """Run tests, with limits for all of them and for each; 0 is none."""
        limit_s, test_limit_s = limits_s
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        # A canary does not test the code: a mutant of it may well die by luck.
        command += ["-k", "not canar", f"--timeout={test_limit_s}", *names]
        done = subprocess.run(
            limited(command, limit_s), cwd=ROOT, env=self._env, capture_output=True, text=True
        )
        return done.returncode, done.stdout

    def killer(self, mutant: Mutant) -> str | None:
        """The test that notices it; ``None`` if it has survived."""
        path = self._source / "culm" / mutant.path
        source = path.read_bytes()
        path.write_bytes(mutant.put_into(source))
        try:
            names = sorted(self._took, key=lambda name: self._took[name] / (1 + self._kills[name]))
            status, out = self._run(names, self._limits)
        finally:
            path.write_bytes(source)
        if status == 0:
            return None
        told = [line for line in out.splitlines() if line.startswith(("FAILED", "ERROR"))]
        name = told[0].split()[1] if told and " " in told[0] else "it does not come to an end"
        if (killing := name.partition("::")[0]) in self._kills:
            self._kills[killing] += 1
        return name


def main() -> int:
    parser = argparse.ArgumentParser(description="Change the code a little: does a test notice?")
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--seed", type=int, default=1, help="which sample (default: 1)")
    parser.add_argument("--count", type=int, default=60, help="how many (default: 60)")
    parser.add_argument("--skip", type=int, default=0, help="so many of these: tried before")
    parser.add_argument("--only", default="", help="of those that have this in what is shown")
    parser.add_argument("--list", action="store_true", help="show the sample, and run nothing")
    given = parser.parse_args()
    room = ROOMS[given.room]
    found = mutants(room)
    those = [one for one in found if given.only in str(one)]
    drawn = sample(room, those, given.count, given.seed)[given.skip :]
    if given.list:
        print(*drawn, f"{len(drawn)} of {len(found)}", sep="\n")
        return 0
    equivalent, survived, killed = judged(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder), room)
        for number, mutant in enumerate(drawn, given.skip + 1):
            if (why := equivalent.get(mutant.key)) is not None:
                verdict = f"equivalent: {why}"
            elif (killer := copy.killer(mutant)) is not None:
                verdict, killed = f"killed by {killer}", killed + 1
            else:
                verdict, survived = "SURVIVED", survived + 1
            print(f"{number:3} {verdict}\n    {mutant}", flush=True)
    alike = len(drawn) - killed - survived
    print(
        f"{given.room}, seed {given.seed}: {len(drawn)} of {len(found)} mutants,"
        f" {killed} killed, {alike} equivalent, {survived} survived"
    )
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
