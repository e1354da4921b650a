"""Makes the engine fixtures available."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "hosts"))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("engine_fixtures")
