"""The services of the page run exactly as printed, and are short."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import services


@pytest.mark.parametrize("name", services.SOURCES)
def test_a_service_has_at_most_forty_lines(name: str) -> None:
    lines = [line for line in services.SOURCES[name].splitlines() if line.strip()]
    assert len(lines) <= 40


@pytest.mark.once
def test_a_log_is_followed_live_with_trio_tls_and_sqlite(tmp_path: Path) -> None:
    services.log_is_followed(tmp_path, sys.executable, os.environ)


@pytest.mark.once
def test_servers_agree_with_trio_tls_and_sqlite(tmp_path: Path) -> None:
    services.servers_agree(tmp_path, sys.executable, os.environ)


@pytest.mark.once
def test_a_cluster_talks(tmp_path: Path) -> None:
    services.cluster_talks(tmp_path, sys.executable, os.environ)


@pytest.mark.once
def test_documents_are_passed_on_with_twisted_and_counted_for_prometheus(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    pytest.importorskip("twisted")
    services.documents_are_passed_on(tmp_path, sys.executable, os.environ)
