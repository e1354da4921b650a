"""The benchmark of Keras runs to its end, at its smallest size."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_runs import run_smallest


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_benchmark_of_keras_runs(tmp_path: Path) -> None:
    assert {figure["what"] for figure in run_smallest("keras_fit.py", tmp_path)} == {"step of Keras `fit`"}
