"""MXNet, in a separate environment (``scripts/build_mxnet``), because its last release needs NumPy before 1.24."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from end_of_run import find_python, leave_out

PYTHON = find_python("CLOUDTRAIN_MXNET_PYTHON", "mxnet")
LEFT_OUT = "MXNet is not installed; ./scripts/build_mxnet does it, in a minute"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if PYTHON is None and os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1":
        leave_out(config, items, Path(__file__).parent, LEFT_OUT)


@pytest.fixture
def mxnet_python() -> str:
    assert PYTHON, LEFT_OUT
    return PYTHON
