"""TensorFlow, Keras 3 and tf_keras, in a separate environment (``scripts/build_tensorflow``)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from end_of_run import find_python, leave_out

PYTHON = find_python("CLOUDTRAIN_TENSORFLOW_PYTHON", "tensorflow")
LEFT_OUT = "TensorFlow is not installed; ./scripts/build_tensorflow does it, in two minutes"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if PYTHON is None and os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1":
        leave_out(config, items, Path(__file__).parent, LEFT_OUT)


@pytest.fixture(scope="session")
def warm_tensorflow() -> str:
    """The interpreter of that environment. The tests that use it run on one worker, which imports TensorFlow once."""
    assert PYTHON, LEFT_OUT
    return PYTHON
