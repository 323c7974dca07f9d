"""Options and profiles for all tests.

``CULM_HYPOTHESIS_PROFILE`` (or ``--hypothesis-profile``) chooses how hard to search:
``default`` is for daily work, ``ci`` tries the same examples in every run, ``brief`` fewer of them,
``long`` is for campaigns; ``effort`` says what else they change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

import effort
from culm.testing import transcript

TRANSCRIPTS = Path(__file__).parent / "transcripts"

# Processes that tests start find culm-io where these tests do, installed or not.
EXAMPLES = str(Path(__file__).parents[1] / "examples")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [EXAMPLES, os.environ.get("PYTHONPATH")]))

# Two loaded cores are slow, through no fault of a test.
_COMMON = settings(
    deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], max_examples=60
)
settings.register_profile("default", _COMMON)
settings.register_profile("ci", _COMMON, derandomize=True, max_examples=4)
settings.register_profile("brief", settings.get_profile("ci"), max_examples=2)
settings.register_profile("long", _COMMON, max_examples=10_000)
# To find out how a machine is broken; the first fault found is enough.
settings.register_profile(
    "canary",
    max_examples=80,  # the law that tries fewest gets eight of these
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(effort.PROFILE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write what the conversations are now to tests/transcripts instead of comparing",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are too much for this run, see `effort`."""
    left_out = {
        marker for marker, without in (("slow", not effort.LONG), ("once", effort.BRIEF)) if without
    }
    costly: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("costly"):
            costly.setdefault(item.nodeid.partition("[")[0], []).append(item)
    passed_over = {
        item for cases in costly.values() for item in set(cases).difference(effort.some(cases))
    }
    kept, left = [], []
    for item in items:
        out = item in passed_over or any(map(item.get_closest_marker, left_out))
        (left if out else kept).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


@pytest.fixture
def canary_profile() -> Iterator[None]:
    """Search long enough to find, whatever the profile is."""
    with effort.searching("canary"):
        yield


@pytest.fixture
def same_transcript(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``same_transcript(name, text)`` compares `text` with ``tests/transcripts/<name>.txt``."""
    rewrite = bool(request.config.getoption("--rewrite-transcripts"))

    def check(name: str, text: str) -> None:
        transcript.check(text, TRANSCRIPTS / f"{name}.txt", rewrite=rewrite)

    return check
