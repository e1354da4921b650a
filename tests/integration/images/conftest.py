"""The engines of the tests of containers, and an image that is built on each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

INTEGRATION = Path(__file__).parents[1]
sys.path += [str(INTEGRATION / "container"), str(INTEGRATION / "hosts")]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("engine_fixtures")
