"""The notebook of the docs runs as printed, with the output shown in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import sessions_of_tests

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "spark-notebook.ipynb"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_notebook_prints_what_stands_in_it(request, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    for name in {*os.environ} - {*sessions_of_tests.outside_of(os.environ)}:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=900, kernel_name="python3")
    client.record_timing = False
    client.execute()
    notebook.metadata.pop("language_info")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [told for told in cell.outputs if told.get("name") != "stderr"]
        for told in cell.get("outputs", ()):
            if told.output_type == "execute_result":
                told.execution_count = None
    if request.config.getoption("--rewrite-transcripts"):
        nbformat.write(notebook, NOTEBOOK)
    assert [cell.get("outputs") for cell in notebook.cells] == (
        [cell.get("outputs") for cell in nbformat.read(NOTEBOOK, as_version=4).cells]
    ), "pytest --rewrite-transcripts writes them anew"
