"""MXNet, whose last release wants a NumPy of before 1.24: in an environment of its own. Elsewhere no such tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "CLOUDTRAIN_MXNET_PYTHON"


def _find_python() -> str | None:
    """The interpreter that the variable names, else the one of the benchmarks' environment."""
    named = os.environ.get(VARIABLE)
    path = Path(named or "~/.cache/cloudtrain-bench/mxnet/bin/python").expanduser()
    if named and not path.is_file():
        raise pytest.UsageError(f"{VARIABLE}: there is no {named}")
    return str(path) if path.is_file() else None


_PYTHON = _find_python()
collect_ignore_glob = [] if _PYTHON else ["test_*.py"]


@pytest.fixture
def mxnet_python() -> str:
    assert _PYTHON
    return _PYTHON
