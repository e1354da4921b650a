"""The real Horovod, where it has been built (``scripts/build_horovod``): elsewhere there are no such tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hosts_job import Launch

VARIABLE = "CLOUDTRAIN_HOROVOD_PYTHON"


def _find_python() -> str | None:
    """The interpreter that has it; the variable names one, else it is where the script builds it."""
    named = os.environ.get(VARIABLE)
    path = Path(named or "~/.cache/cloudtrain-bench/horovod/bin/python").expanduser()
    if named and not path.is_file():
        raise pytest.UsageError(f"{VARIABLE}: there is no {named}")
    return str(path) if path.is_file() else None


_PYTHON = _find_python()
collect_ignore_glob = [] if _PYTHON else ["test_*.py"]


@pytest.fixture
def horovod() -> Callable[[str], Launch]:
    """A launch by the ``horovod`` distribution, in the Python that has the real one; takes the implementation."""
    assert _PYTHON

    def launch(implementation: str) -> Launch:
        values = {
            "sagemaker_horovod_enabled": True,
            "sagemaker_horovod_implementation": implementation,
            "sagemaker_processes_per_host": 2,
        }
        return Launch(values, python=_PYTHON)

    return launch
