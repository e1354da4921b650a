"""The real Horovod, if it has been built (``scripts/build_horovod``). Otherwise, its tests are skipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from end_of_run import find_python, leave_out
from hosts_job import Launch

PYTHON = find_python("CLOUDTRAIN_HOROVOD_PYTHON", "horovod")
LEFT_OUT = "the real Horovod is not built, which takes up to 14 minutes; ./scripts/build_horovod does it"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if PYTHON is None:
        leave_out(config, items, Path(__file__).parent, LEFT_OUT)


@pytest.fixture
def horovod() -> Callable[[str], Launch]:
    """Returns a launch with the ``horovod`` distribution, in the Python with the real one, for an implementation."""
    assert PYTHON

    def launch(implementation: str) -> Launch:
        values = {
            "sagemaker_horovod_enabled": True,
            "sagemaker_horovod_implementation": implementation,
            "sagemaker_processes_per_host": 2,
        }
        return Launch(values, python=PYTHON)

    return launch
